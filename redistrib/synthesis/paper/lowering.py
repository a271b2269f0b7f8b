"""From a weak path to placements, groups and steps (Section 6.1, without its axes).

The lowering does not search for paths. It chooses the tile of every device so that the path ends at the target
placement. Where the path cannot, it adds one permute, at the smallest tile of the path (Section 7.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Step
from redistrib.synthesis.groups import CoarseCells, all_to_all_groups, assign_tiles, chunk_groups, permutation_pairs
from redistrib.synthesis.problem import Problem
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, common


def lower(grids: Sequence[Grid], problem: Problem) -> list[Step]:
    """Steps along a path of grids, from the source placement to the target placement.

    Without a permute wherever the choices made here reach the target; otherwise with one.
    """
    steps = lower_straight(grids, problem)
    return lower_with_permute(grids, problem) if steps is None else steps


def lower_straight(grids: Sequence[Grid], problem: Problem) -> list[Step] | None:
    """Steps along a path of grids without a permute; None where the choices made here do not reach the target."""
    source, target = problem.before, problem.after
    untouched = _common_of(grids)
    if not np.array_equal(source.coarse(untouched), target.coarse(untouched)):
        return None
    straight = chain(grids, source, target, problem.topology)
    return connect(straight) if straight[-1] == target else None


def lower_with_permute(grids: Sequence[Grid], problem: Problem) -> list[Step]:
    """Steps along a path of grids with one permute, at that smallest tile of the path where the fewest devices move."""
    source, target, topology = problem.before, problem.after, problem.topology
    back = chain(grids[::-1], target, source, topology)[::-1]
    smallest = max(math.prod(grid) for grid in grids)
    best: tuple[int, list[Placement]] = (0, [])
    fewest = math.inf
    for t in (t for t, grid in enumerate(grids) if math.prod(grid) == smallest):
        chained = chain(grids[: t + 1], source, back[t], topology)
        moves = int((chained[-1].number != back[t].number).sum())
        # Among equal numbers the later position wins: nearer to the gathers, further from the slices.
        if moves <= fewest:
            fewest, best = moves, (t, chained)
    t, chained = best
    permute: list[Step] = []
    if fewest:
        permute = [AllPermute(chained[-1], back[t], permutation_pairs(chained[-1], back[t], topology))]
    return [*connect(chained), *permute, *connect(back[t:])]


def chain(grids: Sequence[Grid], source: Placement, target: Placement, topology: Topology) -> list[Placement]:
    """Placements on the given grids, each reachable from the last by one weak collective, starting at the source.

    Each device moves towards its target tile as far as its cell allows. Digits that no later step may change are taken
    from the target first. The other digits are spread evenly over the choices of later steps.
    """
    placements = [source]
    for t in range(1, len(grids)):
        cells = common(grids[t - 1], grids[t])
        inside = CoarseCells.of(placements[-1], cells)
        if cells == grids[t]:
            placements.append(Placement.unchecked(source.shape, cells, inside.index))
            continue
        fixed = _common_of(grids[t:])
        grid = common(fixed, target.grid)
        later = common(_common_of(grids[_lifetime(grids, t, cells, fixed) :]), target.grid)
        placements.append(
            assign_tiles(
                source.shape,
                inside,
                grids[t],
                prefer=CoarseCells.of(target, grid),
                spread=CoarseCells.of(target, later).number,
                topology=topology,
            )
        )
    return placements


def _common_of(grids: Sequence[Grid]) -> Grid:
    result = grids[0]
    for grid in grids[1:]:
        result = common(result, grid)
    return result


def _lifetime(grids: Sequence[Grid], t: int, cells: Grid, fixed: Grid) -> int:
    """The last point of the path at which something freely chosen at point t still stands."""
    settled = tuple(math.lcm(c, f) for c, f in zip(cells, fixed, strict=True))
    standing, last = grids[t], t
    for s in range(t, len(grids)):
        standing = common(standing, grids[s])
        if all(b % a == 0 for a, b in zip(standing, settled, strict=True)):
            break
        last = s
    return last


def connect(placements: Sequence[Placement]) -> list[Step]:
    """The steps between successive placements that are one collective apart."""
    steps: list[Step] = []
    for before, after in pairwise(placements):
        if before == after:
            continue
        cells = common(before.grid, after.grid)
        if cells == before.grid:
            steps.append(DynSlice(before, after))
        elif cells == after.grid:
            steps.append(AllGather(before, after, chunk_groups(before, cells)))
        else:
            steps.append(AllToAll(before, after, all_to_all_groups(before, after)))
    return steps
