"""Plans of partial arrays that the search emits: problems as in `corpus`, but axes that cut nothing may be partial."""

from __future__ import annotations

import random
from collections.abc import Iterator

from proofs.bridge.corpus import SEARCHES, Sample, larger_end, problem, varied, ways_of
from redistrib import Mesh, synthesize
from redistrib.lang.notation import REDUCTIONS
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllReduce, ReduceExchange, ReduceScatter, Step, Unreduce

PARTIAL_WAYS = (
    "reduce-scatter", "reduce-scatter over several dimensions", "reduce-scatter of some summands", "all-reduce",
    "reduce-exchange in rounds", "ragged reduce-exchange", "reduce-exchange that leaves summands",
    "summands that stay what they are", "cut to summands", "replicated to summands", "sums", "maxima or minima",
    "reduce, gather", "scalar",
)  # fmt: skip


def partial_corpus(count: int, seed: int = 11) -> list[Sample]:
    """That many different plans of partial arrays, at most a fifth of them using the very same ways."""
    plans = ((plan, larger_end(plan), ways_of(plan) | partial_ways_of(plan)) for plan in _plans(random.Random(seed)))
    return varied(plans, count, 5)


def _plans(rng: random.Random) -> Iterator[Plan]:
    """Endless plans of arrays with elements that are partial at one end or at both."""
    while True:
        mesh, target_mesh, source, target = problem(rng)
        if rng.random() < 0.1:
            source, target = DistType(()), DistType(())
        reduction = rng.choice(("sum", *REDUCTIONS))
        ends = _partial(rng, source, mesh, reduction, 0.7), _partial(rng, target, target_mesh, reduction, 0.25)
        if 0 in source.global_shape or not any(end.partial for end in ends):
            continue
        model = rng.choice([model for algorithm, model in SEARCHES if algorithm == "best"])
        yield synthesize(str(ends[0]), str(ends[1]), mesh, target_mesh=target_mesh, machine=model)


def _partial(rng: random.Random, dist_type: DistType, mesh: Mesh, reduction: str, odds: float) -> DistType:
    """The type with each axis that cuts nothing partial at the given odds."""
    used = {name for dim in dist_type.dims for name in dim.axes}
    names = [name for name in mesh.names if name not in used and rng.random() < odds]
    return DistType.parse(f"{dist_type} {reduction}{{{','.join(names)}}}") if names else dist_type


def partial_ways_of(plan: Plan) -> frozenset[str]:
    """Which of `PARTIAL_WAYS` a plan uses."""
    ways = {way for step in plan.steps for way in _ways_of_step(step)}
    kinds = [type(step) for step in plan.steps]
    if kinds[-1:] == [AllGather] and {ReduceScatter, ReduceExchange} & set(kinds):
        ways.add("reduce, gather")
    if any("reduc" in step.kind for step in plan.steps):
        ways.add("sums" if "sum" in (plan.source.reduction, plan.target.reduction) else "maxima or minima")
    if not plan.before.shape:
        ways.add("scalar")
    return frozenset(ways)


def _ways_of_step(step: Step) -> Iterator[str]:
    before, after = step.before, step.after
    match step:
        case ReduceScatter():
            yield "reduce-scatter"
            if sum(b != a for b, a in zip(before.grid, after.grid, strict=True)) > 1:
                yield "reduce-scatter over several dimensions"
            if after.summands > 1:
                yield "reduce-scatter of some summands"
        case AllReduce():
            yield "all-reduce"
        case ReduceExchange():
            yield "ragged reduce-exchange" if step.implementation == "ragged" else "reduce-exchange in rounds"
            if after.summands > 1:
                yield "reduce-exchange that leaves summands"
        case Unreduce():
            yield "replicated to summands" if before.grid == after.grid else "cut to summands"
        case _:
            if before.summands > 1:
                yield "summands that stay what they are"
