"""Two definitions that must agree: what `verify` accepts, the reference carries out exactly, and what it refuses for
its contents, the reference gets wrong. Held on plans by hand and by synthesis, mutated at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from redistrib import errors
from redistrib.plans.plan import Plan
from redistrib.plans.reference import run, run_step, scatter
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.plans.transfers import Transfers
from redistrib.plans.verify import verify
from redistrib.testing import plans
from redistrib.theory.placement import Int64, Placement
from tests.plans.columns import columns_of, table_of
from tests.plans.corrupt import moved
from tests.plans.hand import GOOD, array_for

# refused because the step would not leave every device with its tile; all other rules are about form
ABOUT_CONTENTS = (
    "slice outside tile",
    "disjoint members",
    "repeated chunk",
    "member order",
    "permuted tile",
    "idle tile",
    "uncovered tile",
)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
SAMPLES = pytest.mark.parametrize(
    "examples", [pytest.param(150, marks=pytest.mark.long), pytest.param(1000, marks=pytest.mark.exhaustive)]
)


def some_plans() -> st.SearchStrategy[Plan]:
    """Correct plans of at least one step."""
    by_hand = st.sampled_from([name for name, make in GOOD.items() if make().steps]).map(lambda name: GOOD[name]())
    found = plans(max_devices=12).map(lambda made: made if made.steps else GOOD["three phases"]())
    return st.one_of(by_hand, found)


@st.composite
def mutants(draw: st.DrawFn) -> Plan:
    """A correct plan with one to three things in it changed; many stay correct."""
    made = original = draw(some_plans())
    for _ in range(draw(st.integers(1, 3))):
        steps = list(made.steps)
        k = draw(st.integers(0, len(steps) - 1))
        what = draw(st.sampled_from(["placement", "table", "table", "table", "kind", "order"]))
        try:
            if what == "placement":
                changed = draw(changed_placement(steps[k].after))
                steps[k] = replace(steps[k], after=changed)
                if k + 1 < len(steps):
                    steps[k + 1] = replace(steps[k + 1], before=changed)
            elif what == "order":
                other = draw(st.integers(0, len(steps) - 1))
                steps[k], steps[other] = steps[other], steps[k]
            else:
                steps[k] = draw(changed_table(steps[k]) if what == "table" else changed_kind(steps[k]))
        except (errors.PlanFormError, errors.PlacementError):
            continue
        made = replace(made, steps=tuple(steps))
    assume(made != original)
    return made


@st.composite
def changed_placement(draw: st.DrawFn, placement: Placement) -> Placement:
    """Another tile on one device, or two devices' tiles swapped."""
    device = draw(st.integers(0, placement.devices - 1))
    if draw(st.booleans()):
        other = draw(st.integers(0, placement.devices - 1))
        table = placement.index.copy()
        table[[device, other]] = table[[other, device]]
        return Placement(placement.shape, placement.grid, table)
    return moved(placement, device, [draw(st.integers(0, count - 1)) for count in placement.grid])


@st.composite
def changed_numbers(draw: st.DrawFn, table: Int64, devices: int) -> Int64:
    """A table of device numbers with two entries swapped, rows swapped, or one entry replaced."""
    result = table.copy()
    if not result.size:
        return result
    flat = result.reshape(-1)
    a, b = (draw(st.integers(0, flat.size - 1)) for _ in range(2))
    match draw(st.sampled_from(["swap", "rows", "replace", "columns"])):
        case "swap":
            flat[[a, b]] = flat[[b, a]]
        case "rows":
            result = result[np.array(draw(st.permutations(range(len(result)))))]
        case "columns":
            result = result[:, np.array(draw(st.permutations(range(result.shape[1]))))]
        case "replace":
            flat[a] = draw(st.integers(-1, devices))
    return result


@st.composite
def changed_table(draw: st.DrawFn, step: Step) -> Step:
    match step:
        case AllGather() | AllToAll():
            return replace(step, groups=draw(changed_numbers(step.groups, step.devices)))
        case AllPermute():
            pairs = draw(changed_numbers(step.pairs, step.devices))
            return replace(step, pairs=pairs[draw(st.integers(0, 1)) :])
        case Exchange():
            return replace(step, shares=draw(changed_shares(step.shares, step.devices)))
    return step


@st.composite
def changed_shares(draw: st.DrawFn, shares: Transfers, devices: int) -> Transfers:
    """Shares with one left out, doubled, cut in two, sent by another device, or moved."""
    if not len(shares):
        return shares
    columns = columns_of(shares)
    k = draw(st.integers(0, len(shares) - 1))
    match draw(st.sampled_from(["drop", "double", "cut", "sender", "receiver", "round", "start", "size", "swap"])):
        case "drop":
            return table_of(**{name: np.delete(column, k, axis=0) for name, column in columns.items()})
        case "double":
            columns = {name: np.concatenate([column, column[k : k + 1]]) for name, column in columns.items()}
            columns["round"][-1] = shares.rounds
        case "cut" if shares.box.start.shape[1]:
            i = draw(st.integers(0, shares.box.start.shape[1] - 1))
            first = draw(st.integers(1, max(1, int(shares.box.size[k, i]) - 1)))
            columns = {name: np.concatenate([column, column[k : k + 1]]) for name, column in columns.items()}
            columns["size"][k, i], columns["size"][-1, i] = first, columns["size"][k, i] - first
            columns["start"][-1, i] += first
            columns["round"][k], columns["round"][-1] = shares.rounds, shares.rounds + 1
        case "sender" | "receiver" as name:
            columns[name][k] = draw(st.integers(0, devices - 1))
        case "round":
            columns["round"][k] = draw(st.integers(0, shares.rounds))
        case "start" | "size" as name if shares.box.start.shape[1]:
            columns[name][k, draw(st.integers(0, shares.box.start.shape[1] - 1))] += draw(st.integers(-2, 2))
        case "swap":
            other = draw(st.integers(0, len(shares) - 1))
            columns["sender"][[k, other]] = columns["sender"][[other, k]]
    return table_of(**columns)


@st.composite
def changed_kind(draw: st.DrawFn, step: Step) -> Step:
    """The same placements under a step of another kind; often another way to say the same."""
    singles = np.arange(step.devices).reshape(-1, 1)
    groups = getattr(step, "groups", singles)
    return draw(
        st.sampled_from(
            [
                DynSlice(step.before, step.after),
                AllGather(step.before, step.after, groups),
                AllToAll(step.before, step.after, groups),
                AllPermute(
                    step.before, step.after, groups if groups.shape[1] == 2 else np.zeros((0, 2), dtype=np.int64)
                ),
            ]
        )
    )


def is_carried_out_exactly(mutant: Plan) -> None:
    """Where it is accepted."""
    try:
        verify(mutant, bound=10**9)
    except errors.VerificationError as error:
        event(error.rule)
        return
    event("accepted")
    array = array_for(mutant)
    for tile, expected in zip(run(mutant, scatter(array, mutant.before)), scatter(array, mutant.after), strict=True):
        np.testing.assert_array_equal(tile, expected)


def goes_wrong(mutant: Plan) -> None:
    """Where it is refused for its contents."""
    try:
        verify(mutant, bound=10**9)
    except errors.VerificationError as error:
        if error.rule not in ABOUT_CONTENTS:
            return
        assert error.step is not None
        step = mutant.steps[error.step - 1]
    else:
        return
    array = array_for(mutant)
    if not array.size:
        return
    try:
        tiles = run_step(step, scatter(array, step.before))
    except errors.TilesError:
        return
    assert not all(map(np.array_equal, tiles, scatter(array, step.after)))


@SAMPLES
def test_what_is_accepted_is_carried_out_exactly(examples: int) -> None:
    settings(max_examples=examples, suppress_health_check=SLOW)(given(mutants())(is_carried_out_exactly))()


@SAMPLES
def test_what_is_refused_for_its_contents_goes_wrong(examples: int) -> None:
    settings(max_examples=examples, suppress_health_check=SLOW)(given(mutants())(goes_wrong))()
