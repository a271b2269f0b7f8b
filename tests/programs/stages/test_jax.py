"""JAX functions run in stages on 8 virtual devices: they compute what the function does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.stages.orders import PipelineTask, gpipe, interleaved, one_f_one_b
from tests.messages import exactly
from tests.programs.run import models
from tests.programs.stages.steps import ARGS, BATCH, PARAMS, deep, small, step

Layout = rd.Layout
LAYOUTS = [
    pytest.param(Layout(data=8), marks=pytest.mark.long),
    pytest.param(Layout(tensor=8), marks=pytest.mark.long),
    Layout(2, 2, 2, 4),
    Layout(2, 1, 4, 4, order=gpipe),
    Layout(2, 2, 2, 4, chunks=2, order=interleaved),
    Layout(4, 2, zero=1),
    pytest.param(Layout(4, 1, 2, 2, zero=2), marks=pytest.mark.long),
    Layout(2, 2, 2, 2, zero=3),
]


def same(found: Any, wanted: Any, atol: float = 0.0) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=atol)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: f"{one} zero {one.zero} chunks {one.chunks}")
def test_eight_devices_compute_what_one_does(layout: Any) -> None:
    f = rd.pipeline(step, ARGS, BATCH, layout)
    assert layout.devices == len(f.devices) == 8
    found, wanted = f(*ARGS), jax.jit(step)(*ARGS)
    assert float(abs(wanted[1])) > 100
    same(found, wanted)
    # What comes out goes in again as it is.
    again = zip(jax.tree.leaves(found[0]), f.program.inputs, strict=False)
    assert all(array.sharding.device_set == {f.devices[k] for k in value.place.devices} for array, value in again)
    same(f(found[0], *ARGS[1:]), jax.jit(step)(wanted[0], *ARGS[1:]))


def one_at_a_time(devices: int, microbatches: int, chunks: int) -> list[list[PipelineTask]]:
    return [[PipelineTask(p, m, back) for m in range(microbatches) for back in (False, True)] for p in range(devices)]


@pytest.mark.parametrize("order", [gpipe, one_f_one_b, one_at_a_time])
def test_every_order_computes_the_same(order: Any) -> None:
    f = rd.pipeline(step, ARGS, BATCH, Layout(1, 1, 4, 8, order=order))
    same(f(*ARGS), jax.jit(step)(*ARGS))


def test_new_parameters_go_in_without_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    from redistrib.programs.stages import pipelined

    f = rd.pipeline(step, ARGS, BATCH, Layout(2, 2, 2, 2, zero=3))
    params, _ = f(*ARGS)
    asked: list[int] = []
    move_tree = pipelined.move_tree
    monkeypatch.setattr(
        pipelined, "move_tree", lambda tree, *rest, **kw: asked.append(len(tree)) or move_tree(tree, *rest, **kw)
    )
    f(params, *ARGS[1:])
    assert sum(asked) == len(f.transfers)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(2, 2, 2, 2),
        pytest.param(Layout(1, 2, 2, 4, chunks=2, order=interleaved), marks=pytest.mark.long),
        pytest.param(Layout(2, 1, 4, 2, order=gpipe), marks=pytest.mark.long),
        pytest.param(Layout(4, 2, zero=1), marks=pytest.mark.long),
        pytest.param(Layout(4, 1, 2, 2, zero=2), marks=pytest.mark.long),
        pytest.param(Layout(2, 2, 2, 4, zero=3), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_transformer_with_its_optimizer(layout: Any) -> None:
    params = models.init(layout.pipeline * layout.chunks)
    args = (params, models.state_of(params), models.TOKENS[:, :-1], models.TOKENS[:, 1:])
    f = rd.pipeline(models.step, args, {"tokens": 0, "targets": 0}, layout)
    same(f(*args), jax.jit(models.step)(*args), atol=1e-5)  # sums in another order
    forms = {value.name: str(value.type) for value in f.program.inputs}
    if layout.tensor == 2 and layout.zero == 0:  # heads and columns, then rows, and the optimizer's state with them
        assert (forms["params/layers/0/wq"], forms["params/layers/0/wo"]) == ("[32, 4{t}8, 4]", "[4{t}8, 4, 32]")
        assert (forms["params/layers/0/up"], forms["params/layers/0/down"]) == ("[32, 64{t}128]", "[64{t}128, 32]")
        assert all(forms[f"state/m/{name[7:]}"] == form for name, form in forms.items() if name.startswith("params/l"))
    if layout.zero == 1:
        assert forms["state/m/layers/0/down"] == "[64{t}128, 8{d}32]"
    homes = {value.name: value.place for value in f.program.inputs}
    ends = [f.program.values[name] for name in f.program.outputs][:-1]
    assert [(end.type, end.place) for end in ends] == [(v.type, v.place) for v in f.program.inputs[: len(ends)]]
    assert with_their_parameters(homes)


def with_their_parameters(homes: dict[str, Any]) -> bool:
    """Whether the optimizer's state is where the parameters are that it is of."""
    own = {name[7:]: place for name, place in homes.items() if name.startswith("params/")}
    return all(homes[f"state/{kind}/{name}"] == place for kind in "mv" for name, place in own.items())


@pytest.mark.parametrize(("stages", "chunks", "layers"), [(2, 2, 4), (2, 2, 3), (2, 3, 6), (4, 2, 5)])
def test_the_state_of_an_optimizer_is_with_its_parameters_in_turns_too(stages: int, chunks: int, layers: int) -> None:
    """Of a vector at the start of a stage the gradient is made on the group before; its state is where it is itself."""
    params = models.init(layers)
    args = (params, models.state_of(params), models.TOKENS[:, :-1], models.TOKENS[:, 1:])
    layout = Layout(1, 1, stages, 4, chunks=chunks, order=interleaved)
    f = rd.pipeline(models.step, args, {"tokens": 0, "targets": 0}, layout)
    assert len({value.place for value in f.program.inputs}) == stages
    assert with_their_parameters({value.name: value.place for value in f.program.inputs})
    ends = [f.program.values[name] for name in f.program.outputs][:-1]
    assert [(end.type, end.place) for end in ends] == [(v.type, v.place) for v in f.program.inputs[: len(ends)]]


def dropped(w: Any, x: Any, key: Any) -> Any:
    """A bias made of nothing, a mask of every example, and bits that depend on where an element stands."""
    number = jnp.arange(x.shape[0], dtype=jnp.float32)[:, None]
    kept = jax.random.bernoulli(key, 0.5, x.shape)
    y = jnp.where(kept, x @ w + number, jnp.ones(x.shape[1]))
    return y, jnp.sum(y * kept)


@pytest.mark.parametrize("layout", [Layout(microbatches=4), Layout(2, 2, 1, 2), Layout(2, 1, 2, 4)], ids=str)
def test_constants_with_a_row_for_each_example_are_of_the_right_rows(layout: Any) -> None:
    args = (small(1, 8, 8), small(2, 16, 8), jax.random.key(3))
    f = rd.pipeline(dropped, args, {"x": 0}, layout)
    same(f(*args), dropped(*args))


def test_what_is_embedded_twice_gets_one_gradient() -> None:
    def tied(table: Any, tokens: Any) -> Any:
        def loss(table: Any) -> Any:
            return jnp.sum(jax.nn.relu(table[tokens] @ jnp.eye(8)) @ table.T)

        return jax.grad(loss)(table)

    args = (small(5, 8, 8), np.arange(8 * 3).reshape(8, 3) % 8)
    for layout in (Layout(1, 1, 2, 4), Layout(2, 2, 2, 2)):
        same(rd.pipeline(tied, args, {"tokens": 0}, layout)(*args), tied(*args))


def test_outputs_with_examples_are_joined_and_keys_come_back() -> None:
    def forward(params: Any, x: Any, key: Any) -> Any:
        return deep(params, x), jax.random.split(key)[1], x, 3.0

    args = (PARAMS, ARGS[1], jax.random.key(7))
    for layout in (Layout(2, 2, 2, 4), Layout(data=4)):
        made = rd.pipeline(forward, args, {"x": 0}, layout)(*args)
        wanted = forward(*args)
        same((made[0], made[2]), (wanted[0], wanted[2]))
        assert jax.random.key_data(made[1]).tolist() == jax.random.key_data(wanted[1]).tolist()
        assert float(made[3]) == 3.0


def test_arguments_may_lie_anywhere() -> None:
    mesh = Mesh(np.array(jax.devices()[4:12]), ("a",))
    far = jax.tree.map(lambda leaf: jax.device_put(leaf, NamedSharding(mesh, P("a"))), ARGS)
    f = rd.pipeline(step, ARGS, BATCH, Layout(2, 1, 2, 2), devices=jax.devices()[8:12])
    same(f(*far), jax.jit(step)(*ARGS))
    assert {device.id for leaf in jax.tree.leaves(f(*ARGS)) for device in leaf.devices()} == {8, 9, 10, 11}


def test_what_moves_a_value_is_said() -> None:
    f = rd.pipeline(step, ARGS, BATCH, Layout(1, 1, 2, 2))
    # Forward activations, and their gradients; inside one process tiles go as they are.
    assert [(each.source, each.target, each.bytes, each.by) for each in f.transfers] == [
        ((0,), (1,), 8 * 8 * 4, "device_put"),
        ((0,), (1,), 8 * 8 * 4, "device_put"),
        ((1,), (0,), 8 * 8 * 4, "device_put"),
        ((1,), (0,), 8 * 8 * 4, "device_put"),
    ]
    assert str(f).endswith("values sent between groups of devices: 4 by device_put")
    assert repr(f) == "Pipelined(step as pipeline 2, microbatches 2 on 2 devices)"


def test_a_mean_over_learned_weights_is_refused_at_its_line_and_both_ways_out_run() -> None:
    def total(params: Any, x: Any, mask: Any) -> Any:
        return (jnp.sum(deep(params, x) ** 2, -1) * mask).sum()

    def weight(params: Any, mask: Any) -> Any:
        return (mask * params[0][0].max() ** 2).sum()

    def mean(params: Any, x: Any, mask: Any) -> Any:
        return jax.value_and_grad(lambda params: total(params, x, mask) / weight(params, mask))(params)

    def over_the_weight(params: Any, x: Any, mask: Any) -> Any:
        weight_and_grad = jax.value_and_grad(weight)(params, mask)
        value, grads = jax.value_and_grad(total)(params, x, mask)
        count, slopes = weight_and_grad
        return value / count, jax.tree.map(lambda g, s: g / count - s * value / count**2, grads, slopes)

    def of_an_argument(params: Any, x: Any, mask: Any, count: Any) -> Any:
        return jax.value_and_grad(lambda params: total(params, x, mask) / count)(params)

    args = (PARAMS, ARGS[1], (np.arange(16) % 3 > 0).astype(np.float32))
    layout, batch = Layout(1, 1, 2, 2), {"x": 0, "mask": 0}
    said = (
        r"test_jax\.py:\d+: operation '\w+': it reads a sum over all examples beside examples, so microbatches would "
        r"wait for each other; combine the finished sums and gradients at the end \(the gradient of a sum, over the "
        r"count\), or compute this sum before the call and pass it as an argument without examples$"
    )
    with pytest.raises(ProgramError, match=said):
        rd.pipeline(mean, args, batch, layout)
    counted = (*args, args[2].sum())
    for function, given, wanted in (
        (over_the_weight, args, mean(*args)),
        (of_an_argument, counted, jax.value_and_grad(lambda p: total(p, *args[1:]) / args[2].sum())(PARAMS)),
    ):
        results = rd.pipeline(function, given, batch, layout)(*given)
        for found, one in zip(*map(jax.tree.leaves, (results, wanted)), strict=True):
            np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: rd.pipeline(step, ARGS, {"z": 0}, Layout()),
            (
                "array 'z': no argument is called so; there are 'params/0/0', 'params/0/1', 'params/1/0', "
                "'params/1/1', 'params/2/0', 'params/2/1', 'params/3/0', 'params/3/1', 'x', 'y'"
            ),
        ),
        (
            lambda: rd.pipeline(step, ARGS, {"x": 0}, Layout()),
            ("operation 'sub', array 'y': it has a row for each example, and is not named as an input with examples"),
        ),
        (
            lambda: rd.pipeline(step, ARGS, BATCH, Layout(64)),
            "layout data 64 takes 64 devices, and 24 are given",
        ),
        (
            lambda: rd.pipeline(step, ARGS, BATCH, Layout(2), devices=jax.devices()[:3]),
            "layout data 2 takes 2 devices, and 3 are given",
        ),
        (
            lambda: rd.pipeline(step, ARGS, BATCH, Layout())(PARAMS, ARGS[1], ARGS[2][:4]),
            (
                "operation 'step', array 'y': it is float32[4, 8], and the function was distributed for "
                "float32[16, 8]; distribute it for this one"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(ProgramError, match=exactly(why)):
        make()


def test_an_array_of_several_processes_is_not_cut_into_microbatches() -> None:
    made = rd.pipeline(step, ARGS, BATCH, Layout(microbatches=2))
    shared = Mock(spec=jax.Array, is_fully_addressable=False)
    why = (
        "operation 'step', array 'x': an array of several processes is not cut into microbatches; give every process "
        "the whole of it, as a NumPy array"
    )
    with pytest.raises(ProgramError, match=exactly(why)):
        made._microbatches("x", shared)
