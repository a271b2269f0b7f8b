"""Plans in parts: what they mean, what they cost, and when they are chosen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import redistrib as rd
from redistrib.cost.exact import ExactCost
from redistrib.cost.latency import Latency, LatencyBandwidth
from redistrib.cost.model import prices_of
from redistrib.cost.presets import PRESETS
from redistrib.errors import PlanJsonError, VerificationError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.plans._json import sealed
from redistrib.plans.parts import divides, part_of, untouched, waves
from redistrib.plans.plan import Plan
from redistrib.plans.reference import run, run_step, scatter
from redistrib.theory.topology import Topology

CALLS = {kind: Latency(20e-6) for kind in ("allgather", "alltoall", "allpermute")}
OVERLAPS = LatencyBandwidth("slow between", CALLS, 4e9, 1e12, slow_bandwidth=1e9, overlaps=True)
WAITS = replace(OVERLAPS, overlaps=False)
TRAINERS, SAMPLERS = (Mesh((Axis("x", 4),), tuple(range(first, first + 4))) for first in (0, 4))


def handed_on(model: LatencyBandwidth = OVERLAPS, size: int = 4096, **options: object) -> Plan:
    """Rows on four devices to the whole array on four others: across, then gathered there."""
    source, target = f"[{size // 4}{{x}}{size}, 1024]", f"[{size}, 1024]"
    return rd.synthesize(source, target, TRAINERS, target_mesh=SAMPLERS, cost_model=model, **options)


def two_hosts(model: LatencyBandwidth = OVERLAPS) -> Plan:
    return rd.synthesize("[1024{h,x}4096, 512]", "[2048{x}4096, 512]", {"h": 2, "x": 2}, cost_model=model)


def test_a_profile_whose_phases_overlap_takes_parts_and_others_do_not():
    plan = handed_on()
    assert [step.kind for step in plan.steps] == ["exchange", "allgather"]
    assert plan.parts in (2, 4, 8)
    assert plan.along == 1
    whole = handed_on(WAITS)
    assert (whole.parts, whole.along) == (1, None)
    assert plan.cost < whole.cost
    assert (plan.received, plan.sent, plan.crossing, plan.height) == (
        whole.received, whole.sent, whole.crossing, whole.height,
    )  # fmt: skip
    assert plan.collectives == plan.parts * whole.collectives
    assert f"in {plan.parts} parts along dim 1" in str(plan)
    assert "parts along" not in str(whole)


def test_no_preset_overlaps_and_models_that_count_take_one_part():
    assert not any(preset.overlaps for preset in PRESETS.values())
    for model in ("exact", *PRESETS):
        assert handed_on(model).parts == 1


def test_small_arrays_and_memory_limits_take_one_part():
    assert handed_on(size=8).parts == 1
    assert handed_on(memory_limit=2**30).parts == 1


def test_the_price_is_the_first_part_and_the_longest_step_for_every_other():
    plan = handed_on()
    prices = prices_of(OVERLAPS, plan.itemsize, Topology.apart(8, range(4)))
    each = [prices.step(step) for step in plan.part]
    assert plan.cost == pytest.approx(sum(each) + (plan.parts - 1) * max(each))
    others = [sum(prices.waves(part_of(plan.steps, k, 1), k)) for k in (2, 4, 8)]
    assert plan.cost == min(others) < prices_of(WAITS, plan.itemsize, prices.topology).total(plan.steps)


def test_steps_on_the_same_links_do_not_overlap():
    plan = handed_on()
    prices = prices_of(OVERLAPS, plan.itemsize, Topology.apart(8, range(4)))
    across, inside = plan.part
    assert sum(prices.waves((across, across), 4)) == pytest.approx(8 * prices.step(across))
    assert sum(prices.waves((inside, across, inside), 2)) >= 4 * prices.step(inside)


def test_a_step_over_several_hosts_is_at_work_inside_them_too():
    plan = rd.synthesize("[512{x}4096, 512]", "[4096, 512]", {"x": 8}, cost_model="exact")
    gather = plan.steps[0]
    prices = prices_of(OVERLAPS, plan.itemsize, Topology.consecutive(8, 4))
    assert prices.waves((gather,), 1) == [prices.step(gather)]
    assert sum(prices.waves((gather, gather), 2)) == pytest.approx(4 * prices.step(gather))
    assert prices.best_parts((gather,)).number == 1


@pytest.mark.parametrize("parts", [1, 3, 8])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_waves_have_every_part_in_every_step_once_and_in_order(parts, steps):
    found = list(waves(parts, steps))
    assert sorted(pair for wave in found for pair in wave) == [(p, s) for p in range(parts) for s in range(steps)]
    for number, wave in enumerate(found):
        assert len({step for _, step in wave}) == len(wave)
        assert all(part + step == number for part, step in wave)


ROUTES = [
    ("[8{x}16, 8, 4]", "[8{y}16, 8, 4]"),
    ("[2{x,y}16, 8, 4]", "[8{y}16, 8, 4]"),
    ("[16, 4{x}16, 8]", "[4{x}16, 8{y}16, 8]"),
    ("[4{x,y}16, 8, 8]", "[16, 4{x}8, 8]"),
]


@pytest.mark.parametrize("algorithm", ["best", "paper"])
@pytest.mark.parametrize(("source", "target"), ROUTES)
def test_each_part_is_the_same_plan_on_a_smaller_array(source, target, algorithm):
    mesh = {"x": 2 if "8{x}16" in source or "4{x}8" in target else 4, "y": 2}
    plan = rd.synthesize(source, target, mesh, algorithm=algorithm, cost_model="gpu", dtype="int64")
    array = np.arange(np.prod(plan.shape)).reshape(plan.shape)
    want = run(plan, scatter(array, plan.before))
    assert untouched(plan.steps)
    for along in untouched(plan.steps):
        assert divides(plan.steps, 2, along)
        cut = rd.verify(replace(plan, parts=2, along=along))
        pieces = [np.split(tile, 2, axis=along) for tile in scatter(array, plan.before)]
        made = []
        for number in range(2):
            held = [piece[number] for piece in pieces]
            for step in cut.part:
                held = run_step(step, held)
            made.append(held)
        for device, tile in enumerate(want):
            np.testing.assert_array_equal(np.concatenate([made[0][device], made[1][device]], axis=along), tile)
        received = [sum(step.received()[device] for step in cut.part) for device in range(plan.devices)]
        assert tuple(2 * n for n in received) == plan.received


def test_a_share_that_ends_within_a_tile_touches_its_dimension():
    step = handed_on().steps[0]
    size = step.shares.size.copy()
    size[0, 1] //= 2
    assert untouched([step]) == [0, 1]  # whole tiles cross
    assert untouched([replace(step, shares=replace(step.shares, size=size))]) == [0]


def test_json_says_parts_where_there_are_several():
    plan, whole = handed_on(), handed_on(WAITS)
    form = json.loads(plan.to_json())
    assert (form["version"], form["parts"], form["along"]) == (2, plan.parts, 1)
    assert Plan.from_json(plan.to_json()) == plan != replace(plan, parts=1, along=None)
    assert not {"parts", "along"} & json.loads(whole.to_json()).keys()
    on_all = rd.synthesize("[4{x}16, 8]", "[16, 8]", {"x": 4})
    assert json.loads(on_all.to_json())["version"] == 1
    cut = replace(on_all, parts=4, along=1)
    assert json.loads(cut.to_json())["version"] == 2
    assert Plan.from_json(cut.to_json()) == cut


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"parts": 0}, VerificationError),
        ({"parts": 3}, VerificationError),
        ({"parts": 10**18}, VerificationError),
        ({"along": 0}, VerificationError),
        ({"along": 10**18}, VerificationError),
        ({"parts": 1}, PlanJsonError),
        ({"parts": -2}, PlanJsonError),
        ({"parts": True}, PlanJsonError),
        ({"parts": 2.0}, PlanJsonError),
        ({"parts": None}, PlanJsonError),
        ({"along": None}, PlanJsonError),
        ({"parts": 10**30}, PlanJsonError),
    ],
)
def test_forged_parts_are_refused(fields, error):
    form = json.loads(handed_on().to_json()) | fields
    del form["digest"]
    with pytest.raises(error, match="parts"):
        Plan.from_json(sealed(form))


@pytest.mark.parametrize("field", ["parts", "along"])
def test_one_field_alone_is_refused(field):
    form = json.loads(handed_on().to_json())
    del form["digest"], form[field]
    with pytest.raises(PlanJsonError):
        Plan.from_json(sealed(form))


def test_version_one_has_no_parts():
    form = json.loads(rd.synthesize("[4{x}16, 8]", "[16, 8]", {"x": 4}).to_json())
    del form["digest"]
    with pytest.raises(PlanJsonError):
        Plan.from_json(sealed(form | {"parts": 2, "along": 1}))


def test_a_simulated_plan_takes_what_it_costs():
    whole = two_hosts(replace(WAITS, devices_per_host=2))
    model = replace(OVERLAPS, devices_per_host=2)
    for along in untouched(whole.steps):
        for parts in (2, 4):
            plan = replace(whole, parts=parts, along=along)
            prices = prices_of(model, plan.itemsize, Topology.consecutive(4, 2))
            found = rd.simulate(plan, model)
            assert found.seconds == sum(prices.waves(plan.part, parts))
            assert max(found.peak_bytes.values()) == plan.peak_bytes
            assert found.height == plan.height
            assert rd.simulate(plan, replace(WAITS, devices_per_host=2)).seconds >= found.seconds


def test_profiles_say_whether_phases_overlap():
    assert LatencyBandwidth.from_json(OVERLAPS.to_json()).overlaps
    assert "overlaps" not in json.loads(WAITS.to_json())
    assert not LatencyBandwidth.from_json(WAITS.to_json()).overlaps
    assert ExactCost().in_sequence() == ExactCost()
