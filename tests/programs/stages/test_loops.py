"""Loops of stages: their steps are cut as the operations around them are, so that devices exchange inside a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib.programs.ir.inline import with_steps
from redistrib.programs.ir.program import Call, Loop, Program
from tests.programs.stages.scans import BATCH, WIDTH, args_of, deep, layer, momentum, normal

Layout = rd.Layout
LAYERS = 6
X, Y = normal(6, 8, WIDTH), normal(7, 8, WIDTH)


def trained(body: Callable[..., Any], *, keys: bool = False) -> Callable[..., Any]:
    """A step of gradient descent on layers that are scanned."""

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            layers = (params, jax.random.split(jax.random.key(0), LAYERS)) if keys else params
            out = jax.lax.scan(body, x, layers)[0]
            return jnp.mean((out.astype(jnp.float32) - y) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step


def mixed_precision(x: Any, p: Any) -> Any:
    w, b = (p[k].astype(jnp.bfloat16) for k in "wb")
    return x + jnp.tanh(x.astype(jnp.bfloat16) @ w + b).astype(jnp.float32), None


def dropout(x: Any, p: Any) -> Any:
    p, key = p
    return x + jnp.where(jax.random.bernoulli(key, 0.8, x.shape), jnp.tanh(x @ p["w"] + p["b"]), 0), None


def loop_inside(x: Any, p: Any) -> Any:
    return x + jax.lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ p["w"] + p["b"]), x), None


def recurrent(x: Any, p: Any) -> Any:
    def cell(h: Any, column: Any) -> Any:
        h = jnp.tanh(column[:, None] * p["b"] + h @ p["w"])
        return h, h.sum(1)

    _, rows = jax.lax.scan(cell, jnp.zeros((x.shape[0], WIDTH)), x.T)
    return x + rows.T, None


def by_turns(x: Any, p: Any) -> Any:
    """Two kinds of layers, chosen by a counter."""
    x, k = x
    turned = jax.lax.cond(k % 2 == 0, lambda: jnp.tanh(x @ p["w"] + p["b"]), lambda: x @ p["w"])
    return (turned, k + 1), None


def counted(body: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.mean((jax.lax.scan(body, (x, 0), params)[0][0] - y) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step


STEPS = {
    "dense": trained(layer),
    "mixed precision": trained(mixed_precision),
    "dropout": trained(dropout, keys=True),
    "a loop inside": trained(loop_inside),
    "recurrent": trained(recurrent),
    "by turns": counted(by_turns),
}


def layers() -> Any:
    return args_of(LAYERS)[0]["layers"]


def loops_of(program: Program) -> dict[int, list[Loop]]:
    """For the program of every task its loops, those in the steps of others left out."""
    tasks = {id(op.program): op.program for op in program.ops if isinstance(op, Call)}
    return {number: [op for op in task.ops if isinstance(op, Loop)] for number, task in tasks.items()}


def differ(found: Any, wanted: Any) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return max(float(np.abs(np.asarray(a) - b).max() / np.abs(b).max()) for a, b in jax.tree.map(np.asarray, [*pairs]))


QUICK = ("mixed precision", "by turns")  # one layout each; all others are long


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        pytest.param(name, layout, marks=[] if name in QUICK and layout.devices == 8 else pytest.mark.long)
        for name in STEPS
        for layout in (Layout(1, 2, 2, 2), Layout(2, 2, 2, 2), Layout(2, 1, 3, 2))
    ],
    ids=str,
)
def test_steps_of_every_kind_compute_the_same(name: str, layout: Any) -> None:
    args = (layers(), X, Y)
    f = rd.pipeline(STEPS[name], args, {"x": 0, "y": 0}, layout)
    assert not f.unrolled
    assert {len(loops) for loops in loops_of(f.program).values()} == {1}
    assert differ(f(*args), jax.jit(STEPS[name])(*args)) < (1e-2 if "mixed" in name else 2e-6)


@pytest.mark.parametrize(
    "layout",
    [
        *(pytest.param(layout, marks=pytest.mark.long) for layout in (Layout(1, 2, 2, 2), Layout(2, 2, 2, 2))),
        Layout(2, 2, 2, 2, zero=3),
    ],
    ids=str,
)
def test_tensor_parts_exchange_in_the_steps_what_they_exchange_between_unrolled_layers(layout: Any) -> None:
    """Megatron's cuts: a layer's first matrix by columns and its second by rows; activations are added once a layer."""

    def step(params: Any, x: Any, y: Any, unroll: int = 1) -> Any:
        def loss(params: Any) -> Any:
            def layer(x: Any, p: Any) -> Any:
                return x + jax.nn.gelu(x @ p["up"]) @ p["down"], None

            layers = {"up": params["up"], "down": params["down"]}
            return jnp.mean((jax.lax.scan(layer, x @ params["embed"], layers, unroll=unroll)[0] - y) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params = {"up": normal(1, 4, WIDTH, 4 * WIDTH) / 8, "down": normal(2, 4, 4 * WIDTH, WIDTH) / 8}
    params["embed"] = normal(3, WIDTH, WIDTH) / 3
    args, batch = (params, X, Y), {"x": 0, "y": 0}
    scanned = rd.pipeline(step, args, batch, layout)
    unrolled = rd.pipeline(lambda params, x, y: step(params, x, y, 4), args, batch, layout)
    assert all(loops_of(scanned.program).values())
    assert not any(loops_of(unrolled.program).values())
    if not layout.zero:  # which gathers the weights of all layers of a stage at once, or each layer's
        assert scanned.program.received_bytes == unrolled.program.received_bytes
    assert scanned.program.received_bytes <= unrolled.program.received_bytes
    assert scanned.program.flops == pytest.approx(unrolled.program.flops, rel=0.01)
    held = {value.name: value.type.axes for value in scanned.program.inputs}
    assert all("t" in axes for name, axes in held.items() if "up" in name or "down" in name)
    moves = [move for program in with_steps(scanned.program) for move in program.moves if "step" in program.name]
    assert moves  # inside the steps
    assert differ(scanned(*args), jax.jit(step, static_argnums=3)(*args)) < 2e-6


@pytest.mark.parametrize(
    "layout",
    [Layout(2, 2, 2, 2), *(pytest.param(a, marks=pytest.mark.long) for a in (Layout(1, 2, 3, 4), Layout(2, 1, 2, 2)))],
    ids=str,
)
def test_sums_that_layers_add_to_pass_tensor_parts_and_begin_once(layout: Any) -> None:
    """A loss that every layer adds to, from a number on, and a matrix that all layers share."""

    def step(params: Any, shared: Any, x: Any, y: Any) -> Any:
        def loss(params: Any, shared: Any) -> Any:
            def layer(carry: Any, p: Any) -> Any:
                x, total = carry
                x = jnp.tanh(x @ p["w"] @ shared + p["b"])
                return (x, total + (x * x).sum()), None

            (out, total), _ = jax.lax.scan(layer, (x, jnp.float32(1.5)), params)
            return jnp.mean((out - y) ** 2) + 1e-3 * total, total

        (_, total), grads = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, shared)
        return jax.tree.map(lambda p, g: p - 0.1 * g, (params, shared), grads), total

    args = (layers(), normal(9, WIDTH, WIDTH) / 3, X, Y)
    f = rd.pipeline(step, args, {"x": 0, "y": 0}, layout)
    assert not f.unrolled
    assert differ(f(*args), jax.jit(step)(*args)) < 2e-6


def test_steps_are_compiled_once_for_all_microbatches() -> None:
    f, g = (rd.pipeline(momentum(deep), args_of(4), BATCH, Layout(1, 1, 2, count)) for count in (2, 8))
    counts = [len({id(op.program) for op in each.program.ops if isinstance(op, Call)}) for each in (f, g)]
    assert counts[0] == counts[1]


def test_work_of_a_loop_is_that_of_its_steps() -> None:
    """However many dimensions may be cut: a cut dimension adds no floating-point operation."""
    step, args = momentum(deep), args_of(4)

    def forward(params: Any, x: Any) -> Any:
        return jax.lax.scan(layer, x @ params["embed"], params["layers"], unroll=4)[0] @ params["head"]

    unrolled = momentum(forward)
    f, g = (rd.pipeline(each, args, BATCH, Layout(2, 1, 1, 2)) for each in (step, unrolled))
    assert f.program.flops == pytest.approx(g.program.flops, rel=0.01)
