"""Plans between device sets that the search emits: problems as in `corpus`, each side on some of the devices."""

from __future__ import annotations

import random
from collections.abc import Iterator

from proofs.bridge.corpus import MESHES, ONE_CALL, Sample, larger_end, types, varied, ways_of
from redistrib import Mesh, synthesize
from redistrib.cost.collective import Latency
from redistrib.cost.latency import LatencyBandwidth
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, DynSlice, Exchange

SET_WAYS = (
    "sets apart", "sets that overlap", "fewer devices of the same", "more devices than before",
    "devices in neither set", "pulled directly", "across, then gathered", "inside the source, then across",
    "sliced in place", "other tiles between",
)  # fmt: skip
LATENCY = {kind: Latency(5e-6, 1e-7) for kind in ("allgather", "alltoall", "allpermute")}
SLOW = LatencyBandwidth("slow between", LATENCY, 200e9, 1e12, slow_bandwidth=2e9)
MODELS = ("exact", "exact", SLOW, SLOW, "tpu", "cpu", ONE_CALL)


def sets_corpus(count: int, seed: int = 17) -> list[Sample]:
    """That many different plans between device sets, at most a quarter of them using the very same ways."""
    plans = ((plan, larger_end(plan), ways_of(plan) | set_ways_of(plan)) for plan in _plans(random.Random(seed)))
    return varied(plans, count, 4)


def _plans(rng: random.Random) -> Iterator[Plan]:
    """Endless plans in which some device holds nothing at an end."""
    meshes = [mesh for mesh in map(Mesh.of, MESHES) if mesh.size <= 12]
    while True:
        here, there = rng.choice(meshes), rng.choice(meshes)
        if rng.random() < 0.4:  # apart
            order = rng.sample(range(here.size + there.size), here.size + there.size)
            devices, others = order[: here.size], order[here.size :]
        else:
            count = max(here.size, there.size) + rng.choice((0, 1, 2))
            devices, others = (rng.sample(range(count), mesh.size) for mesh in (here, there))
        here, there = Mesh(here.axes, tuple(devices)), Mesh(there.axes, tuple(others))
        source, target = types(rng, here, there)
        if not source.rank:
            continue
        if rng.random() < 0.1 and there.size <= here.size:  # whole wherever it is wanted
            source = DistType(tuple(DimType(dim.size, (), dim.size) for dim in source.dims))
            there = Mesh(there.axes, tuple(rng.sample(here.devices, there.size)))
        if here.size == there.size == max(here.span, there.span):
            continue
        yield synthesize(str(source), str(target), here, target_mesh=there, machine=rng.choice(MODELS))


def set_ways_of(plan: Plan) -> frozenset[str]:
    """Which of `SET_WAYS` a plan uses."""
    return frozenset((*_sets(plan), *_shapes(plan)))


def _sets(plan: Plan) -> Iterator[str]:
    source, target = set(plan.source_mesh.devices), set(plan.target_mesh.devices)
    if not source & target:
        yield "sets apart"
    elif source > target:
        yield "fewer devices of the same"
    elif source < target:
        yield "more devices than before"
    elif source != target:
        yield "sets that overlap"
    if set(range(plan.devices)) - source - target:
        yield "devices in neither set"


def _shapes(plan: Plan) -> Iterator[str]:
    kinds = [type(step) for step in plan.steps]
    crosses = [step.after.nowhere.tolist() != step.before.nowhere.tolist() for step in plan.steps]
    if kinds == [Exchange]:
        yield "pulled directly"
    if kinds == [DynSlice]:
        yield "sliced in place"
    if any(crosses[:-1]) and kinds[-1] is AllGather:
        yield "across, then gathered"
    if any(crosses[1:]) and not crosses[0]:
        yield "inside the source, then across"
    if len(kinds) > 1 and plan.steps[0].after.grid not in (plan.before.grid, plan.after.grid):
        yield "other tiles between"
