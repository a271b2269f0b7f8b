"""Soundness of `verify`: a plan that it accepts, however it came about, is carried out exactly by the reference.

Plans are broken at random. Most are refused; those that are accepted must still be right, in every element.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redistrib.errors import VERIFICATION_RULES, RedistribError, VerificationError
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.plans.verify import verify
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.testing import is_exact, plans, redistributions
from redistrib.theory.placement import Placement
from tests.plans.columns import columns_of, table_of

WHOLE = 10**9  # a bound that nothing exceeds
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def plans_to_break(draw: st.DrawFn) -> Plan:
    """What the synthesis finds, or the direct exchange, which it would seldom choose."""
    if draw(st.booleans()):
        return draw(plans(max_devices=12).filter(lambda plan: plan.steps))
    pair = draw(redistributions(max_devices=12).filter(lambda pair: pair.before != pair.after))
    steps = draw(st.sampled_from(in_rounds(Problem.plain(pair.before, pair.after))))
    return replace(pair.plan(), steps=tuple(steps))


def broken_array(rng: random.Random, array: np.ndarray, limit: int) -> np.ndarray:
    """The array with two entries swapped, one entry changed, or one row dropped or doubled."""
    result = array.copy()
    if not result.size:
        return result
    row = rng.randrange(len(result))
    how = rng.choice(["swap", "change", "drop", "double"])
    if how == "drop":
        return np.delete(result, row, axis=0)
    if how == "double":
        return np.insert(result, row, result[row], axis=0)
    flat = result.reshape(-1)
    a, b = rng.randrange(flat.size), rng.randrange(flat.size)
    if how == "swap":
        flat[[a, b]] = flat[[b, a]]
    else:
        flat[a] = rng.randint(0, max(0, limit))
    return result


def broken_placement(rng: random.Random, placement: Placement) -> Placement:
    """Two devices change places, or one goes elsewhere."""
    index = placement.index.copy()
    if index.size:
        a, b = rng.randrange(len(index)), rng.randrange(len(index))
        if rng.random() < 0.5:
            index[[a, b]] = index[[b, a]]
        else:
            column = rng.randrange(index.shape[1])
            index[a, column] = rng.randrange(placement.grid[column])
    return Placement(placement.shape, placement.grid, index)


def broken_step(rng: random.Random, step: Step) -> Step:
    where = rng.choice(["before", "after", "movement", "movement"])
    if where != "movement" or isinstance(step, DynSlice):
        side = "before" if where == "before" else "after"
        return replace(step, **{side: broken_placement(rng, getattr(step, side))})
    if isinstance(step, AllGather | AllToAll):
        return replace(step, groups=broken_array(rng, step.groups, step.devices))
    if isinstance(step, AllPermute):
        return replace(step, pairs=broken_array(rng, step.pairs, step.devices))
    assert isinstance(step, Exchange)
    columns = columns_of(step.shares)
    if rng.random() < 0.3 and len(step.shares):
        row = rng.randrange(len(step.shares))
        columns = {name: np.delete(column, row, axis=0) for name, column in columns.items()}
    else:
        name = rng.choice(sorted(columns))
        limits = {"sender": step.devices - 1, "receiver": step.devices - 1, "round": step.shares.rounds}
        limit = limits.get(name, max(step.before.shape, default=0))
        columns[name] = broken_array(rng, columns[name], limit)
    return replace(step, shares=table_of(**columns))


def broken_plan(rng: random.Random, plan: Plan) -> Plan:
    """The plan with one to three faults.

    Raises:
        RedistribError: where a fault is such that no step or placement can have it.
    """
    steps = list(plan.steps)
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(steps)), rng.randrange(len(steps))
        fault = rng.choice(["step", "step", "step", "joint", "joint", "drop", "double", "swap"])
        if fault == "step":
            steps[at] = broken_step(rng, steps[at])
        elif fault == "joint":  # both sides of a joint alike, so that the steps stay connected
            middle = broken_placement(rng, steps[at].after)
            steps[at] = replace(steps[at], after=middle)
            if at + 1 < len(steps):
                steps[at + 1] = replace(steps[at + 1], before=middle)
        elif fault == "drop" and len(steps) > 1:
            del steps[at]
        elif fault == "double":
            steps.insert(at, steps[at])
        elif fault == "swap":
            steps[at], steps[other] = steps[other], steps[at]
    return replace(plan, steps=tuple(steps))


@given(plans_to_break(), SEEDS)
@settings(max_examples=150)
def test_what_is_accepted_is_exact(plan: Plan, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        try:
            broken = verify(broken_plan(rng, plan), bound=WHOLE)
        except RedistribError:
            continue  # refused by verify, or such that no step can be made of it; any other exception is a failure
        assert is_exact(broken)
        assert all(got >= least for got, least in zip(broken.received, broken.lower_bound, strict=True))


@given(plans_to_break(), SEEDS)
@settings(max_examples=40)
def test_faults_are_refused_each_by_a_rule_of_its_own(plan: Plan, seed: int) -> None:
    """That the faults are faults: of 25 broken plans some are refused."""
    rng, refused = random.Random(seed), 0
    for _ in range(25):
        try:
            broken = broken_plan(rng, plan)
        except RedistribError:
            refused += 1
            continue
        try:
            verify(broken, bound=WHOLE)
        except VerificationError as error:
            assert error.rule in VERIFICATION_RULES
            refused += 1
    assert refused or plan.devices <= 2


@given(plans(max_devices=12), st.data())
def test_a_plan_that_leaves_out_a_step_is_refused(plan: Plan, data: st.DataObject) -> None:
    if plan.steps:
        at = data.draw(st.integers(0, len(plan.steps) - 1))
        with pytest.raises(VerificationError):
            verify(replace(plan, steps=plan.steps[:at] + plan.steps[at + 1 :]), bound=WHOLE)


@given(plans(max_devices=12))
def test_a_tile_above_the_bound_is_refused(plan: Plan) -> None:
    assert verify(plan, bound=plan.height) is plan
    with pytest.raises(VerificationError):
        verify(plan, bound=plan.height - 1)
