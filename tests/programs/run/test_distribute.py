"""Functions distributed: what they compute, what they receive, what they say."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from bench.programs.all import cases
from examples import transformer
from redistrib.errors import CutError, CutInnerFactorError, MemoryLimitError, NoCombinerError, ProgramError
from redistrib.explain.profiling.inspect import inspect
from tests.messages import exactly
from tests.programs.run import models

BATCH, ZERO = transformer.BATCH, transformer.ZERO
MEGATRON, SEQUENCES = rd.along("t", models.MEGATRON), transformer.SEQUENCES
KINDS = {  # of moves, by what their plans end with
    "data": {"all_reduce": 14},
    "ZeRO": {"allgather": 14, "reduce_scatter": 13, "all_reduce": 1},  # the embedding twice: as it is, and turned
    "Megatron": {"all_reduce": 8},
    "Megatron, sequences": {"allgather": 8, "reduce_scatter": 8, "all_reduce": 6},
}


def agree(found: Any, wanted: Any, exact: bool = False) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if exact:
            np.testing.assert_array_equal(one, other)
        else:  # sums in another order: float32 has 24 bits, and a step's terms are below 1
            np.testing.assert_allclose(one, other, atol=1e-5)


def predicted(f: Any, dropped: int = 0) -> None:
    received = inspect(f.lower().compile()).received_bytes
    assert received + dropped == f.program.received_bytes == f.cost.received_bytes


@pytest.mark.parametrize(
    ("mesh", "schedule"),
    [
        ({"d": 2, "t": 4}, [rd.along("d", {"x": 0}), rd.along("t", {"w1": 1, "w2": 0})]),
        ({"d": 8}, [rd.along("d", {"x": 0}), rd.along("d", {"params": "first"})]),
        pytest.param({"d": 8}, [rd.along("d", {"x": 0})], marks=pytest.mark.long),
        pytest.param({"d": 8}, [rd.along("d", {"w1": 1, "w2": 0})], marks=pytest.mark.long),
    ],
    ids=["both", "zero", "data", "tensor"],
)
def test_an_mlp_and_a_step_of_it_are_exact(mesh: Any, schedule: Any) -> None:
    x, y = models.whole(16, 8), models.whole(16, 16)
    for function, args in ((models.mlp, (models.MLP_PARAMS, x)), (models.sgd, (models.MLP_PARAMS, x, y))):
        f = rd.distribute(function, args, mesh, schedule=schedule, machine="exact")
        agree(f(*args), function(*args), exact=True)
        predicted(f)


def sorts(name: str) -> Any:
    """A way of training; those that take long to compile are for the long run."""
    return name if name == "Megatron, sequences" else pytest.param(name, marks=pytest.mark.long)


@pytest.mark.parametrize("name", [sorts(name) for name in transformer.WAYS])
def test_a_training_step_of_a_transformer(name: str) -> None:
    """Forward, loss, backward and AdamW, whose division by a gradient's own size is kept from making noise large."""
    mesh, schedule = transformer.WAYS[name]
    optimizer = optax.adamw(1e-3, eps=1e-3)
    step, params = transformer.training(optimizer), transformer.init(jax.random.key(0))
    args = (params, optimizer.init(params), models.TOKENS[:, :-1], models.TOKENS[:, 1:])
    f = rd.distribute(step, args, mesh, schedule=schedule, machine="exact")
    agree(f(*args), jax.jit(step)(*args))
    predicted(f)
    assert f.opaque == ()
    if name in KINDS:
        last = Counter(move.plan.steps[-1].kind for move in f.program.moves if move.plan)
        assert last == KINDS[name], last


@pytest.mark.long
@pytest.mark.parametrize("name", list(transformer.WAYS))
def test_a_training_step_with_scan_recomputation_dropout_and_clipping(name: str) -> None:
    mesh, schedule = transformer.WAYS[name]
    below = rd.along("t", {weight: dim + 1 for weight, dim in models.MEGATRON.items()})  # the layers' own dimension
    schedule = [below if tactic == transformer.MEGATRON else tactic for tactic in schedule]
    params, tokens = models.stacked(models.init()), models.TOKENS
    args = (params, models.state_of(params), tokens[:, :-1], tokens[:, 1:], jax.random.key(7))
    f = rd.distribute(models.step_by_scan, args, mesh, schedule=schedule, machine="exact")
    agree(f(*args), jax.jit(models.step_by_scan)(*args))
    predicted(f)
    assert f.opaque == ()


def test_megatron_adds_up_twice_a_layer_each_way() -> None:
    params, tokens = models.init(1), models.TOKENS
    args = (params, tokens[:, :-1], tokens[:, 1:])
    f = rd.distribute(jax.grad(models.loss), args, {"t": 8}, schedule=[MEGATRON], machine="exact")
    kinds = [[step.kind for step in move.plan.steps] for move in f.program.moves if move.plan]
    assert kinds == [["all_reduce"]] * 4


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    q, k, v = (jnp.einsum("bse,ehd->bhsd", x, w) for w in (wq, wk, wv))
    mixed = jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(jnp.einsum("bhsd,bhtd->bhst", q, k)), v)
    return jnp.einsum("bhsd,hde->bse", mixed, wo)


def test_attention_by_heads_moves_once_before_the_last_product() -> None:
    """The thesis's own schedule, B=8, S=512, E=1024, H=16 on 4 devices: 12.58 MB, where all-reducing takes 100.66."""
    form = jax.ShapeDtypeStruct
    weight = form((1024, 16, 64), np.float32)
    args = (form((8, 512, 1024), np.float32), weight, weight, weight, form((16, 64, 1024), np.float32))
    heads = rd.along("p", {"wq": 1, "wk": 1, "wv": 1})
    f = rd.distribute(attention, args, {"p": 4}, schedule=heads, machine="exact")
    assert f.program.received_bytes == 100_663_296
    both = [heads, rd.work("p", {"dot_general_5": "m1"})]
    f = rd.distribute(attention, args, {"p": 4}, schedule=[both], machine="exact")
    moving = [move for move in f.program.moves if any(move.plan.received)]
    assert [[step.kind for step in move.plan.steps] for move in moving] == [["alltoall"]]
    assert f.program.received_bytes == 12_582_912


# ------------------------------------------------------------------------------------------ shardings


def test_arguments_and_results_are_placed_as_asked() -> None:
    x, w = models.whole(8, 16), models.whole(16, 24)
    f = rd.distribute(
        lambda x, w: {"y": x @ w}, (x, w), {"a": 2, "b": 4}, in_shardings=(P("a"), P(None, "b")),
        out_shardings={"y": P("b", "a")}, machine="exact",
    )  # fmt: skip
    found = f(x, w)["y"]
    assert found.sharding.spec == P("b", "a") == f.out_shardings["y"].spec
    assert f.in_shardings[0].spec == P("a", None)
    np.testing.assert_array_equal(found, x @ w)
    predicted(f)


def test_arguments_and_results_are_placed_by_named_shardings() -> None:
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows, both = NamedSharding(mesh, P("a")), NamedSharding(mesh, P("b", "a"))
    x = models.whole(8, 16)
    f = rd.distribute(lambda x: x * 2, (x,), mesh, in_shardings=(rows,), out_shardings=both, machine="exact")
    assert (f.in_shardings[0].spec, f.out_shardings.spec) == (P("a", None), P("b", "a"))
    np.testing.assert_array_equal(f(x), x * 2)


def test_a_function_of_name_and_shape_says_which_dimension_is_cut() -> None:
    asked = []

    def last(name: str, shape: tuple[int, ...]) -> int | None:
        asked.append((name, shape))
        return len(shape) - 1 if shape[-1] % 4 == 0 else None

    params = {"even": models.whole(3, 8), "odd": models.whole(8, 3)}
    f = rd.distribute(lambda params: params, (params,), {"d": 4}, schedule=rd.along("d", {"params": last}))
    assert asked == [("params/even", (3, 8)), ("params/odd", (8, 3))]
    assert {value.name: str(value.type) for value in f.program.inputs} == {
        "params/even": "[3, 2{d}8]",
        "params/odd": "[8, 3]",
    }


def test_what_reads_an_input_decides_how_it_begins() -> None:
    f = rd.distribute(models.sgd, (models.MLP_PARAMS, models.whole(16, 8), models.whole(16, 16)), {"d": 4},
                      schedule=rd.along("d", {"x": 0}))  # fmt: skip
    forms = {value.name: str(value.type) for value in f.program.inputs}
    assert forms["x"] == "[4{d}16, 8]"
    assert forms["y"] == "[4{d}16, 16]"
    assert forms["params/w1"] == "[8, 32]"


def test_a_function_without_cuts_runs_everywhere() -> None:
    f = rd.distribute(jnp.sin, (models.whole(4),), {"d": 4})
    np.testing.assert_allclose(f(models.whole(4)), np.sin(models.whole(4)), atol=1e-6)
    assert not f.program.moves


def test_the_table_has_lines_cuts_plans_and_totals() -> None:
    f = rd.distribute(models.mlp, (models.MLP_PARAMS, models.whole(16, 8)), {"d": 8},
                      schedule=rd.along("d", {"w1": 1, "w2": 0}), machine="exact")  # fmt: skip
    lines = str(f.program).splitlines()
    (product,) = (line for line in lines if line.startswith(" dot_general_1 "))
    assert "models.py:" in product
    assert "k0 by d" in product
    (move,) = (line for line in lines if "all_reduce" in line)
    assert "14,336" in move
    assert any(line.startswith(" total") and "14,336" in line for line in lines)
    assert lines[-1].endswith(f"at most {f.memory:,} bytes on a device")


def test_a_program_is_drawn(tmp_path: Any) -> None:
    f = rd.distribute(models.mlp, (models.MLP_PARAMS, models.whole(16, 8)), {"d": 8},
                      schedule=rd.along("d", {"w1": 1, "w2": 0}))  # fmt: skip
    assert f.picture(tmp_path / "mlp.svg").read_text().count("dot_general") >= 2


# ------------------------------------------------------------------------------------------ choices


def test_a_choice_says_what_was_asked_and_what_was_taken() -> None:
    x, w = models.whole(8, 16), models.whole(16, 64)
    f = rd.distribute(lambda x, w: x @ w, (x, w), {"d": 8}, schedule=rd.along("d", {"x": 0, "w": 1}))
    (choice,) = f.choices
    assert (choice.operation, choice.axis, choice.taken) == ("dot_general", "d", "n0")
    assert " ".join(str(f).split()).endswith(f" dot_general, axis 'd': {choice.why}")
    assert choice.why == (
        "'m0' for 'x' (about 28,672 bytes to move); 'n0' for 'w' (about 3,584 bytes to move); the least was taken"
    )
    np.testing.assert_array_equal(f(x, w), x @ w)


def test_earlier_tactics_come_first() -> None:
    x, w = models.whole(8, 16), models.whole(16, 64)
    f = rd.distribute(lambda x, w: x @ w, (x, w), {"d": 8},
                      schedule=[rd.along("d", {"x": 0}), rd.along("d", {"w": 1})])  # fmt: skip
    assert [str(value.type) for value in f.program.inputs] == ["[1{d}8, 16]", "[16, 8{d}64]"]
    assert str(f.program.values[f.program.outputs[0]].type) == "[1{d}8, 64]"


def test_what_needs_a_dimension_whole_is_cut_along_another() -> None:
    def turned(x: Any) -> Any:
        return jnp.sort(jnp.cumsum(x, 1).T, 1).T

    x = models.whole(16, 24)
    f = rd.distribute(turned, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    assert [step.kind for move in f.program.moves for step in move.plan.steps] == ["alltoall"]
    (choice,) = f.choices
    assert choice.why == (
        "dimension 1 of 'transpose' is cut, and the operation needs it whole; 'd0' was cut instead, so that it is "
        "exchanged"
    )
    agree(f(x), turned(x), exact=True)
    predicted(f)


def test_keys_have_shardings_of_keys() -> None:
    def draw(*keys: Any) -> Any:
        return jax.random.bits(keys[0], (8, 4)), jax.random.split(keys[1])

    keys = (jax.random.key(0), jax.random.key(1))
    f = rd.distribute(draw, keys, {"d": 8}, schedule=rd.work("d", {"random_bits": "d0"}))
    assert f.in_shardings[0].spec == P()
    bits, new = f(*jax.device_put(keys, f.in_shardings))
    np.testing.assert_array_equal(bits, draw(*keys)[0])
    assert (jax.random.key_data(new) == jax.random.key_data(draw(*keys)[1])).all()
    assert [value.name for value in f.program.inputs] == ["arg0", "arg1"]


@dataclass(frozen=True)
class Device:
    """A device of JAX, as far as planning looks at one."""

    id: int
    platform: str
    process_index: int = 0
    device_kind: str = ""


@pytest.mark.parametrize(("platform", "preset"), [("tpu", "tpu"), ("gpu", "gpu"), ("cpu", "cpu"), ("neuron", "gpu")])
def test_plans_are_for_the_platform_of_the_mesh_and_for_gpus_if_it_has_no_preset(platform: str, preset: str) -> None:
    on = jax.sharding.Mesh(np.array([Device(k, platform) for k in range(4)]), ("d",))
    args = (models.whole(8, 16), models.whole(16, 4))

    def placed(cost_model: str | None) -> Any:
        return rd.distribute(jnp.dot, args, on, schedule=rd.along("d", {"b": 0}), machine=cost_model)

    found = placed(None)
    assert str(found) == str(placed(preset))
    assert found.cost.seconds == rd.simulate(found.program, preset).seconds


@pytest.mark.parametrize("within", [jax.jit, jax.checkpoint, lambda f: jax.jit(jax.jit(f))])
def test_tiles_of_what_a_function_inside_closes_over(within: Any) -> None:
    weight = np.arange(16, dtype=np.float32).reshape(4, 4)
    inner = within(lambda x: x @ weight + weight)
    for schedule in ([rd.along("b", {"x": 1})], [rd.along("a", {"x": 0})]):
        f = rd.distribute(lambda x: inner(inner(x)), (weight,), {"a": 2, "b": 2}, schedule=schedule)
        assert [value.name for value in f.program.inputs] == ["x", "constant.0"]
        agree(f(weight), inner(inner(weight)))


def test_what_a_function_closes_over_is_placed_too() -> None:
    """Arrays as they are, and keys of random numbers as the integers that they are made of."""
    table, hidden = jnp.asarray(models.whole(16, 4)), jax.random.key(3)

    def closed(key: Any, x: Any) -> Any:
        return x @ table, jax.random.bits(hidden, (8,)) + jax.random.bits(key, (8,))

    args = (jax.random.key(5), models.whole(8, 16))
    f = rd.distribute(closed, args, {"d": 4}, schedule=rd.along("d", {"x": 0}))
    assert [value.name for value in f.program.inputs] == ["key", "x", "constant.0", "constant.1"]
    agree(f(*args), closed(*args), exact=True)


@pytest.mark.parametrize("fill", [0, 7])
def test_what_fills_in_a_number_takes_no_summands(fill: int) -> None:
    def picked(x: Any, w: Any, k: Any) -> Any:
        return jnp.take(x @ w, k, axis=0, mode="fill", fill_value=fill)

    table, weights = (models.whole(*shape).astype(np.int32) for shape in ((8, 16), (16, 4)))
    args = (table, weights, np.array([1, 9, 3], np.int32))
    f = rd.distribute(picked, args, {"d": 4}, schedule=rd.along("d", {"w": 0}), machine="exact")
    agree(f(*args), picked(*args), exact=True)
    assert (f.program.values[f.program.moves[0].value].type.global_shape == (3, 4)) == (fill == 0)


def test_a_barrier_of_several_shapes() -> None:
    def behind(x: Any, w: Any) -> Any:
        return jnp.dot(*jax.lax.optimization_barrier((x, w)))

    x, w = models.whole(8, 16), models.whole(16)
    f = rd.distribute(behind, (x, w), {"d": 8}, schedule=rd.along("d", {"x": 0}))
    agree(f(x, w), behind(x, w), exact=True)
    assert not f.program.moves


def fused(x: Any, w: Any) -> Any:
    q, k, v = jnp.moveaxis((x @ w).reshape(4, 8, 3, 4, 8), 2, 0)
    return jnp.einsum("bshd,bthd->bhst", q, k), v


def test_fused_projections_say_how_to_take_them_apart() -> None:
    args = (models.whole(4, 8, 32), models.whole(32, 96))
    f = rd.distribute(fused, args, {"t": 4}, schedule=rd.along("t", {"w": 1}))
    (loss,) = [choice for choice in f.choices if "reshape to" in choice.why]
    assert "reshape to (4, 8, 3, 4, 8)" in loss.why
    with pytest.raises(
        CutInnerFactorError, match=r"test_distribute.py:\d+: operation 'reshape'.*reshape to \(4, 8, 3, 4, 8\)"
    ):
        rd.distribute(fused, args, {"t": 4}, schedule=rd.work("t", {"reshape": "f3"}))


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (rd.along("d", {"z": 0}), "array 'z': no argument is called so; there are 'x', 'w'"),
        (rd.along("d", {"x": 2}), "array 'x': there is no dimension 2; its shape is [8, 12]"),
        (
            rd.along("d", {"x": "frist"}),
            "array 'x': 'frist' is no dimension for axis 'd'; give a number, 'first' or None",
        ),
        (
            rd.along("d", {"x": lambda *_: "0"}),
            "array 'x': '0' is no dimension for axis 'd'; give a number, 'first' or None",
        ),
        (rd.work("d", {"conv": "n"}), "operation 'conv': there is no such operation, by name or by source line"),
        (rd.work("d", {"dot_general": "q"}), "operation 'dot_general': no iteration dimension 'q'; it has m0, k0, n0"),
        (rd.work("d", {"cumsum": "d1"}), "operation 'cumsum': no iteration dimension 'd1'; it has d0"),
        ({"x": 0}, "'x' is no tactic; write rd.along(axis, {argument: dimension})"),
        (
            [rd.along("d", {"x": 0}), rd.along("d", {"x": 1})],
            "array 'x': axis 'd' is to cut both dimension 0 and dimension 1; name one of them, or cut the other along "
            "another axis",
        ),
    ],
)
def test_schedules_that_make_no_sense(schedule: Any, says: str) -> None:
    args = (models.whole(8, 12), models.whole(12, 16))
    with pytest.raises(CutError) as caught:
        rd.distribute(lambda x, w: jnp.cumsum(x @ w, 1), args, {"d": 8}, schedule=schedule)
    place, _, _ = str(caught.value).rpartition(f"{says}")
    assert str(caught.value) == f"{place}{says}"
    assert not place or f"{Path(__file__).name}:" in place


@pytest.mark.parametrize(("count", "more"), [(12, ""), (13, " and 1 more"), (15, " and 3 more")])
def test_a_dozen_arguments_are_named(count: int, more: str) -> None:
    tree = {f"w{k:02}": models.whole(4) for k in range(count)}
    with pytest.raises(CutError) as caught:
        rd.distribute(lambda tree: tree, (tree,), {"d": 2}, schedule=rd.along("d", {"gone": 0}))
    named = ", ".join(f"'tree/w{k:02}'" for k in range(12))
    assert str(caught.value) == f"array 'gone': no argument is called so; there are {named}{more}"


def test_the_first_dimension_of_what_is_cut_already() -> None:
    args = (models.whole(8, 16), models.whole(16, 16))
    tactics = [rd.along("d", {"w": 1}), rd.along("d", {"w": "first"})]
    f = rd.distribute(lambda x, w: x @ w, args, {"d": 8}, schedule=tactics)
    assert [dim.axes for dim in f.program.inputs[1].type.dims] == [(), ("d",)]


def test_results_that_nothing_combines() -> None:
    x = models.whole(8, 16)
    rules = {"reduce_prod": lambda equation: equation.nest({"i": 8, "j": 16}, [["i", "j"]], [["i"]])}
    with pytest.raises(NoCombinerError, match=r"test_distribute.py:\d+: operation 'reduce_prod', array 'out'"):
        rd.distribute(
            lambda x: jnp.prod(x, 1), (x,), {"d": 8}, schedule=rd.work("d", {"reduce_prod": "j"}), rules=rules
        )


def test_operations_without_a_rule_are_listed_and_cannot_be_cut() -> None:
    def function(x: Any) -> Any:
        return jax.pure_callback(lambda x: x * 8, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    x = models.whole(8, 16)
    f = rd.distribute(function, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}))
    ((name, source, why),) = f.opaque
    assert (name, why) == ("pure_callback", "no rule for pure_callback")
    assert " ".join(str(f).split()).endswith("is run whole by every device: no rule for pure_callback")
    assert f.cost.flops == 0  # nothing is known of what it computes
    assert "test_distribute.py:" in source
    assert [choice.why for choice in f.choices if choice.operation == "pure_callback"] == [
        "dimension 0 of 'x' is cut, and the operation needs it whole: no rule for pure_callback"
    ]
    np.testing.assert_array_equal(f(x), x * 8)
    with pytest.raises(
        CutError, match=r"operation 'pure_callback': no rule for pure_callback, so every device runs all of it"
    ):
        rd.distribute(function, (x,), {"d": 8}, schedule=rd.work("d", {"pure_callback": "i"}))


def test_a_memory_limit_moves_again_and_then_says_what_fits() -> None:
    params = {f"w{k}": models.whole(64, 64) / 64 for k in range(6)}

    def function(params: Any, x: Any) -> Any:
        return jax.grad(lambda p: jnp.sum(forward(p, x)))(params)

    def forward(p: Any, x: Any) -> Any:
        for k in range(6):
            x = jnp.tanh(jnp.sin(jnp.cos(x @ p[f"w{k}"])))
        return x

    args = (params, models.whole(8, 64))
    schedule = [rd.along("d", {"x": 0}), rd.along("d", {"params": 0})]

    def placed(limit: int | None) -> Any:
        return rd.distribute(
            function, args, {"d": 8}, schedule=schedule, out_shardings=P("d"), machine="exact", memory_limit=limit
        )

    free = placed(None)
    tight = placed(free.memory * 3 // 4)
    assert tight.memory <= free.memory * 3 // 4
    assert tight.program.received_bytes > free.program.received_bytes
    agree(tight(*args), function(*args))
    predicted(tight)
    found = tight.lower().compile().memory_analysis()
    assert found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes <= tight.memory
    with pytest.raises(
        MemoryLimitError,
        match=exactly(
            f"function distributed so takes {tight.memory:,} bytes on a device at the least, more than "
            "the limit of 1,000; cut more arrays, or cut them further"
        ),
    ) as caught:
        placed(1000)
    assert caught.value.least == tight.memory


A, B = models.whole(8, 16), models.whole(16)
OTHERS = "and the function was distributed for"


@pytest.mark.parametrize(
    ("args", "argument", "why"),
    [
        ((models.whole(4, 16), [B]), "x", f"it is float32[4, 16], {OTHERS} float32[8, 16]; distribute it for this one"),
        ((A, [B.astype(np.int8)]), "y/0", f"it is int8[16], {OTHERS} float32[16]; distribute it for this one"),
        (("s", [B]), "x", "it is 's', which is no array; give one of float32[8, 16]"),
        ((A, [object]), "y/0", "it is <class 'object'>, which is no array; give one of float32[16]"),
        ((np.ma.masked_array(A, A > 0), [B]), "x", "it is a masked array, and JAX has none; give .filled()"),
        ((A, [[1, "a"]]), "y", None),
        ((A, [None]), "y", None),
        ((A, (B,)), "y", f"its structure is PyTreeDef((*,)), {OTHERS} PyTreeDef([*]); distribute it for this one"),
        ((A,), "", "it takes 2 arguments, got 1"),
        ((A, [B], B), "", "it takes 2 arguments, got 3"),
        ((), "", "it takes 2 arguments, got 0"),
    ],
)
def test_other_arguments_than_it_was_distributed_for(args: Any, argument: str, why: str | None) -> None:
    f = rd.distribute(lambda x, y: x + y[0], (A, [B]), {"d": 2}, schedule=rd.along("d", {"x": 0}))
    with pytest.raises(ProgramError, match=None if why is None else re.escape(why)) as caught:
        f(*args)
    assert (caught.value.operation, caught.value.array, caught.value.rule) == ("<lambda>", argument, "Arguments")
    with pytest.raises(ProgramError):
        f.lower(*args or [A])


@pytest.mark.parametrize(
    ("args", "argument", "why"),
    [
        (("abc", [B]), "x", "it is 'abc', which is no array; give one, or bind the value with functools.partial"),
        ((A, [object]), "y/0", "it is <class 'object'>, which is no array"),
        ((A, [B, {"a": np.array(["b"])}]), "y/1/a", "which is no array"),
        ((A, [2**70]), "y/0", "it is 1180591620717411303424, which is no array"),
        ((np.ma.masked_array(A, A > 0), [B]), "x", "it is a masked array, and JAX has none; give .filled()"),
    ],
)
def test_an_argument_that_is_no_array_is_named(args: Any, argument: str, why: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(why)) as caught:
        rd.distribute(lambda x, y: x + y[0], args, {"d": 2})
    assert (caught.value.array, caught.value.rule) == (argument, "Arguments")
    with pytest.raises(TypeError, match="of its own"):  # what the function raises is the caller's
        rd.distribute(_raises, (A,), {"d": 2})


def _raises(x: Any) -> None:
    raise TypeError("of its own")


def test_a_shape_is_lowered_for_and_not_computed_with() -> None:
    f = rd.distribute(lambda x: x + 1, (A,), {"d": 2}, schedule=rd.along("d", {"x": 0}))
    shape = jax.ShapeDtypeStruct(A.shape, A.dtype)
    assert f.lower(shape)
    with pytest.raises(ProgramError, match=re.escape("which has no elements; give an array")):
        f(shape)


@pytest.mark.parametrize(("axis", "size"), [("d", 4), ("e", 2)])
def test_shardings_over_another_mesh_are_refused(axis: str, size: int) -> None:
    other = NamedSharding(jax.make_mesh((size,), (axis,), devices=jax.devices()[:size]), P(axis))
    for ends in ({"in_shardings": other}, {"out_shardings": other}):
        with pytest.raises(ProgramError, match=f"is over the mesh {{{axis}:{size}}}, and .* over {{d:2}}"):
            rd.distribute(lambda x: x + 1, (A,), {"d": 2}, **ends)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "unfused"), [("SpMV", 1.13), ("conjugate gradients", 2.0), ("k-means", 1.5)])
def test_memory_is_what_the_compiler_reports_within_a_tenth(name: str, unfused: float) -> None:
    """`unfused` times as much is predicted where nothing is fused: conjugate gradients would transpose their matrix."""
    f = cases("full")[name].distributed()
    found = f.lower().compile().memory_analysis()
    taken = found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes
    assert abs(f.compiled_memory / taken - 1) <= 0.1
    assert f.memory / taken == pytest.approx(unfused, rel=0.05)


def test_arguments_that_are_placed_are_not_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of `jax.device_put` for each of a thousand parameters takes longer than many a step."""

    def step(params: Any, key: Any) -> Any:
        return jax.tree.map(lambda p: p + jax.random.normal(key, p.shape), params), jax.random.fold_in(key, 1)

    params, key = [A, A + 1], jax.random.key(0)
    f = rd.distribute(step, (params, key), {"d": 2}, schedule=rd.along("d", {"params": 0}))
    first, second = f(params, key), jax.jit(step)(*jax.jit(step)(params, key))
    monkeypatch.setattr(jax, "device_put", lambda *_: pytest.fail("an argument is put again"))
    for found, wanted in zip(f(*first)[0], second[0], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    monkeypatch.undo()
    for found, wanted in zip(f([np.asarray(first[0][0]), first[0][1]], key)[0], second[0], strict=True):
        assert found.shape == wanted.shape


@pytest.mark.parametrize("first", ["jit", "jit of grad", "scan"])
def test_captured_arrays_of_a_first_call_under_jit_serve_later_calls(first: str) -> None:
    """They are placed on the devices once; a trace that is over has no values."""
    f = rd.distribute(lambda x: jnp.tanh(x @ B[:, None]), (A,), {"d": 2}, schedule=rd.along("d", {"x": 0}))
    ways = {
        "jit": lambda: jax.jit(f)(A),
        "jit of grad": lambda: jax.jit(jax.grad(lambda x: f(x).sum()))(A),
        "scan": lambda: jax.lax.scan(lambda x, _: (f(x) + x, None), A, None, length=2)[0],
        "eager": lambda: f(A),
    }
    ways[first]()
    for way in ways.values():
        way()
    np.testing.assert_allclose(f(A), np.tanh(A @ B[:, None]), rtol=1e-6)
