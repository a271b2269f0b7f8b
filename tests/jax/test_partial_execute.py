"""Plans whose tiles are summands, on real arrays: sums, order, rounding, types under jit, derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import adding
from redistrib.errors import PartialTypeError, ReductionError, SourceArrayError, SpecError, TracedError
from redistrib.explain.profiling.inspect import inspect
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import spec_entries
from redistrib.plans.reference import run, scatter
from redistrib.plans.steps import ReduceExchange
from redistrib.plans.verify import verify
from redistrib.synthesis.partial import sources
from redistrib.synthesis.problem import Problem
from tests.jax.summands import check, integral, mesh_of
from tests.messages import exactly
from tests.plans.hand import place, plan
from tests.plans.hand_partial import PARTIAL

GRID = {"x": 4, "y": 2}


def on_grid(source: str, target: str, **options: Any) -> rd.Plan:
    return rd.synthesize(source, target, GRID, machine="exact", **options)


# ------------------------------------------------------------------------------------------------- steps


def test_steps_by_hand() -> None:
    made = [integral(make()) for make in PARTIAL.values()]
    for mesh in dict.fromkeys(each.source_mesh for each in made):
        check([each for each in made if each.source_mesh == mesh])


def pulled(source: str, target: str, mesh: str, order: str = "any") -> rd.Plan:
    ((step, _),) = sources.pull_exchanges(Problem.plain(place(source, mesh), place(target, mesh)), order == "fixed")
    return verify(replace(integral(plan(source, target, mesh, step)), order=order))


UNEVEN = [
    ("[6] sum{x}", "[6] sum{y}"),
    ("[6] sum{y}", "[6] sum{x}"),
    ("[3{x}6, 6] sum{y}", "[2{y}6, 6]"),
    ("[3{x}6] max{y}", "[2{y}6]"),
    ("[6, 6] sum{y}", "[3{x}6, 2{y}6]"),
    ("[3{x}6, 6] min{y}", "[6, 2{y}6]"),
    ("[] sum{y}", "[] sum{x}"),
    ("[] sum{x,y}", "[]"),
    ("[2{y}6] sum{x}", "[6]"),
]


def crowded(made: rd.Plan) -> rd.Plan:
    """The same in as few rounds as come of taking shares one by one, whatever their sizes."""
    (step,) = made.steps
    assert isinstance(step, ReduceExchange)
    rounds: list[int] = []
    busy: set[tuple[int, str, int]] = set()
    for src, dst in zip(step.shares.sender.tolist(), step.shares.receiver.tolist(), strict=True):
        ends = (("src", src), ("dst", dst))
        rounds.append(next(k for k in range(99) if not any((k, *end) in busy for end in ends)))
        busy |= {(rounds[-1], *end) for end in ends}
    return verify(replace(made, steps=(replace(step, shares=replace(step.shares, round=np.array(rounds))),)))


@pytest.mark.parametrize("schedule", ["overlap", "sequential"])
def test_pulled_summands_into_runs_of_any_length(schedule: str) -> None:
    """In place, and side by side in a fixed order; some devices add none, some boxes of a round are smaller."""
    plans = [crowded(pulled(*ends, "x=2,y=3", order)) for ends in UNEVEN for order in ("any", "fixed")]
    assert all(isinstance(each.steps[0], ReduceExchange) for each in plans)
    assert any(step.shares.mixed for each in plans for step in each.steps)  # type: ignore[union-attr]
    check(plans, schedule)


def test_many_summands(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are added one operation each."""
    monkeypatch.setattr(adding, "_UNROLLED", 8)
    made = rd.synthesize("[2, 24] sum{x}", "[2, 1{x}24]", {"x": 24}, dtype="int32", order="fixed")
    check([made])


# ------------------------------------------------------------------------------------------ order, rounding


def values(made: rd.Plan, dtype: Any, spread: int = 6) -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (made.before.summands, *made.shape)
    return np.array(rng.standard_normal(shape) * 10.0 ** rng.integers(-spread, spread, shape)).astype(dtype)


@pytest.mark.parametrize("target", ["[4{x}16, 4{y}8]", "[16, 8]"])
def test_a_fixed_order_gives_the_bits_of_the_reference_on_every_order_of_devices(target: str) -> None:
    made = on_grid("[16, 8] sum{x,y}", target, order="fixed")
    stack = values(made, np.float32)
    total = stack[0]
    for summand in stack[1:]:
        total = total + summand
    order = (5, 2, 7, 0, 1, 6, 3, 4)
    turned = rd.synthesize("[16, 8] sum{x,y}", target, Mesh(made.source_mesh.axes, order), order="fixed")
    for each, devices in ((made, None), (made, order), (turned, None)):
        move = rd.to_jax(each, mesh_of(each, devices), stacked=True)
        moved = move(jax.device_put(stack, move.source_sharding))
        assert np.asarray(moved).tobytes() == total.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_of_16_bits_are_rounded_once(dtype: str) -> None:
    """What travels has 16 bits; a sum in float32 of p summands is off by p halves of its own last place at most."""
    made = on_grid("[64, 8] sum{x,y}", "[64, 1{x,y}8]", dtype=dtype, order="fixed")
    assert made.accumulate == "float32"
    move = rd.to_jax(made, mesh_of(made), stacked=True)
    stack = values(made, jnp.dtype(dtype), spread=2)
    given = jax.device_put(stack, move.source_sharding)
    moved = np.asarray(move(given)).astype(np.float64)
    exact = stack.astype(np.float64).sum(axis=0)
    last_place = np.spacing(np.abs(exact).astype(jnp.dtype(dtype))).astype(np.float64)
    slack = 8 * 2.0**-24 * np.abs(stack.astype(np.float64)).sum(axis=0)
    assert (np.abs(moved - exact) <= last_place / 2 + slack).all()
    tiles = run(made, scatter(stack, made.before))
    shards = sorted(move(given).addressable_shards, key=lambda shard: shard.device.id)
    assert all(np.asarray(a.data).tobytes() == b.tobytes() for a, b in zip(shards, tiles, strict=True))
    found = inspect(jax.jit(move).lower(given).compile())
    assert found.kinds == {"all-to-all": 1} and found.received_bytes == 2 * sum(made.received)


def test_rounds_that_add_as_they_come_are_rounded_once_too() -> None:
    plain = pulled("[6, 64] sum{x}", "[6, 64] sum{y}", "x=2,y=3")
    made = replace(plain, dtype="bfloat16", itemsize=2, accumulate="float32")
    move = rd.to_jax(made, mesh_of(made), stacked=True)
    stack = values(made, jnp.bfloat16, spread=2)
    total = np.asarray(move(jax.device_put(stack, move.source_sharding))).astype(np.float32).sum(axis=0)
    assert np.array_equal(total.astype(jnp.bfloat16), stack.astype(np.float32).sum(axis=0).astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("dtype", "kind", "low", "high"),
    [("int8", "sum", -100, 100), ("int4", "sum", -7, 7), ("bool", "max", 0, 2), ("complex64", "sum", -9, 9),
     *(pytest.param(*row, marks=pytest.mark.long) for row in (
         ("uint16", "sum", 0, 60_000), ("bool", "min", 0, 2), ("float8_e4m3fn", "max", -9, 9),
         ("int8", "min", -100, 100), ("bfloat16", "max", -9, 9)))],
)  # fmt: skip
def test_element_types(dtype: str, kind: str, low: int, high: int) -> None:
    """Sums of integers wrap around."""
    numbers = np.random.default_rng(0).integers(low, high, (2, 16, 8)).astype(jnp.dtype(dtype))
    plans = [
        on_grid(source, target, dtype=dtype, order=order)
        for source, target in (
            (f"[4{{x}}16, 8] {kind}{{y}}", "[16, 1{x,y}8]"),
            (f"[16, 8] {kind}{{y}}", "[16, 8]"),
            (f"[16, 8] {kind}{{y}}", f"[16, 8] {kind}{{x}}"),
        )
        for order in ("any", "fixed")
    ]
    moves = [rd.to_jax(each, mesh_of(each), stacked=True) for each in plans]
    arrays = [jax.device_put(numbers, move.source_sharding) for move in moves]
    results = jax.jit(lambda xs: [move(x) for move, x in zip(moves, xs, strict=True)])(arrays)
    for each, result in zip(plans, results, strict=True):
        tiles = run(each, scatter(numbers, each.before))
        for shard in result.addressable_shards:
            tile = tiles[shard.device.id]
            assert np.asarray(shard.data).reshape(tile.shape).tobytes() == tile.tobytes(), repr(each)


# ----------------------------------------------------------------------------------- arrays that JAX calls unreduced


def unreduced(stack: np.ndarray, mesh: jax.sharding.Mesh, spec: P) -> jax.Array:
    """An array of summands, numbered along the axes in the order of their names."""
    first = P(tuple(sorted(spec.unreduced))[::-1], *spec_entries(spec))
    make = jax.shard_map(lambda slab: slab[0], mesh=mesh, in_specs=first, out_specs=spec, check_vma=False)
    return jax.jit(make)(jax.device_put(stack, NamedSharding(mesh, first)))


@pytest.fixture
def explicit() -> Iterator[jax.sharding.Mesh]:
    mesh = mesh_of(on_grid("[8]", "[8]"), kind=AxisType.Explicit)
    with jax.set_mesh(mesh):
        yield mesh


NUMBERS = np.arange(2 * 16 * 8, dtype=np.float32).reshape(2, 16, 8) % 97


def test_unreduced_arrays_go_in_and_come_out(explicit: jax.sharding.Mesh) -> None:
    array = unreduced(NUMBERS, explicit, P("x", None, unreduced={"y"}))
    scattered = rd.to_jax(on_grid("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]"), explicit)
    for move in (scattered, jax.jit(scattered)):
        assert np.array_equal(move(array), NUMBERS.sum(axis=0))
        assert move(array).sharding.is_equivalent_to(scattered.target_sharding, 2)
    found = inspect(jax.jit(scattered).lower(array).compile())
    assert found.kinds == {"reduce-scatter": 1, "all-to-all": 1} and found.received_bytes == 4 * 224


@pytest.mark.parametrize("dtype", ["int4", "uint2"])
def test_unreduced_arrays_of_packed_elements(explicit: jax.sharding.Mesh, dtype: str) -> None:
    """In eager calls their tiles are rows, under a sharding of which JAX forgets that elements are packed."""
    move = rd.to_jax(on_grid("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]", dtype=dtype), explicit)
    ones = [jax.device_put(jnp.ones((4, 8), dtype), device) for device in explicit.devices.flat]
    array = jax.make_array_from_single_device_arrays((16, 8), move.source_sharding, ones, dtype=jnp.dtype(dtype))
    for each in (move, move, jax.jit(move)):
        assert np.array_equal(np.asarray(each(array)), np.full((16, 8), 2).astype(jnp.dtype(dtype)))


def test_summands_along_one_axis_become_summands_along_another(explicit: jax.sharding.Mesh) -> None:
    """By JAX 0.10's own reshard the process ends."""
    turned = rd.to_jax(on_grid("[16, 8] sum{y}", "[16, 8] sum{x}"), explicit)
    array = unreduced(NUMBERS, explicit, P(None, None, unreduced={"y"}))
    for move in (turned, jax.jit(turned)):
        moved = move(array)
        assert moved.sharding.spec.unreduced == {"x"}
        parts = [np.asarray(moved.addressable_data(k)) for k in range(8)]
        assert np.array_equal(sum(parts[::2]), NUMBERS.sum(axis=0))
        assert all(np.array_equal(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True))


def test_the_gradient_of_a_sum_is_moved_and_never_added(explicit: jax.sharding.Mesh) -> None:
    source, target = "[4{x}16, 8] sum{y}", "[4{x}16, 4{y}8]"
    there = rd.to_jax(on_grid(source, target), explicit, reverse=on_grid(target, "[4{x}16, 8]"))
    array = unreduced(NUMBERS, explicit, P("x", None, unreduced={"y"}))
    weights = jnp.arange(8.0)
    for transform in (lambda f: f, jax.jit):
        gradient = transform(jax.grad(lambda x: (there(x) * weights).sum()))(array)
        assert gradient.sharding.spec.reduced == {"y"}
        assert np.array_equal(gradient, np.broadcast_to(np.arange(8.0), (16, 8)))
    cotangent = jax.device_put(NUMBERS[0], there.target_sharding)
    back = jax.jit(lambda x, ct: jax.vjp(there, x)[1](ct)[0]).lower(array, cotangent).compile()
    assert inspect(back).kinds == {"all-gather": 1}
    assert jax.jvp(there, (array,), (array,))[1].sharding.is_equivalent_to(there.target_sharding, 2)


def test_the_gradient_of_summands_made_of_an_array(explicit: jax.sharding.Mesh) -> None:
    source, target = "[4{x}16, 4{y}8]", "[4{x}16, 8] sum{y}"
    for reverse in (None, on_grid("[4{x}16, 8]", source)):
        there = rd.to_jax(on_grid(source, target), explicit, reverse=reverse)
        array = jax.device_put(NUMBERS[0], there.source_sharding)

        def loss(x: jax.Array, there: Any = there) -> jax.Array:
            return (jax.sharding.reshard(there(x), P("x", None)) * jnp.arange(8.0)).sum()

        gradient = jax.jit(jax.grad(loss))(array)
        assert gradient.sharding.is_equivalent_to(there.source_sharding, 2)
        assert np.array_equal(gradient, np.broadcast_to(np.arange(8.0), (16, 8)))
    move = jax.jit(there).lower(array).compile()
    assert inspect(move).kinds == {}


def test_what_has_no_derivative_says_so() -> None:
    made = on_grid("[16, 8] sum{y}", "[16, 8]")
    move = rd.to_jax(made, mesh_of(made), stacked=True)
    array = jax.device_put(NUMBERS, move.source_sharding)
    with pytest.raises(
        TracedError,
        match=exactly(
            "a plan on stacked partial sums has no derivative here; reduce the array inside the function instead"
        ),
    ):
        jax.grad(lambda x: move(x).sum())(array)


# -------------------------------------------------------------------------------------------------- refused


def test_what_cannot_be_done_is_refused(explicit: jax.sharding.Mesh) -> None:
    made = on_grid("[16, 8] sum{y}", "[16, 8]")
    with pytest.raises(
        SpecError,
        match=exactly(
            "[16, 8] sum{y} has partial sums along 'y', and JAX has them along Explicit axes alone; "
            "make the mesh by jax.make_mesh(..., axis_types=(AxisType.Explicit, ...)), or give all "
            "partial sums as a first dimension to redistrib.to_jax(..., stacked=True)"
        ),
    ):
        rd.to_jax(made, mesh_of(made))
    with pytest.raises(
        SpecError,
        match=exactly(
            "a partition spec that is unreduced over 'y' by the reduction 'max' cannot be said by "
            "both JAX and a distributed type; both know sums, so reduce these axes first"
        ),
    ):
        rd.to_jax(on_grid("[16, 8] max{y}", "[16, 8]"), explicit)
    move = rd.to_jax(made, explicit)
    whole = jax.device_put(NUMBERS[0], NamedSharding(explicit, P()))
    other = unreduced(NUMBERS, explicit, P("x", None, unreduced={"y"}))
    for array in (whole, other):
        got = array.sharding.spec
        starts = f"the plan starts from an array of sharding {P(None, None, unreduced={'y'})}"
        why = f"{starts} on mesh {{x:4, y:2}}, got {got} on mesh {{x:4, y:2}}; plan from where it is"
        with pytest.raises(SourceArrayError, match=exactly(why)):
            move(array)
        traced = P(None, None) if array is whole else got
        why = f"{starts}, got {traced}; move it with jax.sharding.reshard, or plan from where it is"
        with pytest.raises(SourceArrayError, match=exactly(why)):
            jax.jit(move)(array)
    back = rd.to_jax(made, explicit, reverse=on_grid("[16, 8]", "[16, 8] sum{y}"))
    array = unreduced(NUMBERS, explicit, P(None, None, unreduced={"y"}))
    with pytest.raises(
        PartialTypeError,
        match=exactly(
            "a plan for cotangents takes arrays whose tiles are parts of the array, and those of "
            "[16, 8] sum{y} are partial sums; reduce it first, for example with jax.lax.psum or MPI's "
            "Allreduce"
        ),
    ):
        jax.grad(lambda x: back(x).sum())(array)
    wide = on_grid("[16, 8] sum{y}", "[16, 8]", accumulate="float64")
    with pytest.raises(
        ReductionError,
        match=exactly("JAX makes no float64 unless jax_enable_x64 is set; set it, or add in another type"),
    ):
        rd.to_jax(wide, explicit)(array)


@pytest.mark.usefixtures("libtpu")
def test_the_tpu_compiler_takes_reductions() -> None:
    devices = np.array(topologies.get_topology_desc("v5e:2x4", platform="tpu").devices).reshape(4, 2)
    mesh = jax.sharding.Mesh(devices, ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    made = [
        rd.synthesize("[1024, 512] sum{x,y}", "[256{x}1024, 256{y}512]", GRID, order="any"),
        rd.synthesize("[1024, 512] sum{y}", "[1024, 512] sum{x}", GRID, dtype="bfloat16", order="fixed"),
    ]
    moves = [rd.to_jax(each, mesh, stacked=True) for each in made]
    given = [
        jax.ShapeDtypeStruct((each.before.summands, *each.shape), each.dtype, sharding=move.source_sharding)
        for each, move in zip(made, moves, strict=True)
    ]
    found = inspect(jax.jit(lambda a, b: (moves[0](a), moves[1](b))).lower(*given).compile())
    assert found.kinds == {"reduce-scatter": 1, "collective-permute": 1}
    assert found.received_bytes == sum(sum(each.received) * each.itemsize for each in made)
