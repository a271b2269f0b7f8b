"""Near-optimality (Theorem 6.7, sharpened): within the smaller of the two tiles of the cheapest low-level sequence."""

from __future__ import annotations

import math

from hypothesis import given

from redistrib.cost.paper import PaperCost
from redistrib.lang.types import DimType, DistType
from redistrib.testing import RedistributionCase, redistributions
from redistrib.theory.topology import Topology
from tests.synthesis import brute_force


def roomy(pair: RedistributionCase) -> RedistributionCase:
    """The same cuts of an array in which every dimension can be cut by any divisor of the number of devices."""
    n = pair.mesh.size

    def scaled(dist_type: DistType) -> DistType:
        return DistType(tuple(DimType(dim.tile * n, dim.axes, dim.size * n) for dim in dist_type.dims))

    return RedistributionCase(scaled(pair.source), scaled(pair.target), pair.mesh, pair.target_mesh)


@given(redistributions(max_devices=6, max_rank=3).filter(lambda pair: pair.source.rank > 0))
def test_the_paper_is_within_the_smaller_tile_of_the_true_optimum(pair: RedistributionCase) -> None:
    """The optimum, over all choices of groups and without a memory bound, is found by exhaustion."""
    wide = roomy(pair)
    plan = wide.plan("paper", "paper")
    before, after = ((p.grid, p.number) for p in (plan.before, plan.after))
    unit = math.prod(plan.shape) // plan.devices
    anywhere = brute_force.optimum(before, after, bounded=False) * unit
    assert anywhere <= plan.cost <= anywhere + min(wide.source.local_size, wide.target.local_size)
    assert plan.cost == brute_force.optimum(before, after, bounded=True) * unit


@given(redistributions(max_devices=24))
def test_the_paper_is_within_the_smaller_tile_of_the_weak_optimum(pair: RedistributionCase) -> None:
    """On more devices: no sequence is cheaper than one that may renumber devices for nothing."""
    wide = roomy(pair)
    plan = wide.plan("paper", "paper")
    weak = brute_force.weak_distances(plan.devices, plan.before.grid)[plan.after.grid]
    weak *= math.prod(plan.shape) // plan.devices
    assert weak <= plan.cost <= weak + min(wide.source.local_size, wide.target.local_size)


@given(redistributions())
def test_the_plan_is_priced_as_its_steps_are(pair: RedistributionCase) -> None:
    plan = pair.plan("paper", "paper")
    assert plan.cost == sum(PaperCost().prices(plan.itemsize, Topology(plan.devices)).step(step) for step in plan.steps)


@given(redistributions())
def test_the_best_plan_receives_no_more_than_the_paper(pair: RedistributionCase) -> None:
    best, paper = pair.plan("best", "exact"), pair.plan("paper", "paper")
    assert (sum(best.received), best.collectives) <= (sum(paper.received), paper.collectives)
