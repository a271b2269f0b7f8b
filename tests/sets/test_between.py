"""Plans between device sets that differ: right, at the bounds, and chosen by what links cost."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from redistrib.cost.collective import Latency
from redistrib.cost.latency import LatencyBandwidth
from redistrib.plans import reference
from redistrib.plans.plan import Plan
from redistrib.testing import RedistributionCase, all_types, is_exact, redistributions
from tests.sets.cases import ALPA, PAIRS, SETS, alpa_on_eight, m2n, prime_mesh

LATENCY = {kind: Latency(5e-6, 1e-7) for kind in ("allgather", "alltoall", "allpermute")}
SLOW_BETWEEN = LatencyBandwidth("slow between", LATENCY, 200e9, 1e12, slow_bandwidth=2e9)


def between(
    source: tuple[str, object, str], target: tuple[str, object, str], model: object = "exact", **options: object
) -> Plan:
    """A plan, from (mesh, devices, type) to (mesh, devices, type)."""
    (mesh, devices, here), (other, others, there) = source, target
    return rd.synthesize(
        here, there, rd.Mesh.of(mesh, devices), target_mesh=rd.Mesh.of(other, others), machine=model, **options
    )


def _check(plan: Plan) -> None:
    """What holds of every plan that was made for exact bytes."""
    assert is_exact(plan)
    assert sum(plan.received) == sum(plan.sent) == sum(plan.lower_bound) or plan.height > max(
        plan.before.tile_size, plan.after.tile_size
    )
    assert all(sent >= least for sent, least in zip(plan.sent, plan.send_bound, strict=True))
    assert plan.crossing >= plan.crossing_bound
    outside = set(range(plan.devices)) - set(plan.target_mesh.devices)
    assert all(plan.lower_bound[device] == 0 for device in outside)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_meet_the_bound_in_few_rounds(name: str) -> None:
    plan = between(*PAIRS[name])
    _check(plan)
    assert sum(plan.received) == sum(plan.lower_bound)
    assert plan.collectives <= 8
    again = Plan.from_json(plan.to_json())
    assert again == plan and '"version":2' in plan.to_json()


@pytest.mark.parametrize("name", ALPA)
def test_alpas_cases_cross_once_where_links_between_sets_are_slow(name: str) -> None:
    (mesh, source), (other, target), times = ALPA[name]
    size = rd.Mesh.of(mesh).size
    ends = (mesh, range(size), source), (other, range(size, size + rd.Mesh.of(other).size), target)
    for model in ("exact", SLOW_BETWEEN):
        scale = 1 if model == "exact" else 256  # so that bytes weigh more than launches
        large = [(m, d, _scaled(t, scale)) for m, d, t in ends]
        plan = between(*large, model)
        assert plan.crossing == plan.crossing_bound  # 1.00 times
        assert plan.collectives <= 8
        if model == "exact":
            _check(plan)
            assert sum(plan.received) == sum(plan.lower_bound)
    assert sum(plan.lower_bound) == times * np.prod(plan.shape)  # what a direct pull brings across


def test_alpas_cases_on_eight_devices_meet_the_bounds_in_few_rounds() -> None:
    for ends in alpa_on_eight():
        plan = between(*ends)
        _check(plan)
        assert sum(plan.received) == sum(plan.lower_bound) and plan.crossing == plan.crossing_bound, ends
        assert plan.collectives <= 8, ends


def _scaled(text: str, factor: int) -> str:
    """A type with its last dimension so many times as long."""
    dims = rd.DistType.parse(text).dims
    last = dims[-1]
    return str(rd.DistType((*dims[:-1], type(last)(last.tile * factor, last.axes, last.size * factor))))


TWO_AXES = [
    pair
    for pair in itertools.product(all_types(rd.Mesh.of("a=2,b=2"), (4, 8, 12)), repeat=2)
    if all(len(dim.axes) <= 1 for side in pair for dim in side.dims)
]


def _check_two_axes(source: rd.DistType, target: rd.DistType) -> None:
    here, there = rd.Mesh.of("a=2,b=2"), rd.Mesh.of("a=2,b=2", range(4, 8))
    plan = rd.synthesize(source, target, here, target_mesh=there, machine="exact")
    assert sum(plan.received) == sum(plan.lower_bound) and plan.collectives <= 8
    assert plan.crossing == plan.crossing_bound
    assert is_exact(plan)


def test_two_axes_that_cut_a_dimension_each_between_halves() -> None:
    """Rank 3, a mesh of (2, 2) on each side, each axis cutting a dimension of its own or none."""
    assert len(TWO_AXES) == 169
    for pair in random.Random(3).sample(TWO_AXES, 12):
        _check_two_axes(*pair)


@pytest.mark.long
def test_all_of_two_axes_between_halves() -> None:
    for pair in TWO_AXES:
        _check_two_axes(*pair)


@pytest.mark.parametrize("half", [4, 8])
def test_nccls_cases_meet_the_bound_in_few_rounds(half: int) -> None:
    cases = list(m2n(half))
    assert len(cases) == len(set(cases)) == 52
    for ends in cases:
        plan = between(*ends)
        assert sum(plan.received) == sum(plan.lower_bound) and plan.crossing == plan.crossing_bound, ends
        assert plan.collectives <= 8, ends
        assert is_exact(plan)


def _ordered_pairs(name: str) -> list[tuple[object, object, rd.Mesh, rd.Mesh]]:
    meshes = [prime_mesh(devices) for devices in SETS[name]]
    pairs = []
    for shape in ((24,), (24, 24)):
        sides = [list(all_types(mesh, shape)) for mesh in meshes]
        pairs += [(s, t, *meshes) for s, t in itertools.product(*sides)]
    return pairs


@pytest.mark.parametrize("name", SETS)
def test_a_sample_of_all_pairs_is_right(name: str) -> None:
    for source, target, here, there in random.Random(5).sample(_ordered_pairs(name), 6):
        _check(rd.synthesize(source, target, here, target_mesh=there, machine="exact"))


@pytest.mark.long
@pytest.mark.parametrize("name", SETS)
def test_all_ordered_pairs_are_right(name: str) -> None:
    for source, target, here, there in _ordered_pairs(name):
        for model in ("exact", "tpu", SLOW_BETWEEN):
            plan = rd.synthesize(source, target, here, target_mesh=there, machine=model)
            assert is_exact(plan)
            if model == "exact":
                _check(plan)


@settings(max_examples=15, deadline=None)
@given(redistributions(max_devices=8, max_size=2000), st.data())
def test_idle_devices_change_nothing(case: RedistributionCase, data: st.DataObject) -> None:
    """The devices of a problem numbered with gaps: the same steps among them, and nobody else takes part."""
    if not case.source.rank:
        return
    count = case.mesh.size
    gaps = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    number = np.cumsum(np.array(gaps) + 1) - 1
    here, there = (
        rd.Mesh(mesh.axes, tuple(number[list(mesh.devices)].tolist())) for mesh in (case.mesh, case.target_mesh)
    )
    plan = case.plan("best", "exact")
    moved = rd.synthesize(case.source, case.target, here, target_mesh=there, machine="exact")
    assert [step.kind for step in moved.steps] == [step.kind for step in plan.steps]
    assert moved.cost == plan.cost and moved.collectives == plan.collectives
    for of_moved, of_plan in ((moved.received, plan.received), (moved.sent, plan.sent)):
        assert [of_moved[device] for device in number.tolist()] == list(of_plan)
        assert sum(of_moved) == sum(of_plan)
    whole = np.arange(np.prod(plan.shape)).reshape(plan.shape)
    tiles = reference.run(moved, reference.scatter(whole, moved.before))
    expected = reference.run(plan, reference.scatter(whole, plan.before))
    assert all(np.array_equal(tiles[d], tile) for d, tile in zip(number.tolist(), expected, strict=True))


def test_who_holds_its_tile_already_receives_nothing() -> None:
    plan = between(("x=4", range(4), "[16, 4]"), ("x=2", (3, 1), "[8{x}16, 4]"), "tpu")
    assert [step.kind for step in plan.steps] == ["dynslice"] and sum(plan.received) == 0
    assert is_exact(plan)


def test_fast_links_between_sets_let_every_device_pull() -> None:
    """Latency decides where the links between sets are as fast as those inside."""
    ends = PAIRS["replicated to replicated"]
    assert between(*ends, "cpu").collectives == 1
    with pytest.raises(rd.RedistribError) as caught:
        between(*ends, algorithm="paper")
    assert isinstance(caught.value, rd.errors.MeshDevicesError)


@pytest.mark.parametrize("types", [("[16] sum{x}", "[16]"), ("[4{x}16]", "[16] sum{x}")])
def test_summands_stay_on_their_devices(types: tuple[str, str]) -> None:
    with pytest.raises(rd.errors.PartialTypeError):
        rd.synthesize(*types, "x=4", target_mesh=rd.Mesh.of("x=4", range(4, 8)))


def test_memory_limits_hold_between_sets() -> None:
    ends = PAIRS["rows to columns"]
    with pytest.raises(rd.errors.MemoryLimitError) as caught:
        between(*ends, memory_limit=10)
    plan = between(*ends, memory_limit=caught.value.least)
    assert plan.peak_bytes <= caught.value.least and is_exact(plan)
