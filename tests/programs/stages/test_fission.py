"""Loops whose steps read complete sums over examples: a loop for each microbatch, and one after all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.ir.program import Call, Loop
from tests.programs.stages.scans import WIDTH, args_of, layer, normal
from tests.programs.stages.test_loops import differ

Layout = rd.Layout
BATCH = {"x": 0, "y": 0}
X, Y = normal(6, 8, WIDTH), normal(7, 8, WIDTH)


def layers(count: int) -> Any:
    return args_of(count)[0]["layers"]


def updated_by_layer(params: Any, moments: Any, x: Any, y: Any) -> Any:
    """A backward pass by hand: each layer's gradient is scaled by its norm and a counter, and updates it at once."""
    out, inputs = jax.lax.scan(lambda h, p: (layer(h, p)[0], h), x, params)
    loss, slope = jax.value_and_grad(lambda out: jnp.mean((out - y) ** 2))(out)

    def back(carry: Any, of_layer: Any) -> Any:
        slope, total, count = carry
        p, moment, h = of_layer
        slope, grads = jax.vjp(lambda h, p: layer(h, p)[0], h, p)[1](slope)
        square = sum(jnp.sum(g * g) for g in jax.tree.leaves(grads))
        grads = jax.tree.map(lambda g: g / jnp.maximum(jnp.sqrt(square), 0.01) / (count + 1), grads)
        moment = jax.tree.map(lambda m, g: 0.9 * m + g, moment, grads)
        p = jax.tree.map(lambda p, m: p - 0.1 * m, p, moment)
        return (slope, total + square, count + 1), (p, moment, square)

    (_, total, count), (params, moments, squares) = jax.lax.scan(
        back, (slope, jnp.float32(0.5), 0), (params, moments, inputs), reverse=True
    )
    return params, moments, loss, total, count, squares


def with_losses_of_layers(params: Any, _: Any, x: Any, y: Any) -> Any:
    """Each layer adds to a loss in bfloat16, which no part of a sum passes."""

    def loss(params: Any) -> Any:
        def one(carry: Any, p: Any) -> Any:
            h, total = layer(carry[0], p)[0], carry[1]
            return (h, total + (h * h).mean().astype(jnp.bfloat16)), None

        (out, total), _ = jax.lax.scan(one, (x, jnp.bfloat16(1.5)), params)
        return jnp.mean((out - y) ** 2) + 1e-3 * total.astype(jnp.float32), total

    (_, total), grads = jax.value_and_grad(loss, has_aux=True)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), total


def counted_by_layer(params: Any, _: Any, x: Any, y: Any) -> Any:
    """Integers: how many activations are positive so far, and a number made of it; and a sum so far, read each step."""

    def one(carry: Any, p: Any) -> Any:
        h, positive, turns, norms, count = carry
        h = layer(h, p)[0]
        positive = positive + (h > 0).sum(dtype=jnp.int32)
        norms = norms + (h * h).sum(0)
        turns = (turns * 3 + positive // 2) % 1001
        return (h, positive, turns, norms, count + jnp.uint8(100)), (positive % 7, jnp.sqrt(norms))

    begin = x, jnp.int32(7), jnp.int32(5), jnp.zeros(WIDTH), jnp.uint8(3)
    (h, *sums), stacked = jax.lax.scan(one, begin, params)
    return h * y, sums, stacked


def loop_inside(params: Any, _: Any, x: Any, y: Any) -> Any:
    """The loop inside a step adds sums that it squares, and the step reads the result."""

    def one(carry: Any, p: Any) -> Any:
        def turn(inner: Any, k: Any) -> Any:
            h, total = inner
            h = jnp.tanh(h @ p["w"] + p["b"] * k)
            return (h, total + jnp.sqrt((h * h).sum())), None

        h, last = carry
        (h, total), _ = jax.lax.scan(turn, (h, jnp.float32(1)), jnp.arange(3.0))
        return (h, jnp.sin(last) + total), total

    (h, last), totals = jax.lax.scan(one, (x, jnp.float32(2)), params)
    return h - y, last, totals


def updated_after(params: Any, _: Any, x: Any, y: Any) -> Any:
    """A scan of its own updates the layers, each by its gradient and the norm of that, and adds up the norms."""
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((jax.lax.scan(layer, x, p)[0] - y) ** 2))(params)

    def one(total: Any, of_layer: Any) -> Any:
        p, grads = of_layer
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        return total + norm, jax.tree.map(lambda p, g: p - 0.1 * g / (norm + 0.1), p, grads)

    total, params = jax.lax.scan(one, jnp.float32(1), (params, grads))
    return params, loss, total


def gradients_too(params: Any, _: Any, x: Any, y: Any) -> Any:
    """The gradient of each layer and its norm, from a backward pass by hand."""
    out, inputs = jax.lax.scan(lambda h, p: (layer(h, p)[0], h), x, params)

    def back(slope: Any, of_layer: Any) -> Any:
        slope, grads = jax.vjp(lambda h, p: layer(h, p)[0], *of_layer)[1](slope)
        return slope, (grads, jnp.sqrt(jnp.sum(grads["w"] ** 2)))

    return jax.lax.scan(back, out - y, (inputs, params), reverse=True)


STEPS = {
    "gradients": gradients_too,
    "updated": updated_by_layer,
    "after": updated_after,
    "losses": with_losses_of_layers,
    "counted": counted_by_layer,
    "inside": loop_inside,
}
LAYOUTS = [
    Layout(1, 1, 1, 4), Layout(1, 1, 2, 2), Layout(2, 1, 2, 2), Layout(1, 2, 2, 2), Layout(2, 2, 2, 2, zero=1),
    Layout(2, 1, 2, 2, zero=2), Layout(2, 2, 2, 2, zero=3), Layout(1, 1, 2, 2, chunks=2, order="interleaved"),
]  # fmt: skip
QUICK = {("updated", 4), ("gradients", 1), ("inside", 2)}


def args_for(count: int) -> tuple[Any, ...]:
    return layers(count), jax.tree.map(np.zeros_like, layers(count)), X, Y


def called(layout: Any) -> str:
    return f"{layout} zero={layout.zero}"


def unrolled(step: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The function, its scans unrolled because it says so."""
    scan = jax.lax.scan

    @wraps(step)
    def function(*args: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(jax.lax, "scan", lambda *args, **named: scan(*args, **{**named, "unroll": True}))
            return step(*args)

    return function


def loops_after(f: Any) -> list[Loop]:
    """The loops outside of the tasks of microbatches."""
    return [op for op in f.program.ops if isinstance(op, Loop)]


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        pytest.param(name, layout, marks=[] if (name, k) in QUICK else pytest.mark.long)
        for name in STEPS
        for k, layout in enumerate(LAYOUTS)
    ],
    ids=lambda value: value if isinstance(value, str) else called(value),
)
def test_two_loops_compute_the_same(name: str, layout: Any) -> None:
    step, args = STEPS[name], args_for(8)
    f = rd.pipeline(step, args, BATCH, layout)
    assert not f.unrolled
    assert len(loops_after(f)) == layout.pipeline * layout.chunks  # one for each run
    assert all(any(isinstance(op, Loop) for op in call.program.ops) for call in f.program.ops if isinstance(call, Call))
    # Losses in bfloat16 are added in another order: first in each run of layers, then those of the runs.
    assert differ(f(*args), jax.jit(step)(*args)) < (1e-2 if name == "losses" else 2e-6)


@pytest.mark.parametrize(
    "layout",
    [pytest.param(a, marks=[] if a.zero in (1, 2) else pytest.mark.long) for a in LAYOUTS if a.chunks == 1],
    ids=called,
)
def test_two_loops_send_no_more_than_unrolled_layers(layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [updated_by_layer, with_losses_of_layers, gradients_too]
    if layout.zero not in (1, 2):  # where the new parameters of unrolled layers, put together, stay cut
        steps.append(updated_after)
    for step in steps:
        loops = rd.pipeline(step, args_for(8), BATCH, layout).program
        apart = rd.pipeline(unrolled(step, monkeypatch), args_for(8), BATCH, layout).program
        assert loops.received_bytes <= apart.received_bytes
        # A step of a loop makes the gradient of its input; the first layer's is left out where layers are unrolled.
        of_first_layer = 2 * len(X) * WIDTH * (WIDTH + 4)
        assert loops.flops <= apart.flops + of_first_layer
        held = [sum(value.type.local_size for value in program.inputs) for program in (loops, apart)]
        assert held[0] <= held[1]


def test_the_program_does_not_grow_with_the_layers() -> None:
    few, many = (
        rd.pipeline(updated_by_layer, args_for(count), BATCH, Layout(2, 1, 2, 2)).program for count in (4, 1024)
    )
    assert len(few.ops) == len(many.ops)
    assert [len(op.program.ops) for op in few.ops if isinstance(op, Call | Loop)] == [
        len(op.program.ops) for op in many.ops if isinstance(op, Call | Loop)
    ]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(2, 1, 2, 2, zero=1),
        *(pytest.param(a, marks=pytest.mark.long) for a in (Layout(1, 1, 2, 2), Layout(2, 1, 2, 2, zero=3))),
    ],
    ids=called,
)
def test_hundreds_of_layers_and_new_parameters_go_in_without_a_move(
    layout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redistrib.programs.stages import pipelined

    params, moments, x, y = args_for(200)
    f = rd.pipeline(updated_by_layer, (params, moments, x, y), BATCH, layout)
    found, wanted = f(params, moments, x, y), jax.jit(updated_by_layer)(params, moments, x, y)
    assert differ(found, wanted) < 1e-5
    moved: list[int] = []
    move = pipelined.resharded
    monkeypatch.setattr(pipelined, "resharded", lambda arrays, *rest, **named: (
        moved.append(len(arrays)), move(arrays, *rest, **named))[1])  # fmt: skip
    again = f(*found[:2], x, y)
    assert sum(moved) == len(f.transfers)
    assert differ(again, jax.jit(updated_by_layer)(*wanted[:2], x, y)) < 1e-5


def test_a_sum_that_is_a_result_too_is_stacked_once() -> None:
    program = rd.pipeline(gradients_too, args_for(8), BATCH, Layout(1, 1, 2, 2)).program
    made = [out for op in program.ops if isinstance(op, Call) for out in op.outs]
    square = [out for out in made if out.type.global_shape == (4, WIDTH, WIDTH)]  # of runs of four layers
    assert len(square) == 2 * 2  # for each stage one of each microbatch


def test_not_a_number_stays_in_its_layers() -> None:
    """Each layer's update reads the sums of its layer alone."""
    params, moments, x, y = args_for(6)
    moments["w"][2, 0, 0] = np.nan
    moments["b"][4, 1] = np.inf
    args = params, moments, x, y
    found = rd.pipeline(updated_by_layer, args, BATCH, Layout(1, 1, 2, 2))(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(updated_by_layer)(*args)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-6, atol=2e-6)
    assert np.isnan(np.asarray(found[0]["w"])).sum() == 1


def test_examples_that_read_complete_sums_are_refused_with_the_operation() -> None:
    """A microbatch would wait for all others at every layer."""

    def forward(params: Any, x: Any) -> Any:
        def one(h: Any, p: Any) -> Any:
            h = layer(h, p)[0]
            return h / jnp.sqrt((h * h).sum()), None

        return jax.lax.scan(one, x, params)[0]

    with pytest.raises(ProgramError) as refused:
        rd.pipeline(forward, (layers(200), X), {"x": 0}, Layout(1, 1, 2, 2))
    assert re.search(
        r"its steps cannot work on parts of the examples: in a step, \S+test_fission.py:\d+: operation 'div': it reads "
        "a sum over all examples beside examples, so microbatches would wait for each other",
        str(refused.value),
    )


def test_examples_that_read_a_result_of_the_step_before_are_refused() -> None:
    def forward(params: Any, x: Any) -> Any:
        def one(carry: Any, p: Any) -> Any:
            h, scale = carry
            h = layer(h * scale, p)[0]
            return (h, 1 / jnp.sqrt(1 + (h * h).sum())), None

        return jax.lax.scan(one, (x, jnp.float32(1)), params)[0]

    with pytest.raises(ProgramError) as refused:
        rd.pipeline(forward, (layers(200), X), {"x": 0}, Layout(1, 1, 2, 2))
    assert re.search(
        r"in a step, \S+:\d+: operation 'mul': it reads a sum over all examples beside examples", str(refused.value)
    )
