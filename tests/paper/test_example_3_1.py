"""Example 3.1: `[3{x}12, 2{y}12] -> [2{y}12, 3{x}12]` on `{x:4, y:6}`, where whole axes would gather everything.

What there is to show is the permute. Through the two all-to-alls every device is confined: where it may end depends on
the rows and columns that it shares with where it began. At most 8 devices can be spared the permute that remains, which
is found here by integer programming over all choices, independently of the synthesis. (The types printed in the paper
suggest 12: those with x2 = y2. But that takes the permute between the all-to-alls, which is what is to be avoided.)
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllPermute
from redistrib.synthesis.synthesize import synthesize
from redistrib.testing import is_exact

Grid = tuple[int, int]
MESH = Mesh.of("x=4,y=6")
SOURCE, TARGET = DistType.of("[3{x}12, 2{y}12]"), DistType.of("[2{y}12, 3{x}12]")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return synthesize(SOURCE, MESH, TARGET, MESH, algorithm="paper", model="paper")


def test_two_all_to_alls_and_one_permute_at_the_end(plan: Plan) -> None:
    assert [step.kind for step in plan.steps] == ["alltoall", "alltoall", "allpermute"]
    assert is_exact(plan)


def test_no_tile_ever_exceeds_six_elements(plan: Plan) -> None:
    assert plan.height == 6
    assert plan.cost == 3 * 6


def test_the_permute_names_only_devices_that_move_and_as_few_as_any_lowering(plan: Plan) -> None:
    last = plan.steps[-1]
    assert isinstance(last, AllPermute)
    moving = np.flatnonzero(last.before.number != last.after.number)
    assert sorted(last.pairs[:, 1].tolist()) == moving.tolist()
    middles = [(2, 12), (12, 2)]
    assert tuple(plan.steps[0].after.grid) in middles
    assert len(last.pairs) == min(fewest_moved(middle) for middle in middles) == 16


def test_these_are_all_paths_of_two_all_to_alls() -> None:
    def linked(a: Grid, b: Grid) -> bool:
        return all(x % y == 0 or y % x == 0 for x, y in zip(a, b, strict=True))

    grids = [(a, 24 // a) for a in range(1, 13) if 24 % a == 0 and 12 % a == 0 and 12 % (24 // a) == 0]
    assert [g for g in grids if linked((4, 6), g) and linked(g, (6, 4))] == [(2, 12), (12, 2)]


def test_a_permute_is_unavoidable() -> None:
    """No all-to-all path touches the half of the rows that a device is in: all three grids have an even count of rows.

    In the source that half is x // 2, in the target y // 3, and they differ on 12 devices. One more all-to-all, cost 6
    as the permute, does not change that: with 12 rows and columns, every grid of 24 tiles halves the rows.
    """
    grids = [(a, 24 // a) for a in range(1, 13) if 12 % a == 0 and 24 % a == 0 and 12 % (24 // a) == 0]
    assert all(rows % 2 == 0 for rows, _ in grids)
    x, y = MESH.coordinates.T
    assert int((x // 2 != y // 3).sum()) == 12


def fewest_moved(middle: Grid) -> int:
    """Fewest devices that a final permute must move after all-to-alls (4, 6) -> middle -> (6, 4).

    A variable says that device d goes to tile a of the middle grid and then to tile b of the last one, which is
    possible iff source and a agree on the common grid, and a and b do. Every device goes one way, every tile is held
    once.
    """
    first, last = (4, 6), (6, 4)
    x, y = MESH.coordinates.T
    held, wanted = list(zip(x, y, strict=True)), list(zip(y, x, strict=True))
    ways = [
        (d, a, b)
        for d in range(24)
        for a in np.ndindex(middle)
        if agree(held[d], first, a, middle)
        for b in np.ndindex(last)
        if agree(a, middle, b, last)
    ]
    names: dict[tuple[str, object], int] = {}
    rows, columns = [], []
    for column, (d, a, b) in enumerate(ways):
        for name in (("device", d), ("middle", a), ("last", b)):
            rows.append(names.setdefault(name, len(names)))
            columns.append(column)
    once = coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(names), len(ways)))
    spared = np.array([tuple(wanted[d]) == b for d, _, b in ways], dtype=float)
    found = milp(-spared, constraints=LinearConstraint(once, 1, 1), integrality=np.ones(len(ways)), bounds=Bounds(0, 1))
    assert found.success
    return 24 + round(found.fun)


def agree(i: tuple[int, ...], grid: Grid, j: tuple[int, ...], other: Grid) -> bool:
    """Whether two tiles lie in one cell of the grid that is coarse in both."""
    common = tuple(map(math.gcd, grid, other))
    return all(a // (g // c) == b // (h // c) for a, g, b, h, c in zip(i, grid, j, other, common, strict=True))
