"""Writes, carried out on NumPy tiles, leave what the reference leaves, whatever idle devices write in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from redistrib.plans.plan import Plan
from redistrib.plans.reference import Tile, scatter
from redistrib.plans.steps import DynSlice, Step
from redistrib.plans.writes import Write, in_parts, schedule
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.testing import RedistributionCase, numbered, plans, redistributions
from redistrib.theory.placement import Placement
from tests.plans.hand import GOOD

GARBAGE = -1


def carried_out(writes: Iterable[Write], after: Placement, tiles: Sequence[Tile]) -> list[Tile]:
    """The output tiles; a device that receives nothing in a turn has garbage to write."""
    result = [np.full(after.tile, GARBAGE) for _ in tiles]
    for write in writes:
        read = [tile[_window(start, write.size)] for tile, start in zip(tiles, write.source.tolist(), strict=True)]
        if write.pairs is not None:
            sent = dict(zip(write.pairs[:, 1].tolist(), write.pairs[:, 0].tolist(), strict=True))
            assert len(sent) == len(write.pairs) == len(set(sent.values()))
            read = [read[sent[d]] if d in sent else np.full(write.size, GARBAGE) for d in range(len(tiles))]
        for d, start in enumerate(write.target.tolist()):
            if write.mask is None or write.mask[d]:
                result[d][_window(start, write.size)] = read[d]
    return result


def _window(start: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))


def by_parity(write: Write) -> list[Write]:
    """Even senders first, then odd ones, where there are both and each moves more than one element."""
    assert write.pairs is not None
    late = write.pairs[:, 0] % 2 == 1
    if write.padded is not None or write.volume == 1 or late.all() or not late.any():
        return [write]
    return [write.between(write.pairs[~late]), write.between(write.pairs[late])]


def check(held: Placement, step: Step, largest: int) -> None:
    """Whole writes, and writes in parts of at most so many elements, each on its own."""
    whole = numbered(step.before.shape)
    if not whole.size:
        return
    tiles, expected = scatter(whole, held), scatter(whole, step.after)
    writes = schedule(held, step)
    parts = [part for write in writes for part in in_parts(replace(write, padded=None), largest)]
    assert all(part.volume <= max(1, largest) for part in parts)
    turns = schedule(held, step, by_parity)
    for order in (writes, parts, turns, [replace(write, padded=None) for write in turns]):
        for got, wanted in zip(carried_out(order, step.after, tiles), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def check_all(plan: Plan, largest: int) -> None:
    """Every step that communicates, and every one after a slice from the larger tile."""
    earlier: Step | None = None
    for step in plan.steps:
        if not isinstance(step, DynSlice):
            check(step.before, step, largest)
            if isinstance(earlier, DynSlice):
                check(earlier.before, step, largest)
        earlier = step


@pytest.mark.parametrize("name", GOOD)
def test_steps_by_hand(name: str) -> None:
    check_all(GOOD[name](), largest=2)


@settings(max_examples=60)
@given(plans(max_devices=12), st.integers(0, 20))
def test_steps_of_any_plan(plan: Plan, largest: int) -> None:
    check_all(plan, largest)


@settings(max_examples=40)
@given(redistributions(max_devices=12, max_size=2_000), st.integers(0, 20))
def test_direct_exchanges(case: RedistributionCase, largest: int) -> None:
    for (step,) in in_rounds(Problem.plain(case.before, case.after)):
        check(case.before, step, largest)


def test_gathers_of_two_take_turns_without_a_mask() -> None:
    """Who receives in the other turn writes where what it keeps will stand; so nothing is put back."""
    (step,) = rd.synthesize("[4{x}8, 6]", "[8, 6]", {"x": 2, "y": 2}).steps
    writes = schedule(step.before, step, by_parity)
    assert [None if write.pairs is None else len(write.pairs) for write in writes] == [2, 2, None]
    assert not any(write.masked for write in writes)
    for one, other in combinations(writes[:2], 2):
        assert one.pairs is not None and other.pairs is not None
        assert not set(one.pairs[:, 0]) & set(other.pairs[:, 0])
    check(step.before, step, largest=5)
