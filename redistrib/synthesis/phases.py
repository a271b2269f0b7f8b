"""Candidates of three phases: a slice, one of the exchanges of `exchange`, and a gather.

Every redistribution has a plan of at most three phases, slice, exchange, gather, that costs no more than the
near-optimal sequence of Theorem 6.7 and has its height. This module chooses the two placements between the phases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

from redistrib.arith import divisors
from redistrib.cost.model import PhaseGrids
from redistrib.plans.steps import AllGather, DynSlice, Step
from redistrib.synthesis import exchange, limits
from redistrib.synthesis.groups import CoarseCells, assign_tiles, chunk_groups
from redistrib.synthesis.problem import Problem
from redistrib.theory.classes import LinkClasses, node_of
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, common, nested, scaled


def single(problem: Problem) -> list[Step] | None:
    """Steps with at most one collective that receive exactly the lower bound; None where there are none."""
    for way in (exchange.as_slice, exchange.as_permute, exchange.as_grouped_collective):
        steps = way(problem)
        if steps is not None:
            return steps
    return None


def three_phases(
    problem: Problem, single_steps: list[Step] | None, keep: Callable[[PhaseGrids], bool] = lambda phases: True
) -> Iterator[list[Step]]:
    """Slice, exchange, gather: every useful choice of the two placements between them, the direct exchange first.

    Args:
        problem: source and target.
        single_steps: the result of `single` for the problem.
        keep: whether to build the placements and steps of these grids.
    """
    before, after, topology = problem.before, problem.after, problem.topology
    for cut_grid in _slicings(before, after):
        cut: Placement | None = None
        for part_grid in _gatherings(cut_grid, after, topology):
            phases = PhaseGrids(before.grid, cut_grid, part_grid, after.grid)
            if not keep(phases):
                continue
            if phases.direct:
                yield from _exchanges(problem, single_steps, phases, keep)
                continue
            cut = cut or cut_finer(before, cut_grid, after, topology)
            part = cut_finer(after, part_grid, cut, topology)
            sliced: list[Step] = [] if cut == before else [DynSlice(before, cut)]
            last: list[Step] = []
            if part != after:
                last = [AllGather(part, after, chunk_groups(part, after.grid, topology=topology))]
            inner = problem.between(cut, part)
            for steps in _exchanges(inner, single(inner), phases, keep):
                yield [*sliced, *steps, *last]


def _exchanges(
    problem: Problem, single_steps: list[Step] | None, phases: PhaseGrids, keep: Callable[[PhaseGrids], bool]
) -> Iterator[list[Step]]:
    """Steps from one placement to another without a final gather: `single_steps` if there are any.

    Where links differ, rounds are candidates as well: they choose every sender, so shares may stay within hosts.
    """
    if single_steps is not None:
        yield single_steps
        in_rounds_too = problem.topology.has_locality and any(step.collectives for step in single_steps)
        if in_rounds_too and keep(phases.by("rounds")):
            yield from exchange.in_rounds(problem)
        return
    if keep(phases.by("rounds")):
        yield from exchange.in_rounds(problem)
    for permute_first in (False, True):
        if keep(phases.by("permute")):
            yield from filter(None, [exchange.dense_and_permuted(problem, permute_first)])


def _slicings(before: Placement, after: Placement) -> Iterator[Grid]:
    """The grid of the source, and where grids are not nested, the source cut finer until they are."""
    yield before.grid
    if nested(before.grid, after.grid):
        return
    grid = tuple(
        b if b % a == 0 or a % b == 0 else math.lcm(a, b) for b, a in zip(before.grid, after.grid, strict=True)
    )
    if _exists(before, grid):
        yield grid


def _gatherings(cut: Grid, after: Placement, topology: Topology) -> Iterator[Grid]:
    """The grid of the target, and the target cut finer where replicas can receive different parts and gather them."""
    yield after.grid
    spare = after.devices // after.tiles
    if spare == 1:
        return
    missing = [c // g for c, g in zip(cut, common(cut, after.grid), strict=True)]
    choices = {f for f in product(*(divisors(m) for m in missing)) if math.prod(f) > 1 and spare % math.prod(f) == 0}
    choices |= set(_shared_on_hosts(after, topology))
    for factors in sorted(choices, key=lambda f: (-math.prod(f), f))[: limits.GATHER_FACTORS]:
        grid = tuple(a * f for a, f in zip(after.grid, factors, strict=True))
        if _exists(after, grid):
            yield grid


def _shared_on_hosts(after: Placement, topology: Topology) -> Iterator[Grid]:
    """Factors along one dimension by which the replicas on one host can divide the elements from other hosts."""
    node = None if topology.hosts is None else node_of(after, topology)
    if node is None:
        return
    inside = LinkClasses.of(topology).devices_per_host * math.prod(node[1]) // math.prod(node[0])
    for factor in divisors(inside)[1:]:
        for dim in range(after.rank):
            yield scaled((1,) * after.rank, dim, factor)


def cut_finer(placement: Placement, grid: Grid, near: Placement, topology: Topology) -> Placement:
    """Every tile cut finer; each device keeps a part of its tile, the one that it holds in `near` where possible."""
    if grid == placement.grid:
        return placement
    prefer = CoarseCells.of(near, common(grid, near.grid))
    return assign_tiles(
        placement.shape, CoarseCells(placement.grid, placement.index), grid, prefer, near.number, topology
    )


def _exists(placement: Placement, grid: Grid) -> bool:
    return placement.devices % math.prod(grid) == 0 and all(
        size % count == 0 for size, count in zip(placement.shape, grid, strict=True)
    )
