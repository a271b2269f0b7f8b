"""Plans where tiles are summands: right, and at the bound wherever tiles of one size can reach it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from bench.reachable import least_in_two_steps
from redistrib.cost.latency import KINDS, Latency, LatencyBandwidth
from redistrib.cost.paper import PaperCost
from redistrib.errors import DtypeError, MemoryLimitError, PartialTypeError, PlanFormError, ProfileError, ReductionError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.memory import scratch
from redistrib.plans.plan import Plan
from redistrib.plans.reference import run, scatter
from redistrib.plans.steps import AllReduce, Exchange, ReduceScatter
from redistrib.plans.verify import verify
from redistrib.synthesis import limits, rounds
from redistrib.synthesis.partial import sources
from redistrib.synthesis.synthesize import synthesize
from redistrib.testing import RedistributionCase, all_partial_types, redistributions
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology
from tests.plans.hand_partial import PARTIAL
from tests.plans.sums import is_exact

# source, target, mesh, elements received in total, and the lower bound where it is less
KNOWN = [
    ("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]", "x=4,y=2", 224),
    ("[16, 8] sum{x,y}", "[4{x}16, 4{y}8]", "x=4,y=2", 896),
    ("[16, 8] sum{x}", "[16, 8]", "x=4,y=2", 1280),
    ("[16, 8] sum{y}", "[16, 4{y}8]", "y=2", 128),
    ("[3{x}12, 12] sum{y}", "[2{y}12, 3{x}12]", "x=4,y=6", 828),
    ("[6{x}12, 6] sum{y}", "[2{y,z}12, 3{x}6]", "x=2,y=3,z=2", 180),
    ("[7] sum{x}", "[7]", "x=8", 98),
    ("[] sum{x,y}", "[]", "x=2,y=3", 10),
    ("[12, 12] max{x}", "[12, 12]", "x=6", 1440),
    ("[2{x}4]", "[4] sum{x}", "x=2,y=2", 0),
    ("[2{x}4]", "[2{x}4] sum{y}", "x=2,y=2", 0),
    ("[1{z}2, 2]", "[2, 2] sum{y,z}", "y=3,z=2", 0),
    ("[4] sum{x}", "[4] sum{x,y}", "x=2,y=2", 0),
    ("[4] sum{x,y}", "[4] sum{x,y}", "x=2,y=2", 0),
    ("[4] sum{y}", "[2{x}4] sum{y}", "x=2,y=2", 0),
]


def test_where_shares_are_too_many_to_arrange_the_least_is_received_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SUM_ROUND_SHARES", 0)
    for source, target, mesh, received in (row[:4] for row in KNOWN):
        assert sum(rd.synthesize(source, target, mesh, machine="exact").received) == received, (source, target)


@pytest.mark.parametrize(("most", "pulled"), [(1 << 16, [120]), (119, []), (120, [120])])
def test_candidates_pull_so_many_shares_once_there_is_another(
    most: int, pulled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, 64 summands of 128 on 256 devices took nine seconds, nearly all for rounds of what is dearer."""
    seen = []

    def colour_rounds(lacking: list[Any], *given: Any) -> Any:
        seen.append(len(lacking))
        return rounds.colour_rounds(lacking, *given)

    monkeypatch.setattr(sources, "colour_rounds", colour_rounds)
    monkeypatch.setattr(limits, "PULLED_SHARES", most)
    plan = rd.synthesize("[1{z}2, 6] max{w,x}", "[2, 6] max{z}", {"w": 4, "x": 2, "z": 2}, machine="exact")
    assert (seen, plan.cost) == (pulled, 168)


@pytest.mark.parametrize(("source", "target", "mesh", "received"), KNOWN)
def test_what_is_known_to_be_least(source: str, target: str, mesh: str, received: int) -> None:
    plan = rd.synthesize(source, target, mesh, dtype="int64", machine="exact")
    assert sum(plan.received) == plan.least_received == plan.cost == received
    assert plan.height <= max(plan.source.local_size, plan.target.local_size)
    assert is_exact(plan)


@pytest.mark.parametrize(
    ("source", "target", "mesh", "received", "bound"),
    [
        ("[1{x}2] sum{y}", "[1{y}2]", "x=2,y=2", 6, 4),
        ("[12{x}24, 3{y}9] sum{z}", "[2{z,y}24, 9]", "x=2,y=3,z=4", 1026, 1008),
    ],
)
def test_tiles_of_one_size_cannot_reach_every_bound(
    source: str, target: str, mesh: str, received: int, bound: int
) -> None:
    """In the second, neither the tiles before nor those after are made of the tiles that are best in between."""
    plan = rd.synthesize(source, target, mesh, machine="exact")
    assert (sum(plan.received), plan.least_received) == (received, bound)
    assert received == least_in_two_steps(plan.before, plan.after)


# ------------------------------------------------------------------------------------------ every pair of types


def pairs(text: str, rank: int) -> Iterator[tuple[DistType, DistType]]:
    """Every ordered pair of types of N elements along each dimension, at least one of which is partial."""
    mesh = Mesh.of(text)
    types = list(all_partial_types(mesh, (mesh.size,) * rank))
    return ((a, b) for a, b in itertools.product(types, repeat=2) if a.partial or b.partial)


def check_pairs(mesh: str, rank: int) -> Counter[str]:
    """Check the plan of every pair, and count those that receive more than the bound, by what is summands."""
    over, above = Mesh.of(mesh), Counter[str]()
    for source, target in pairs(mesh, rank):
        plan = synthesize(source, over, target, over, dtype="int64", model="exact")
        assert verify(plan) is plan
        assert is_exact(plan), (str(source), str(target))
        assert plan.height <= max(source.local_size, target.local_size)
        received, bound = sum(plan.received), plan.least_received
        assert received >= bound
        if target.partial:
            once = over.size == plan.after.tiles * plan.after.summands
            kind = "to partial sums" if not source.partial else "replicated partial sums" if not once else "summands"
        else:
            kind = "reduced"
            assert received <= least_in_two_steps(plan.before, plan.after), (str(source), str(target))
        above[kind] += received > bound
    return +above


# How many plans receive more than the bound, and why.
#
# reduced: the bound asks each element to be added up at a device that holds a summand of it and wants the sum. If some
#   devices could do that for more elements than others, tiles of one size cannot; `least_in_two_steps` agrees, by
#   trying them all. And scalars: replicas of a scalar's summands have no parts to share.
# to summands: the bound asks each element to stay with a device that holds it. If what one device could keep is not one
#   box, or not as large as what others could keep, tiles of one size cannot.
# summands: the same of elements of summands.
# replicated summands: where several devices hold one summand of the target, all of them must be sent what one of
#   them holds, and the bound does not ask for it; it is not tight.
ABOVE: dict[tuple[str, int], dict[str, int]] = {
    ("x=4", 0): {},
    ("x=4", 1): {},
    ("x=4", 2): {},
    ("x=2,y=2", 0): {"replicated partial sums": 4},
    ("x=2,y=2", 1): {"reduced": 2, "to partial sums": 2, "replicated partial sums": 8},
    ("x=2,y=2", 2): {"reduced": 4, "to partial sums": 8, "replicated partial sums": 12},
    ("x=2,y=3", 0): {"reduced": 1, "replicated partial sums": 4},
    ("x=2,y=3", 1): {"reduced": 2, "to partial sums": 4, "summands": 1, "replicated partial sums": 8},
    ("x=2,y=3", 2): {"reduced": 4, "to partial sums": 16, "summands": 2, "replicated partial sums": 12},
}


@pytest.mark.parametrize(("mesh", "rank"), ABOVE)
def test_every_pair_is_right_and_at_the_bound_where_tiles_of_one_size_reach_it(mesh: str, rank: int) -> None:
    assert check_pairs(mesh, rank) == ABOVE[mesh, rank]


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_every_pair_on_three_axes(rank: int) -> None:
    assert (
        check_pairs("x=2,y=2,z=2", rank)
        == [
            {"reduced": 3, "replicated partial sums": 30},
            {"reduced": 66, "to partial sums": 42, "summands": 6, "replicated partial sums": 234},
            {"reduced": 216, "to partial sums": 348, "summands": 60, "replicated partial sums": 726},
        ][rank]
    )


# ---------------------------------------------------------------------------------------- models, kinds, meshes

TWO_HOSTS = LatencyBandwidth(
    name="two hosts",
    latency={kind: Latency(5e-6, 1e-6) for kind in ("allgather", "alltoall", "allpermute")},
    bandwidth=100e9,
    memory_bandwidth=1e12,
    slow_bandwidth=5e9,
    devices_per_host=2,
)
ONE_CALL = replace(TWO_HOSTS, name="one call", slow_bandwidth=None, devices_per_host=None, fused_exchange=True)


@pytest.mark.parametrize("model", ["tpu", "gpu", "cpu", "paper", TWO_HOSTS, ONE_CALL], ids=str)
def test_every_model_prices_right_plans(model: str | LatencyBandwidth) -> None:
    mesh = Mesh.of("x=2,y=3")
    for source, target in list(pairs("x=2,y=3", 1))[::3]:
        plan = synthesize(source, mesh, target, mesh, dtype="int32", model=model)
        assert is_exact(plan)
        assert math.isfinite(plan.cost) and plan.cost >= 0
        if model is ONE_CALL:
            assert all(getattr(step, "implementation", "ragged") != "rounds" for step in plan.steps)


def test_the_default_model_takes_few_collectives() -> None:
    scattered = rd.synthesize("[1024, 512] sum{x,y}", "[256{x}1024, 256{y}512]", "x=4,y=2")
    assert [step.kind for step in scattered.steps] == ["reduce_scatter"]
    small = rd.synthesize("[] sum{x}", "[]", "x=64")
    assert [step.kind for step in small.steps] == ["all_reduce"]


def test_a_reduction_is_priced_as_what_moves_as_much_and_the_additions() -> None:
    profile = LatencyBandwidth("p", {k: Latency(1.0, 0.5) for k in KINDS}, bandwidth=8.0, memory_bandwidth=16.0)
    known = replace(profile, latency={**profile.latency, "reduce_scatter": Latency(7.0), "all_reduce": Latency(9.0)})
    mesh = Mesh.of("x=4,y=2")
    scatter_step, reduce_step, pulled, made = (
        PARTIAL[name]().steps[0] for name in ("reduce-scatter", "all-reduce", "reduce-exchange", "cut to partial")
    )
    # tiles of 32 elements in groups of 2; of 3 elements, padded to 4, in groups of 2
    for model, alltoall, both in ((profile, 1.5, 3.0), (known, 7.0, 9.0)):
        assert model.prices(1, model.topology(mesh)).step(scatter_step) == alltoall + 16 / 8 + 96 / 16
        assert model.prices(1, Topology(4)).step(reduce_step) == both + 2 * 2 / 8 + 12 / 16 + 3 / 16
    own = replace(scatter_step, implementation="alltoall")
    assert known.prices(1, Topology(8)).step(own) == profile.prices(1, Topology(8)).step(scatter_step)
    as_moved = profile.prices(1, Topology(8)).step(Exchange(pulled.before, pulled.after, pulled.shares, "ragged"))
    assert profile.prices(1, Topology(8)).step(pulled) == as_moved + sum(pulled.round_sizes()) / 16
    assert profile.prices(1, Topology(4)).step(made) == 8 / 16
    steps = (scatter_step, reduce_step, pulled, made)
    assert [PaperCost().prices(4, Topology(8)).step(step) for step in steps] == [32, 6, sum(pulled.round_sizes()), 0]
    with pytest.raises(ProfileError):
        replace(profile, latency={**profile.latency, "all_reduce": Latency(-1.0)})


def test_sums_cross_slow_links_and_not_summands() -> None:
    """Devices 0 to 3 share a host, as 4 to 7 do; among them first, one part is left to be added to across."""
    profile = replace(TWO_HOSTS, devices_per_host=4)
    for mesh, target in (
        ("a=2,b=4", "[1024{b}4096, 512{a}1024]"),
        ("a=2,b=4", "[4096, 1024]"),
        ("a=4,b=2", "[4096, 1024]"),
    ):
        plan = rd.synthesize("[4096, 1024] sum{a,b}", target, mesh, machine=profile)
        scatters = [step for step in plan.steps if isinstance(step, ReduceScatter)]
        inside, across = (step.groups // 4 for step in scatters)
        assert (inside == inside[:, :1]).all() and (across == [0, 1]).all()
        assert sum(plan.received) == plan.least_received
    fixed = rd.synthesize("[4096, 1024] sum{a,b}", "[4096, 1024]", "a=2,b=4", machine=profile, order="fixed")
    assert sum(step.before.summands > step.after.summands for step in fixed.steps) == 1
    cut = rd.synthesize("[8, 8, 8] sum{a,c}", "[2{b}8, 2{c}8, 8]", "a=2,b=4,c=4,d=2", machine="gpu")
    assert is_exact(cut)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_maxima_and_minima_are_planned_as_sums_are(kind: str) -> None:
    mesh = Mesh.of("x=2,y=2")
    for source, target in list(pairs("x=2,y=2", 1))[::2]:
        ends = [replace(end, reduction=kind) if end.partial else end for end in (source, target)]
        plan = synthesize(ends[0], mesh, ends[1], mesh, dtype="int64", model="exact")
        assert is_exact(plan)
        assert plan.received == synthesize(source, mesh, target, mesh, dtype="int64", model="exact").received


def test_meshes_of_two_shapes_and_orders_and_axes_of_size_1() -> None:
    turned = Mesh(Mesh.of("a=2,b=2,c=2").axes, (3, 1, 4, 0, 5, 7, 2, 6))
    plan = rd.synthesize("[8, 4] sum{x}", "[2{a,b}8, 4]", "x=4,y=2", target_mesh=turned)
    assert is_exact(replace(plan, dtype="int64", itemsize=8))
    alone = rd.synthesize("[4] sum{x}", "[4]", "x=1,y=2")
    assert not alone.steps


def test_arrays_without_elements() -> None:
    for source, target in [
        ("[0] sum{x}", "[0]"),
        ("[0]", "[0] sum{x}"),
        ("[0, 4] sum{x}", "[0, 2{y}4] sum{x}"),
        ("[0, 4] sum{x,y}", "[0, 2{y}4] sum{x}"),
    ]:
        plan = rd.synthesize(source, target, "x=3,y=2")
        assert verify(plan) is plan and not sum(plan.received)


# ----------------------------------------------------------------------------------------------------- order


def values(placement: Placement) -> np.ndarray:
    generator = np.random.default_rng(0)
    shape = (placement.summands, *placement.shape) if placement.summands > 1 else placement.shape
    return (generator.standard_normal(shape) * 10.0 ** generator.integers(-6, 6, shape)).astype(np.float32)


@pytest.mark.parametrize(("mesh", "rank"), [("x=6", 1), ("x=2,y=3", 1), ("x=2,y=3", 2)])
def test_a_fixed_order_gives_the_same_bits_on_every_order_of_devices(mesh: str, rank: int) -> None:
    over = Mesh.of(mesh)
    turned = Mesh(over.axes, tuple(np.random.default_rng(1).permutation(over.size).tolist()))
    for source, target in list(pairs(mesh, rank))[:: rank * 2 - 1]:
        if not source.partial:
            continue
        for devices in (over, turned):
            plan = synthesize(source, devices, target, devices, model="exact", order="fixed")
            assert plan.order == "fixed"
            assert not any(isinstance(step, AllReduce) for step in plan.steps)
            assert all(step.implementation == "alltoall" for step in plan.steps if isinstance(step, ReduceScatter))
            if target.partial:
                continue
            stack = values(plan.before)
            total = stack[0]
            for summand in stack[1:]:
                total = total + summand
            for got, wanted in zip(run(plan, scatter(stack, plan.before)), scatter(total, plan.after), strict=True):
                assert got.tobytes() == wanted.tobytes()


def test_any_order_lets_the_platform_add() -> None:
    ends = ("[4, 4] sum{x}", "[1{x}4, 4]", "x=4")
    native, own = rd.synthesize(*ends).steps, rd.synthesize(*ends, order="fixed").steps
    assert [getattr(step, "implementation", "") for step in (*native, *own)] == ["native", "alltoall"]
    assert rd.synthesize("[4]", "[4] sum{x}", "x=4", order="fixed").order == "fixed"


# ------------------------------------------------------------------------------------------------- accumulate


def test_small_floats_are_added_in_float32_and_rounded_once() -> None:
    accumulated = {
        dtype: rd.synthesize("[4] sum{x}", "[4]", "x=2", dtype=dtype).accumulate
        for dtype in ("bfloat16", "float16", "float32", "int8", "complex64", "float8_e4m3fn")
    }
    assert accumulated == dict.fromkeys(accumulated, None) | {"bfloat16": "float32", "float16": "float32"}
    wide = rd.synthesize("[3] sum{x}", "[3]", "x=4", dtype="float16", order="fixed")
    stack = np.array([[2048.0] * 3, [1.0] * 3, [1.0] * 3, [1.0] * 3], dtype=np.float16)
    assert [tile.tolist() for tile in run(wide, scatter(stack, wide.before))] == [[2052.0] * 3] * 4
    narrow = rd.synthesize("[3] sum{x}", "[3]", "x=4", dtype="float16", order="fixed", accumulate="float16")
    assert narrow.accumulate is None
    assert [tile.tolist() for tile in run(narrow, scatter(stack, narrow.before))] == [[2048.0] * 3] * 4
    assert rd.synthesize("[4] sum{x}", "[4]", "x=2", accumulate=np.float64).accumulate == "float64"
    assert rd.synthesize("[4] max{x}", "[4]", "x=2", dtype="bfloat16").accumulate is None
    assert rd.synthesize("[2{x}4]", "[4] sum{x}", "x=2", dtype="bfloat16").accumulate is None
    assert rd.synthesize("[2{x}4]", "[4]", "x=2", dtype="bfloat16", accumulate="float32").accumulate is None


def test_sums_of_integers_wrap() -> None:
    plan = rd.synthesize("[2] sum{x}", "[2]", "x=4", dtype="int8")
    tiles = run(plan, scatter(np.full((4, 2), 100, dtype=np.int8), plan.before))
    assert [tile.tolist() for tile in tiles] == [[-112, -112]] * 4  # 400 - 512


# -------------------------------------------------------------------------------------------------- bad input

BAD = [
    ({"dtype": "bool"}, ReductionError,
     "elements of bool have no sum; take max for 'any' and min for 'all', or an integer type"),
    ({"dtype": "key<fry>"}, ReductionError,
     "elements of key<fry> have no sum; take max for 'any' and min for 'all', or an integer type"),
    ({"source": "[4] max{x}", "dtype": "complex64"}, ReductionError,
     "elements of complex64 have no max, since they have no order; reduce a real type"),
    ({"source": "[4] min{x}", "dtype": "key<fry>"}, ReductionError,
     "elements of key<fry> have no min, since they have no order; reduce a real type"),
    ({"target": "[4] max{x}"}, ReductionError,
     "partial sums by sum cannot become partial sums by max; reduce [4] sum{x} first, and make [4] max{x} of the "
     "result"),
    ({"accumulate": "float16"}, ReductionError,
     "sums of float32 cannot be accumulated in float16; give a type of the same kind, as wide or wider"),
    ({"accumulate": "int64"}, ReductionError,
     "sums of float32 cannot be accumulated in int64; give a type of the same kind, as wide or wider"),
    ({"accumulate": "fp32"}, DtypeError, "'fp32' names no element type; did you mean 'float32'?"),
    ({"order": "random"}, PlanFormError, "the order of partial sums is 'random'; it is one of ('any', 'fixed')"),
    ({"algorithm": "paper"}, PartialTypeError,
     "the paper's algorithm takes arrays whose tiles are parts of the array, and those of [4] sum{x} are partial sums; "
     "reduce it first, for example with jax.lax.psum or MPI's Allreduce"),
    ({"memory_limit": 10}, MemoryLimitError,
     "no plan fits in 10 bytes per device; the least memory_limit that one fits is 40 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "message"), BAD)
def test_what_cannot_be_planned_is_refused(arguments: dict[str, str], error: type[Exception], message: str) -> None:
    given = {"source": "[4] sum{x}", "target": "[4]", "mesh": "x=2,y=2", **arguments}
    with pytest.raises(error) as caught:
        rd.synthesize(given.pop("source"), given.pop("target"), given.pop("mesh"), **given)  # type: ignore[arg-type]
    assert type(caught.value) is error and str(caught.value) == message


def test_booleans_have_maxima_and_order_is_checked_for_whole_types_too() -> None:
    assert rd.synthesize("[4] max{x}", "[4]", "x=2", dtype="bool").steps
    with pytest.raises(PlanFormError):
        rd.synthesize("[4]", "[2{x}4]", "x=2", order="random")
    assert rd.synthesize("[4]", "[2{x}4]", "x=2", order="fixed").order == "any"


def test_a_memory_limit_is_kept_and_the_least_one_is_told() -> None:
    ends = ("[64, 64] sum{x}", "[64, 64]", "x=4,y=2")
    free = rd.synthesize(*ends, machine="exact").peak_bytes
    with pytest.raises(MemoryLimitError) as caught:
        rd.synthesize(*ends, machine="exact", memory_limit=40_000)
    least = caught.value.least
    assert 40_000 < least < free
    plan = rd.synthesize(*ends, machine="exact", memory_limit=least)
    assert plan.peak_bytes <= least
    assert is_exact(replace(plan, dtype="int64"))


# --------------------------------------------------------------------------------------------- any problem


@st.composite
def summed(draw: st.DrawFn) -> RedistributionCase:
    """Pairs of types, axes that do not cut being partial with even odds."""
    pair = draw(redistributions(max_size=2000))

    def partly(dist_type: DistType, mesh: Mesh) -> DistType:
        free = [axis.name for axis in mesh.axes if axis.name not in dist_type.axes and draw(st.booleans())]
        return replace(dist_type, partial=tuple(free), reduction="sum") if free else dist_type

    ends = partly(pair.source, pair.mesh), partly(pair.target, pair.target_mesh)
    return RedistributionCase(*ends, pair.mesh, pair.target_mesh)


@settings(max_examples=60)
@given(
    summed(),
    st.sampled_from(["exact", "tpu", "gpu", "paper", TWO_HOSTS, ONE_CALL]),
    st.sampled_from(["any", "fixed"]),
    st.sampled_from([None, None, 1, 200, 4000]),
    st.sampled_from([limits.NUMBERED_SUMS, 0]),
)
def test_any_problem_has_a_right_plan_within_the_least_memory(
    pair: RedistributionCase, model: str | LatencyBandwidth, order: str, limit: int | None, numbered: int
) -> None:
    ends = (pair.source, pair.mesh, pair.target, pair.target_mesh)
    options = {"dtype": "int64", "model": model, "order": order}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "NUMBERED_SUMS", numbered)
        patch.setattr(limits, "NUMBERED_PAIRS", numbered)
        try:
            plan = synthesize(*ends, memory_limit=limit, **options)  # type: ignore[arg-type]
        except MemoryLimitError as error:
            plan = synthesize(*ends, memory_limit=error.least, **options)  # type: ignore[arg-type]
            assert plan.peak_bytes <= error.least
    if limit is None and model != ONE_CALL:
        assert scratch(plan.steps) <= 4 * max(plan.before.tile_size, plan.after.tile_size)
    assert is_exact(plan)


# ---------------------------------------------------------------------------------------- written and shown


def test_a_plan_is_written_read_shown_and_explained() -> None:
    plan = rd.synthesize("[16, 8] sum{x}", "[16, 8]", "x=4,y=2", machine="exact", dtype="bfloat16", order="fixed")
    again = Plan.from_json(plan.to_json())
    assert again == plan and (again.order, again.accumulate) == ("fixed", "float32")
    shown = str(plan)
    assert (
        "reduce_scatter" in shown and "lower bound: 1,280 (2.5 KiB) in all; received is 1.00 times the bound" in shown
    )
