"""Every ordered pair of types on small meshes, against exhaustive search over actual placements.

The shape is N in every dimension for N devices, so every cut that the mesh allows divides. All pairs are tried, none is
left out for symmetry. On up to 8 devices the paper's plans are held against the true optimum over low-level sequences
with free choice of groups (`brute_force`), on 12 devices, where placements are too many, against the weak optimum,
which no sequence undercuts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from redistrib.lang.mesh import Mesh
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllPermute
from redistrib.plans.verify import verify
from redistrib.testing import RedistributionCase, all_types, is_exact
from tests.specification.normal import is_normal_form
from tests.synthesis import brute_force

MESHES = ("x=4", "x=6", "x=12", "x=2,y=2", "x=2,y=3", "x=4,y=2", "x=2,y=2,z=2")
RANKS = (1, 2, 3)
# Number of pairs per mesh, for ranks 1, 2 and 3: k axes cut r dimensions in k! C(k + r - 1, r - 1) ways.
PAIRS = {1: (4, 9, 16), 2: (25, 121, 361), 3: (256, 2401, 11236)}
CHUNKS = 8  # of the largest case, of which one is for the long tests, and those after it for `make exhaustive`

CASES = [
    pytest.param(
        mesh,
        rank,
        part,
        parts,
        id=f"{mesh}-rank{rank}" + (f"-{part}" if parts > 1 else ""),
        marks=[[], [pytest.mark.long], [pytest.mark.exhaustive]][min(part, 2)],
    )
    for mesh in MESHES
    for rank in RANKS
    for parts in ([CHUNKS] if (mesh, rank) == ("x=2,y=2,z=2", 3) else [1])
    for part in range(parts)
]


def pairs(text: str, rank: int, part: int = 0, parts: int = 1) -> Iterator[RedistributionCase]:
    mesh = Mesh.of(text)
    types = list(all_types(mesh, (mesh.size,) * rank))
    assert len(types) ** 2 == PAIRS[len(mesh.axes)][rank - 1]
    for source, target in itertools.product(types[part::parts], types):
        yield RedistributionCase(source, target, mesh, mesh)


def optimum(plan: Plan, bounded: bool, permutes: bool = True) -> float:
    before = (plan.before.grid, plan.before.number)
    after = (plan.after.grid, plan.after.number)
    least = brute_force.optimum(before, after, bounded, permutes)
    return least * (math.prod(plan.shape) // plan.devices)


def check_paper(plan: Plan) -> None:
    if plan.devices <= 8:
        least, anywhere = optimum(plan, bounded=True), optimum(plan, bounded=False)
        # No choice of groups, permute priced in, is cheaper within the memory bound.
        assert plan.cost == least
        # Theorem 6.7, with the optimum not held to the memory bound, and as sharpened: plus the smaller tile only.
        assert plan.cost <= anywhere + min(plan.before.tile_size, plan.after.tile_size)
        if any(step.kind == "allpermute" for step in plan.steps):
            assert optimum(plan, bounded=True, permutes=False) > plan.cost
    else:
        weak = brute_force.weak_distances(plan.devices, plan.before.grid)[plan.after.grid]
        assert plan.cost == weak * (math.prod(plan.shape) // plan.devices)
    assert is_normal_form([step.kind for step in plan.steps])
    assert sum(step.kind == "allpermute" for step in plan.steps) <= 1
    for step in plan.steps:
        if isinstance(step, AllPermute):  # names only the devices that move
            moving = np.flatnonzero(step.before.number != step.after.number)
            assert sorted(step.pairs[:, 1].tolist()) == moving.tolist()


@pytest.mark.parametrize(("mesh", "rank", "part", "parts"), CASES)
def test_paper_plans_are_right_small_and_cheapest(mesh: str, rank: int, part: int, parts: int) -> None:
    for pair in pairs(mesh, rank, part, parts):
        plan = pair.plan("paper", "paper")
        assert verify(plan) is plan
        assert is_exact(plan), str(pair)
        assert plan.height <= max(pair.source.local_size, pair.target.local_size)
        check_paper(plan)


@pytest.mark.parametrize(("mesh", "rank", "part", "parts"), CASES)
def test_best_plans_are_right_small_and_receive_the_lower_bound(mesh: str, rank: int, part: int, parts: int) -> None:
    for pair in pairs(mesh, rank, part, parts):
        plan = pair.plan("best", "exact")
        assert verify(plan) is plan
        assert is_exact(plan), str(pair)
        assert plan.height <= max(pair.source.local_size, pair.target.local_size)
        assert plan.received == plan.lower_bound


# --------------------------------------------------------------------------------- the oracle itself, by hand


def test_oracle_knows_the_price_of_a_permute() -> None:
    """[{x}, {y}] -> [{y}, {x}] on 2 x 2: one permute of a tile, or three all-to-alls to free rows and columns."""
    before = ((2, 2), np.array([0, 1, 2, 3]))
    after = ((2, 2), np.array([0, 2, 1, 3]))
    assert brute_force.optimum(before, after, bounded=True) == 1
    assert brute_force.optimum(before, after, bounded=True, permutes=False) == 3


def test_oracle_reorders_axes_by_two_all_to_alls_or_by_gathering_everything() -> None:
    held, wanted = np.array([0, 1, 2, 3]), np.array([0, 2, 1, 3])
    assert brute_force.optimum(((4, 1), held), ((4, 1), wanted), bounded=True) == 1
    assert brute_force.optimum(((4, 1), held), ((4, 1), wanted), bounded=True, permutes=False) == 2
    assert math.isinf(brute_force.optimum(((4,), held), ((4,), wanted), bounded=True, permutes=False))
    assert brute_force.optimum(((4,), held), ((4,), wanted), bounded=False, permutes=False) == 4


def test_oracle_prices_gathers_by_what_they_leave() -> None:
    whole = ((1, 1), np.zeros(6, dtype=np.int64))
    rows = ((6, 1), np.arange(6))
    assert brute_force.optimum(rows, whole, bounded=True) == 6
    assert brute_force.optimum(whole, rows, bounded=True) == 0
    assert brute_force.optimum(rows, ((1, 6), np.arange(6)), bounded=True) == 1
