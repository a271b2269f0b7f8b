"""Layers that are scanned, in stages: each takes a run of the steps, and holds and updates their weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.ir.program import Call, Compute, Loop
from redistrib.programs.stages.orders import gpipe, interleaved, one_f_one_b
from redistrib.programs.stages.stacks import LayerRuns
from tests.messages import exactly
from tests.programs.run import models
from tests.programs.stages.scans import BATCH, WIDTH, args_of, deep, layer, momentum, normal

Layout = rd.Layout
STEP = momentum(deep)


def checkpointed(params: Any, x: Any) -> Any:
    return deep(params, x, jax.checkpoint(layer))


def same(found: Any, wanted: Any, tolerance: float = 2e-6) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance)


def scans_of(f: Any) -> dict[int, int]:
    """For every stage the loops of its tasks."""
    programs = {id(op.program): op.program for op in f.program.ops if isinstance(op, Call)}
    found: dict[int, int] = {}
    for program in programs.values():
        loops = sum(isinstance(op, Loop) or (isinstance(op, Compute) and op.kind == "scan") for op in program.ops)
        stage = int("".join(filter(str.isdigit, program.name)))
        found[stage] = max(found.get(stage, 0), loops)
    return found


@pytest.mark.parametrize(
    ("layers", "forward", "layout", "runs"),
    [
        (4, deep, Layout(1, 1, 2, 4, order=gpipe), [2, 2]),
        (4, checkpointed, Layout(1, 1, 4, 2, order=one_f_one_b), [1, 1, 1, 1]),
        (8, deep, Layout(1, 1, 2, 4, chunks=2, order=interleaved), [2, 2, 2, 2]),
        (10, deep, Layout(1, 1, 4, 2, order=gpipe), [2, 3, 2, 3]),
        (160, deep, Layout(2, 1, 2, 2), [80, 80]),
        (160, checkpointed, Layout(1, 1, 4, 4), [40] * 4),
        pytest.param(160, deep, Layout(2, 1, 2, 2, zero=3), [80, 80], marks=pytest.mark.long),
    ],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_stages_take_runs_of_the_steps(layers: int, forward: Any, layout: Any, runs: list[int]) -> None:
    args, step = args_of(layers), momentum(forward)
    f = rd.pipeline(step, args, BATCH, layout)
    wanted = jax.jit(step)(*args)
    found = f(*args)
    same(found, wanted)
    same(f(*found[:2], *args[2:]), jax.jit(step)(*wanted[:2], *args[2:]))
    # A stage holds the weights of its layers and the optimizer's state for them, and no others.
    width = layout.data * layout.tensor
    for name in ("params/layers/w", "params/layers/b", "state/layers/w", "state/layers/b"):
        held = [value for value in f.program.inputs if value.name.startswith(f"{name}.")]
        assert [value.type.global_shape[0] for value in held] == runs
        assert [value.place.devices[0] // width for value in held] == [k % layout.pipeline for k in range(len(runs))]
    # Each run is one loop, forward and backward; activations and their gradients alone are sent.
    assert scans_of(f) == dict.fromkeys(range(len(runs)), 1)
    examples = len(args[2]) // layout.microbatches
    assert {each.bytes for each in f.transfers} == {examples * WIDTH * 4}
    assert len(f.transfers) == 2 * (len(runs) - 1) * layout.microbatches


def test_a_forward_pass_takes_runs_too() -> None:
    params, _, x, _ = args_of(160)
    f = rd.pipeline(deep, (params, x), {"x": 0}, Layout(1, 1, 4, 2))
    same(f(params, x), deep(params, x))
    assert [value.place.devices for value in f.program.inputs if "layers/w" in value.name] == [(0,), (1,), (2,), (3,)]


def test_the_program_does_not_grow_with_the_layers() -> None:
    few, many = (rd.pipeline(STEP, args_of(layers), BATCH, Layout(1, 1, 4, 4)) for layers in (8, 2048))
    assert len(few.program.ops) == len(many.program.ops)
    few_sizes, many_sizes = (sorted(len(one) for one in _programs(f)) for f in (few, many))
    assert few_sizes == many_sizes  # what runs at once may be listed in another order


def _programs(f: Any) -> list[Any]:
    return [op.program.ops for op in f.program.ops if isinstance(op, Call)]


def test_each_stage_holds_its_share() -> None:
    """Weights of 32 layers, and as much state of the optimizer, over four stages: a quarter each."""
    f = rd.pipeline(STEP, args_of(32), BATCH, Layout(1, 1, 4, 4))
    held = dict.fromkeys(range(4), 0)
    for value in f.program.inputs:
        held[value.place.devices[0]] += value.type.local_size if "layers" in value.name else 0
    assert set(held.values()) == {2 * 8 * (WIDTH * WIDTH + WIDTH)}


def test_new_parameters_go_in_without_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    from redistrib.programs.stages import pipelined

    for layers, kind in ((4, jax.Array), (5, LayerRuns)):
        args = args_of(layers)
        f = rd.pipeline(STEP, args, BATCH, Layout(1, 1, 2, 2))
        params, state, _ = f(*args)
        assert isinstance(params["layers"]["w"], kind)
        moved: list[int] = []
        monkeypatch.setattr(pipelined, "resharded", _counting(pipelined.resharded, moved))
        f(params, state, *args[2:])
        monkeypatch.undo()
        assert sum(moved) == len(f.transfers)


def _counting(move: Any, moved: list[int]) -> Any:
    def counted(arrays: Any, *rest: Any, **named: Any) -> Any:
        moved.append(len(arrays))
        return move(arrays, *rest, **named)

    return counted


def test_an_array_of_equal_runs_is_cut_over_the_stages() -> None:
    args = args_of(8)
    w = rd.pipeline(STEP, args, BATCH, Layout(2, 1, 2, 2))(*args)[0]["layers"]["w"]
    assert w.sharding.spec[0] == "stage" and dict(w.sharding.mesh.shape) == {"stage": 2, "d": 2}
    assert {shard.data.shape for shard in w.addressable_shards} == {(4, WIDTH, WIDTH)}


def test_runs_of_several_lengths_are_an_array_for_numpy() -> None:
    args = args_of(5)
    w = rd.pipeline(STEP, args, BATCH, Layout(1, 1, 2, 1))(*args)[0]["layers"]["w"]
    assert (w.shape, w.ndim, str(w.dtype)) == ((5, WIDTH, WIDTH), 3, "float32")
    assert repr(w) == "LayerRuns(float32[5, 8, 8], dimension 0 in 2 + 3)"
    assert np.asarray(w, np.float64).shape == (5, WIDTH, WIDTH)
    other = rd.pipeline(STEP, args, BATCH, Layout(1, 1, 3, 1))  # whose runs are others
    same(other({**args[0], "layers": {**args[0]["layers"], "w": w}}, *args[1:])[2], STEP(
        {**args[0], "layers": {**args[0]["layers"], "w": np.asarray(w)}}, *args[1:])[2])  # fmt: skip


@pytest.mark.parametrize(
    "layout",
    [
        Layout(1, 1, 2, 2),
        pytest.param(Layout(1, 1, 4, 2), marks=pytest.mark.long),
        pytest.param(Layout(2, 1, 2, 2), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_sums_that_the_layers_carry_are_those_of_all_runs(layout: Any) -> None:
    """Each layer adds to a loss of its own, and reads one scale: its gradient is a sum over layers of all stages."""

    def forward(params: Any, x: Any) -> Any:
        def body(carry: Any, p: Any) -> Any:
            h, extra = carry
            h = h + jnp.tanh(h @ p["w"] + p["b"]) * params["scale"]
            return (h, extra + jnp.sum(h * h, axis=0)), None

        h = x @ params["embed"]
        (h, extra), _ = jax.lax.scan(body, (h, jnp.zeros(WIDTH)), params["layers"])
        return h @ params["head"], jnp.sum(extra)

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            out, extra = forward(p, x)
            return jnp.sum((out - y) ** 2) + 0.01 * extra

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), value

    params, _, x, y = args_of(8)
    args = ({**params, "scale": normal(9, WIDTH)}, x, y)
    f = rd.pipeline(step, args, BATCH, layout)
    same(f(*args), jax.jit(step)(*args), 1e-5)
    assert scans_of(f) == dict.fromkeys(range(layout.pipeline), 1)


def test_what_combines_the_layers_combines_the_runs() -> None:
    """Clipping by the norm of all gradients, a largest weight, casts before the scan, weights sorted over layers."""

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            halves = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16).astype(jnp.float32), p)
            return jnp.mean((deep(halves, x) - y) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        new = jax.tree.map(lambda p, g: p - g / jnp.maximum(norm, 1.0), params, grads)
        b = params["layers"]["b"]
        return new, value, norm, jnp.max(b), jnp.sort(b, axis=0), jnp.transpose(b), b[3], jnp.arange(8.0) * b[:, 0]

    params, _, x, y = args_of(8)
    f = rd.pipeline(step, (params, x, y), BATCH, Layout(1, 1, 2, 2))
    same(f(params, x, y), jax.jit(step)(params, x, y), 1e-5)


def test_results_of_every_layer_are_joined() -> None:
    """Stacked results with examples, and backwards through the layers."""

    def forward(weights: Any, x: Any) -> Any:
        def body(h: Any, w: Any) -> Any:
            h = jnp.tanh(h @ w)
            return h, (h, jnp.sum(w))

        down, stacked = jax.lax.scan(body, x, weights)
        up, more = jax.lax.scan(body, down, weights, reverse=True)
        return up, stacked, more

    weights, x = normal(6, 9, 4, 4), normal(7, 8, 4)
    for layout in (Layout(2, 1, 2, 2), Layout(microbatches=4)):
        same(rd.pipeline(forward, (weights, x), {"x": 0}, layout)(weights, x), forward(weights, x))


def test_loops_over_time_and_keys_for_each_layer() -> None:
    """A loop over tokens stays a loop of its stage; keys of random numbers are cut over the layers as weights are."""

    def forward(params: Any, x: Any, key: Any) -> Any:
        def token(h: Any, row: Any) -> Any:
            return jnp.tanh(h @ params["again"] + row), None

        def body(carry: Any, of_layer: Any) -> Any:
            h, _ = carry
            w, key = of_layer
            return (jnp.where(jax.random.bernoulli(key, 0.5, (4,)), jnp.tanh(h @ w), h), key), None

        h = jax.lax.scan(token, jnp.zeros((x.shape[0], 4)), jnp.swapaxes(x, 0, 1))[0]
        (h, last), _ = jax.lax.scan(body, (h, key), (params["w"], jax.random.split(key, 6)))
        return h, jax.random.key_data(last)

    params = {"again": normal(1, 4, 4), "w": normal(2, 6, 4, 4)}
    x, key = normal(3, 8, 5, 4), jax.random.key(1)
    f = rd.pipeline(forward, (params, x, key), {"x": 0}, Layout(1, 1, 2, 2))
    same(f(params, x, key), forward(params, x, key))
    assert scans_of(f) == {0: 2, 1: 1}


def test_fewer_layers_than_stages_are_cut_between_their_operations() -> None:
    args = args_of(2)
    f = rd.pipeline(STEP, args, BATCH, Layout(1, 1, 4, 2))
    same(f(*args), jax.jit(STEP)(*args))


WHOLE = {"params/embed": None}


@pytest.mark.parametrize(
    "layout",
    [
        Layout(1, 2, 2, 2, tensor_dims=WHOLE),
        pytest.param(Layout(2, 2, 2, 2, zero=1, tensor_dims=WHOLE), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_tensor_parts_take_the_layers_of_a_stage_one_by_one(layout: Any) -> None:
    """Two matrices a layer, cut by columns and by rows; a stage holds the weights of its layers alone."""

    def forward(params: Any, x: Any) -> Any:
        def body(h: Any, p: Any) -> Any:
            return h + jnp.tanh(h @ p["up"]) @ p["down"], None

        return jax.lax.scan(body, x @ params["embed"], params["layers"])[0] @ params["head"]

    params, _, x, y = args_of(4)
    params["layers"] = {"up": normal(1, 4, WIDTH, 16) / 4, "down": normal(2, 4, 16, WIDTH) / 4}
    args = (params, jax.tree.map(np.zeros_like, params), x, y)
    step = momentum(forward)
    f = rd.pipeline(step, args, BATCH, layout)
    found, wanted = f(*args), jax.jit(step)(*args)
    same(found, wanted)
    same(f(*found[:2], x, y), jax.jit(step)(*wanted[:2], x, y))
    forms = {value.name: str(value.type) for value in f.program.inputs}
    assert {forms[f"params/layers/up.run{k}"] for k in (0, 1)} == {"[2, 8, 8{t}16]"}
    assert {forms[f"params/layers/down.run{k}"] for k in (0, 1)} == {"[2, 8{t}16, 8]"}
    assert {value.place.devices[0] for value in f.program.inputs if "layers" in value.name} == {0, layout.devices // 2}
    assert {each.bytes for each in f.transfers} == {8 // 2 * WIDTH * 4 * layout.tensor}


def test_rows_that_no_loop_reads_stay_together() -> None:
    """Two stages, and an array of two rows that one layer reads: it is no stack of layers."""

    def forward(params: Any, x: Any) -> Any:
        for own in params:
            x = jnp.tanh(x * own["scale"][0]) @ own["w"] + own["scale"][1]
        return x

    params = [{"scale": normal(k, 2, 4), "w": normal(k + 9, 4, 4)} for k in range(4)]
    x = normal(3, 8, 4)
    f = rd.pipeline(forward, (params, x), {"x": 0}, Layout(1, 1, 2, 2))
    same(f(params, x), forward(params, x))
    assert [value.name for value in f.program.inputs if "scale" in value.name] == [
        f"params/{k}/scale" for k in range(4)
    ]


def transformer() -> tuple[Any, ...]:
    """Four layers, recomputed in the backward pass, with dropout, clipping and AdamW."""
    params = models.stacked(models.init(4))
    return params, models.state_of(params), models.TOKENS[:, :-1], models.TOKENS[:, 1:], jax.random.key(0)


def test_layers_of_a_transformer_stay_loops() -> None:
    """The gradient of a row of a stacked array is padded: summands pass that in a loop."""
    f = rd.pipeline(models.step_by_scan, transformer(), {"tokens": 0, "targets": 0}, Layout(1, 1, 2, 2))
    assert scans_of(f) == {0: 1, 1: 1}


@pytest.mark.long
def test_a_transformer_by_scan_computes_the_same() -> None:
    args = transformer()
    f = rd.pipeline(models.step_by_scan, args, {"tokens": 0, "targets": 0}, Layout(2, 1, 2, 2))
    same(f(*args), jax.jit(models.step_by_scan)(*args), 1e-5)


def test_weights_that_a_loop_looks_up_are_refused_with_the_way_out() -> None:
    def forward(weights: Any, x: Any) -> Any:
        return jax.lax.fori_loop(0, 160, lambda k, h: jnp.tanh(h @ weights[k]), x)

    why = (
        "1 operations go forward, and there are 2 stages; take fewer, or let jax.lax.scan read stacked weights step by "
        "step (xs), for it is then cut into runs of steps"
    )
    with pytest.raises(ProgramError, match=exactly(why)):
        rd.pipeline(forward, (normal(1, 160, 4, 4), normal(2, 8, 4)), {"x": 0}, Layout(1, 1, 2, 2))


def auxiliary(dtype: Any) -> Any:
    """A step with a loss that every layer adds to, in what the scan carries."""

    def step(p: Any, x: Any) -> Any:
        def one(carry: Any, p: Any) -> Any:
            y = jnp.tanh(carry[0] @ p["w"] + p["b"])
            return (y, carry[1] + (y * y).sum()), None

        def loss(p: Any) -> Any:
            (out, total), _ = jax.lax.scan(one, (x, jnp.asarray(1.5, dtype)), p)
            return (out.astype(jnp.float32) ** 2).mean() + 1e-3 * total.astype(jnp.float32), total

        (_, total), grads = jax.value_and_grad(loss, has_aux=True)(p)
        return jax.tree.map(lambda p, g: p - (0.1 * g).astype(p.dtype), p, grads), total

    return step


@pytest.mark.parametrize("layout", [Layout(1, 1, 2, 4), Layout(2, 1, 2, 2), Layout(2, 2, 1, 2)], ids=str)
def test_a_sum_over_examples_that_layers_add_to_is_carried(layout: Any) -> None:
    """It begins at 1.5, which counts once, and not once for each replica and microbatch."""
    p, x = args_of(8)[0]["layers"], normal(6, 8, WIDTH)
    f = rd.pipeline(auxiliary(np.float32), (p, x), {"x": 0}, layout)
    same(f(p, x), jax.jit(auxiliary(np.float32))(p, x), 2e-5)
    assert scans_of(f) == dict.fromkeys(range(layout.pipeline), 1)
    assert not f.unrolled


def test_loops_that_are_unrolled_are_listed_with_the_reason() -> None:
    def turned(scales: Any, x: Any) -> Any:
        """A step hands on the examples along the other dimension."""
        return jax.lax.scan(lambda h, scale: (jnp.tanh(h.T * scale), None), x, scales)[0]

    scales, x = normal(5, 8), normal(6, 8, WIDTH)
    f = rd.pipeline(turned, (scales, x), {"x": 0}, Layout(1, 1, 2, 2))
    same(f(scales, x), turned(scales, x))
    (line,) = f.unrolled
    assert line.startswith("unrolled: scan of 8 steps, ")
    assert "'scan.run0': its steps cannot work on parts of the examples: they carry other examples than the" in line
    assert " ".join(str(f).split()).endswith(line)
    args = args_of(4)
    (line,) = rd.pipeline(STEP, args_of(3), BATCH, Layout(1, 1, 4, 2)).unrolled
    assert line.endswith(": its steps are fewer than 4 stages")
    asked = momentum(
        lambda params, x: jax.lax.scan(layer, x @ params["embed"], params["layers"], unroll=4)[0] @ params["head"]
    )
    assert not rd.pipeline(asked, args, BATCH, Layout(1, 2, 2, 2)).unrolled
