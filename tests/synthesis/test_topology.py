"""Four hosts of eight devices, joined by links 20 times slower: what crosses them, against its own lower bound."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import redistrib as rd
from bench.problems import Problem, draw
from redistrib.cost.latency import Latency, LatencyBandwidth
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Exchange, Step
from redistrib.theory.semantics import Int64, Placement

LATENCY = {kind: Latency(5e-6, 1e-6) for kind in ("allgather", "alltoall", "allpermute")}
FAST, SLOW = 100e9, 5e9
BY_HOST = LatencyBandwidth(
    "hosts of eight", LATENCY, bandwidth=FAST, memory_bandwidth=1e12, slow_bandwidth=SLOW, devices_per_host=8
)
BY_AXIS = LatencyBandwidth("slow axis", LATENCY, bandwidth=FAST, memory_bandwidth=1e12, axis_bandwidth={"x": SLOW})
HOSTS = np.arange(32) // 8


def crossing(step: Step) -> int:
    """Elements that a step moves between hosts."""
    if isinstance(step, AllGather | AllToAll):
        share = step.before.tile_size if isinstance(step, AllGather) else math.prod(step.share)
        host = HOSTS[step.groups]
        return share * int((host[:, :, None] != host[:, None, :]).sum())
    if isinstance(step, AllPermute):
        return step.before.tile_size * int((HOSTS[step.pairs[:, 0]] != HOSTS[step.pairs[:, 1]]).sum())
    if isinstance(step, Exchange):
        away = HOSTS[step.shares.src] != HOSTS[step.shares.dst]
        return sum(volume for volume, far in zip(step.shares.volumes(), away, strict=True) if far)
    return 0


def crossing_bound(before: Placement, after: Placement) -> int:
    """Per host, the union of its target tiles less the union of its source tiles; summed, in elements."""
    fine = tuple(math.lcm(b, a) for b, a in zip(before.grid, after.grid, strict=True))
    unit = math.prod(size // count for size, count in zip(before.shape, fine, strict=True))

    def union(placement: Placement, devices: Int64) -> np.ndarray:
        held = np.zeros(fine, dtype=bool)
        scale = [f // g for f, g in zip(fine, placement.grid, strict=True)]
        for index in placement.index[devices]:
            held[tuple(slice(i * s, (i + 1) * s) for i, s in zip(index, scale, strict=True))] = True
        return held

    total = 0
    for host in range(4):
        mine = np.flatnonzero(host == HOSTS)
        total += int((union(after, mine) & ~union(before, mine)).sum())
    return unit * total


def problems(sizes: tuple[int, ...], count: int, seed: int) -> list[Problem]:
    rng = random.Random(seed)
    return [draw(rng, f"{i}", sizes, "U", small_dimensions=False) for i in range(count)]


@pytest.mark.parametrize("model", [BY_HOST, BY_AXIS], ids=lambda model: model.name)
@pytest.mark.parametrize("sizes", [(4, 8), (4, 2, 4), (2, 2, 2, 4)])
def test_slow_links_carry_little_more_than_they_must(model: LatencyBandwidth, sizes: tuple[int, ...]) -> None:
    if sizes[0] != 4 and model is BY_AXIS:
        pytest.skip("its slow axis has four devices")
    ratios = []
    for problem in problems(sizes, 40, seed=12):
        plan = rd.synthesize(problem.source, problem.target, problem.axes, cost_model=model)
        bound = crossing_bound(plan.before, plan.after)
        crossed = sum(crossing(step) for step in plan.steps)
        assert crossed >= bound
        if bound:
            ratios.append(crossed / bound)
    assert len(ratios) >= 20
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) <= 1.1


def test_equal_links_are_one_class() -> None:
    """With one bandwidth the topology changes nothing: it is the paper's graph."""
    alike = LatencyBandwidth("alike", LATENCY, bandwidth=FAST, memory_bandwidth=1e12)
    by_axis = LatencyBandwidth(
        "alike", LATENCY, bandwidth=FAST, memory_bandwidth=1e12, axis_bandwidth={"x": FAST, "y": FAST}
    )
    for problem in problems((4, 8), 25, seed=3):
        plans = [
            rd.synthesize(problem.source, problem.target, problem.axes, cost_model=model) for model in (alike, by_axis)
        ]
        assert plans[0].steps == plans[1].steps


def test_a_replica_on_the_same_host_is_the_sender() -> None:
    # every host holds the whole array, so nothing needs to cross
    plan = rd.synthesize("[1024{a}2048, 2048]", "[2048, 1024{a}2048]", {"h": 4, "b": 4, "a": 2}, cost_model=BY_HOST)
    assert sum(crossing(step) for step in plan.steps) == 0


@pytest.mark.parametrize(("source", "target"), [("[n{x}, n]", "[n{z}, n]"), ("[n{x,y}, n]", "[n, n]")])
def test_devices_of_a_host_share_what_comes_from_other_hosts(source: str, target: str) -> None:
    """Every device of a host wants the same tile, or more; each of its bytes comes to the host once."""
    mesh, size = {"x": 2, "y": 2, "z": 2, "u": 4}, 1 << 11

    def of(text: str) -> str:
        for name, cut in (("{x,y}", 4), ("{x}", 2), ("{z}", 2)):
            text = text.replace(f"n{name}", f"{size // cut}{name}{size}")
        return text.replace("n", str(size))

    plan = rd.synthesize(of(source), of(target), mesh, cost_model=BY_HOST)
    assert sum(crossing(step) for step in plan.steps) == crossing_bound(plan.before, plan.after)
