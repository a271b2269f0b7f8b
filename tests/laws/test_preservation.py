"""Preservation: a plan moves data and changes none. Whatever it starts from, every device ends with its target tile."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redistrib.plans.plan import Plan
from redistrib.plans.reference import assemble, run, run_step, scatter
from redistrib.testing import numbered, plans


@given(plans())
def test_every_device_ends_with_its_target_tile(plan: Plan) -> None:
    whole = numbered(plan.shape)
    tiles = run(plan, scatter(whole, plan.before))
    assert np.array_equal(assemble(tiles, plan.after), whole)


@given(plans())
def test_the_whole_array_is_on_the_devices_after_every_step(plan: Plan) -> None:
    whole = numbered(plan.shape)
    tiles = scatter(whole, plan.before)
    for step in plan.steps:
        tiles = run_step(step, tiles)
        assert np.array_equal(assemble(tiles, step.after), whole)


@given(plans(), st.integers(0, 2**32 - 1))
def test_equal_elements_are_moved_as_well_as_different_ones(plan: Plan, seed: int) -> None:
    whole = np.random.default_rng(seed).integers(0, 2, plan.shape, dtype=np.int8)
    tiles = run(plan, scatter(whole, plan.before))
    assert all(np.array_equal(got, want) for got, want in zip(tiles, scatter(whole, plan.after), strict=True))
