"""Hosts of 1, 2, 2 and 3 devices: what crosses between them, beside the least that must."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from bench.problems import problem_set
from redistrib.cost.presets import PRESETS
from redistrib.plans.plan import Plan
from redistrib.synthesis import best, limits
from redistrib.testing import is_exact

HOSTS = [0, 1, 1, 2, 2, 3, 3, 3]
MESH = {"x": 2, "y": 2, "z": 2}
N = 1 << 12


def made(source: str, target: str, hosts: list[int] = HOSTS, n: int = N, dtype: str = "float32") -> Plan:
    sizes = {"n2": n // 2, "n4": n // 4, "n8": n // 8, "n": n}
    for name, size in sizes.items():
        source, target = (text.replace(name, str(size)) for text in (source, target))
    return rd.synthesize(source, target, MESH, dtype=dtype, machine="tpu", topology=hosts)


@pytest.mark.parametrize(
    ("source", "target", "crosses", "steps"),
    [
        # The one device of host 0 lacks the other half of what it wants; all other hosts have all they want.
        ("[n, n2{y}n]", "[n2{z}n, n]", N * N // 4, [("exchange", 2)]),
        ("[n2{z}n, 64]", "[n, 64]", N // 2 * 64, [("exchange", 2)]),
        # Of three devices that want all of it, one is sent what they lack, and hands it on.
        ("[n4{y,x}n, n]", "[n, n]", 9 * N * N // 4, [("exchange", 3), ("exchange", 2)]),
        # Two devices of host 3 want one tile, of which their host has none.
        ("[n, n2{x}n]", "[n4{z,x}n, n]", 5 * N * N // 8, [("exchange", 1), ("exchange", 1)]),
    ],
)  # fmt: skip
def test_what_a_host_lacks_comes_to_it_once(
    source: str, target: str, crosses: int, steps: list[tuple[str, int]]
) -> None:
    plan = made(source, target)
    assert plan.crossing_between(HOSTS) == (crosses, crosses)
    assert [(step.kind, step.shares.rounds) for step in plan.steps] == steps
    assert plan.height <= max(plan.before.tile_size, plan.after.tile_size)


def test_devices_that_are_handed_their_tile_hold_nothing_until_then() -> None:
    plan = made("[n, n2{x}n]", "[n4{z,x}n, n]", n=1 << 10)
    first, last = plan.steps
    waiting = np.flatnonzero(first.after.nowhere).tolist()
    assert waiting == np.unique(last.shares.receiver).tolist() == [7]
    assert all(HOSTS[a] == HOSTS[b] for a, b in zip(last.shares.sender, last.shares.receiver, strict=True))
    assert is_exact(plan)
    assert rd.Plan.from_json(plan.to_json()) == plan


def test_bytes_between_hosts_are_near_their_bound() -> None:
    ratios = []
    for problem in [*problem_set("U222", count=20), *problem_set("H222", count=20)]:
        plan = rd.synthesize(problem.source, problem.target, problem.axes, machine="tpu", topology=HOSTS)
        crosses, bound = plan.crossing_between(HOSTS)
        assert crosses >= bound
        ratios += [crosses / bound] if bound else []
    assert len(ratios) > 30
    assert np.exp(np.mean(np.log(ratios))) <= 1.05


@settings(max_examples=25, deadline=None)
@given(
    number=st.integers(0, 199),
    hosts=st.lists(st.integers(0, 3), min_size=8, max_size=8).filter(lambda hosts: len(set(hosts)) > 1),
    model=st.sampled_from(["tpu", "gpu", "cpu"]),
)
def test_no_more_crosses_than_in_the_cheapest_plan(number: int, hosts: list[int], model: str) -> None:
    """And the plan is correct, costs little more, and holds no larger tile than source or target."""
    problem = problem_set("H222" if number % 2 else "U222", count=number // 2 + 1)[-1].scaled(1 << 20)
    ends = problem.source, problem.target, problem.axes
    plan = rd.synthesize(*ends, machine=model, topology=hosts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "PRICE_TOLERANCE", 1.0)
        patch.setattr(best, "relay_broadcast", lambda problem: [])
        cheapest = rd.synthesize(*ends, machine=model, topology=hosts)
    assert plan.crossing_between(hosts)[0] <= cheapest.crossing_between(hosts)[0]
    assert plan.cost <= limits.PRICE_TOLERANCE * cheapest.cost * (1 + 1e-9)
    assert plan.height <= max(plan.before.tile_size, plan.after.tile_size)
    assert is_exact(plan)


def test_where_there_are_summands_every_device_holds_something_all_the_way() -> None:
    """On 12 devices the preset has hosts of 8 and 4; the moves before the summands are plans of their own."""
    source, target = "[51539607552{z}154618822656, 4{y,x}16]", "[77309411328{x}154618822656, 16] max{z}"
    mesh = {"x": 2, "y": 2, "z": 3}
    plan = rd.synthesize(source, target, mesh, machine="gpu")
    assert not any(step.after.nowhere.any() for step in plan.steps)


def test_hosts_take_turns_to_send_what_others_lack() -> None:
    """Hosts 0 and 1 lack the half that hosts 2 and 3 have: each of these sends it to one of them."""
    model = replace(PRESETS["tpu"], host_bandwidth=PRESETS["tpu"].slow_bandwidth)
    plan = rd.synthesize(f"[{N // 2}{{x}}{N}, 64]", f"[{N}, 64]", MESH, machine=model, topology=HOSTS)
    first = plan.steps[0]
    sent = [(HOSTS[a], HOSTS[b]) for a, b in zip(first.shares.sender, first.shares.receiver, strict=True)]
    assert sorted(a for a, b in sent if a != b and b < 2) == [2, 3]
    assert plan.crossing_between(HOSTS) == (3 * N // 2 * 64, 3 * N // 2 * 64)
