"""Height: without a memory limit of its own no plan has a tile above the larger of source and target (Theorem 4.8)."""

from __future__ import annotations

from hypothesis import given

from redistrib.plans.plan import Plan
from redistrib.plans.reference import run_step, scatter
from redistrib.testing import numbered, plans


@given(plans((("best", "exact"), ("best", "tpu"), ("best", "cpu"), ("paper", "paper"), ("paper", "exact"))))
def test_no_tile_is_larger_than_source_and_target(plan: Plan) -> None:
    assert plan.height == max(plan.source.local_size, plan.target.local_size)


@given(plans())
def test_the_height_is_what_devices_hold(plan: Plan) -> None:
    tiles = scatter(numbered(plan.shape), plan.before)
    largest = max(tile.size for tile in tiles)
    for step in plan.steps:
        tiles = run_step(step, tiles)
        largest = max(largest, *(tile.size for tile in tiles))
    assert plan.height == largest
