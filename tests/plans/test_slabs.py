"""Slabs of summands side by side: how many of them a device adds up, and that these are what it is to add."""

from __future__ import annotations

import numpy as np
import pytest

from redistrib.plans.slabs import stacking
from redistrib.plans.steps import Exchange, ReduceExchange
from tests.plans.hand import place
from tests.plans.hand_partial import pulled_sums


@pytest.mark.parametrize(
    ("source", "target", "runs"),
    [
        ("[6] sum{y}", "[6]", [3]),  # all add as many
        ("[6] sum{y}", "[6] sum{x}", [3, 0]),  # three summands into the first of two runs
        ("[3{x}6, 6] sum{y}", "[2{y}6, 6]", [3]),
    ],
)
def test_devices_add_the_slabs_of_their_run(source: str, target: str, runs: list[int]) -> None:
    step = pulled_sums(place(source, "x=2,y=3"), place(target, "x=2,y=3"))
    assert isinstance(step, ReduceExchange)
    assert np.diff(step.splits).tolist() == runs
    stack = stacking(step)
    assert isinstance(stack.step, Exchange)
    own = np.array(runs)[step.after.label]
    if len(set(runs)) == 1:
        assert stack.counts is None
    else:
        assert stack.counts is not None
        assert stack.counts.tolist() == own.tolist()
    # Of every element of its tile a device is sent, or holds, as many slabs as it adds up.
    kept = stack.step.before.boxes.meet(stack.step.after.boxes)
    there = np.where(kept.empty, 0, kept.volumes())
    np.add.at(there, stack.step.shares.receiver, stack.step.shares.box.volumes())
    assert there.tolist() == (own * step.after.tile_size).tolist()
