"""What `verify` accepts of reductions, the reference carries out right; what it refuses of them goes wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from redistrib.errors import RedistribError, VerificationError
from redistrib.lang.mesh import Mesh
from redistrib.plans.plan import Plan
from redistrib.plans.reference import assemble, run, scatter
from redistrib.plans.steps import AllReduce, ReduceExchange, ReduceScatter, Step, Unreduce
from redistrib.plans.verify import verify
from redistrib.testing import all_partial_types
from redistrib.theory.placement import placement_of
from tests.plans.columns import columns_of, table_of
from tests.plans.hand_partial import PARTIAL, pulled_sums
from tests.plans.sums import digits, whole_of


def is_right(plan: Plan) -> bool:
    """Whether the reference leaves every device with its tile, or its share in the array, under a sum of digits."""
    before, after = plan.before, plan.after
    stack = digits(before)
    whole = whole_of(stack, before)
    try:
        tiles = run(plan, scatter(stack if before.summands > 1 else whole, before))
        if after.summands > 1:
            return np.array_equal(assemble(tiles, after), whole)
    except RedistribError:
        return False
    return all(np.array_equal(got, want) for got, want in zip(tiles, scatter(whole, after), strict=True))


def changed(step: Step, rng: random.Random) -> Step:
    """The step with one number of it changed."""
    devices = step.devices
    if isinstance(step, ReduceExchange):
        columns = columns_of(step.shares)
        if len(step.shares) and rng.random() < 0.8:
            row, name = rng.randrange(len(step.shares)), rng.choice(["sender", "receiver", "start", "size", "none"])
            if name == "none":
                columns = {key: np.delete(value, row, axis=0) for key, value in columns.items()}
            elif columns[name].ndim == 1:
                columns[name][row] = rng.randrange(devices)
            elif columns[name].shape[1]:
                columns[name][row, rng.randrange(columns[name].shape[1])] += rng.choice([-2, -1, 1, 2])
            # so that nothing but what is added is at fault
            columns["round"] = np.arange(len(columns["round"]))
            return replace(step, shares=table_of(**columns))
        middle = sorted(rng.randrange(step.before.summands + 1) for _ in step.splits[1:-1])
        return replace(step, splits=(0, *middle, step.before.summands))
    if isinstance(step, ReduceScatter | AllReduce):
        groups = step.groups.copy()
        a, b = (tuple(rng.randrange(n) for n in groups.shape) for _ in range(2))
        groups[a], groups[b] = groups[b], groups[a]
        return replace(step, groups=groups)
    assert isinstance(step, Unreduce)
    return replace(step, keeps=sorted(rng.sample(range(devices), rng.randrange(devices + 1))))  # type: ignore[arg-type]


def judged(plan: Plan) -> bool:
    try:
        verify(plan, bound=10**6)
    except VerificationError:
        return False
    return True


@pytest.mark.parametrize("mesh", ["x=4", "x=2,y=2", "x=2,y=3"])
def test_an_exchange_that_adds_is_accepted_iff_it_adds_right(mesh: str) -> None:
    rng, over = random.Random(mesh), Mesh.of(mesh)
    types = [*all_partial_types(over, (12,)), *all_partial_types(over, ())]
    accepted = refused = 0
    while refused < 150:
        source, target = rng.choice(types), rng.choice(types)
        if source.rank != target.rank:
            continue
        step = changed(pulled_sums(placement_of(source, over), placement_of(target, over)), rng)
        made = Plan(source, over, target, over, "int64", 8, (step,), "by hand", "exact", 0, "elements")
        right = judged(made)
        # of a partial target another split of the sum would do, where the step says it wrong
        assert right == is_right(made) or (target.partial and not right), step
        accepted, refused = accepted + right, refused + (not right)
    assert accepted > 10


@pytest.mark.parametrize(
    "name", ["reduce-scatter", "reduce-scatter of one axis of two", "cut to partial", "replicated to partial"]
)
def test_a_step_by_hand_is_accepted_iff_it_does_right(name: str) -> None:
    rng, made = random.Random(name), PARTIAL[name]()
    found = set()
    for _ in range(60):
        other = replace(made, steps=(changed(made.steps[0], rng),))
        right = judged(other)
        assert right == is_right(other) or (made.after.summands > 1 and not right), other.steps[0]
        found.add(right)
    assert found == {True, False}
