"""The plans worth pricing: slice, exchange, gather in all the ways that `exchange` knows, and the paper's own.

Every redistribution has a plan of at most three phases, slice, exchange, gather, that costs no more than the
near-optimal sequence of Theorem 6.7 and has its height. The phases meet at two placements, chosen here; the rest is in
`exchange`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

from redistrib.arith import divisors
from redistrib.cost.model import PhaseGrids
from redistrib.plans.steps import AllGather, DynSlice, Step
from redistrib.synthesis import exchange
from redistrib.synthesis.grouping import Cells, chunk_groups, refine
from redistrib.synthesis.problem import Problem
from redistrib.theory.classes import LinkClasses, node_of
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, common, nested, scaled

MOST_GATHERS = 24


def single(problem: Problem) -> list[Step] | None:
    """At most one collective, receiving exactly the lower bound; None where there is no such plan here."""
    for way in (exchange.as_slice, exchange.as_permute, exchange.as_grouped_collective):
        steps = way(problem)
        if steps is not None:
            return steps
    return None


def three_phases(
    problem: Problem, one: list[Step] | None, keep: Callable[[PhaseGrids], bool] = lambda phases: True
) -> Iterator[list[Step]]:
    """Slice, exchange, gather: every useful choice of the two placements between, the direct exchange first.

    Args:
        problem: source and target.
        one: what `single` says of it.
        keep: asked of the grids between phases before placements and steps are made for them.
    """
    before, after, topology = problem.before, problem.after, problem.topology
    for cut_grid in _slicings(before, after):
        cut: Placement | None = None
        for part_grid in _gatherings(cut_grid, after, topology):
            phases = PhaseGrids(before.grid, cut_grid, part_grid, after.grid)
            if not keep(phases):
                continue
            if phases.direct:
                yield from _exchanges(problem, one, phases, keep)
                continue
            cut = cut or _refined(before, cut_grid, after, topology)
            part = _refined(after, part_grid, cut, topology)
            sliced: list[Step] = [] if cut == before else [DynSlice(before, cut)]
            last: list[Step] = []
            if part != after:
                last = [AllGather(part, after, chunk_groups(part, after.grid, topology=topology))]
            inner = problem.between(cut, part)
            for steps in _exchanges(inner, single(inner), phases, keep):
                yield [*sliced, *steps, *last]


def _exchanges(
    problem: Problem, one: list[Step] | None, phases: PhaseGrids, keep: Callable[[PhaseGrids], bool]
) -> Iterator[list[Step]]:
    """Ways from one placement to another without a gather of its own at the end: `one` if there is that.

    Where links differ, rounds may still be better: they choose every sender, and so may stay within hosts.
    """
    if one is not None:
        yield one
        apart = problem.topology.tells_apart and any(step.collectives for step in one)
        if apart and keep(phases.by("rounds")):
            yield from exchange.in_rounds(problem)
        return
    if keep(phases.by("rounds")):
        yield from exchange.in_rounds(problem)
    for permute_first in (False, True):
        if keep(phases.by("permute")):
            yield from filter(None, [exchange.dense_and_permuted(problem, permute_first)])


def _slicings(before: Placement, after: Placement) -> Iterator[Grid]:
    """The source's own grid, and where counts do not nest, the source cut finer until they do."""
    yield before.grid
    if nested(before.grid, after.grid):
        return
    grid = tuple(
        b if b % a == 0 or a % b == 0 else math.lcm(a, b) for b, a in zip(before.grid, after.grid, strict=True)
    )
    if _exists(before, grid):
        yield grid


def _gatherings(cut: Grid, after: Placement, topology: Topology) -> Iterator[Grid]:
    """The target's own grid, and the target cut finer where replicas could share the work and gather at the end."""
    yield after.grid
    spare = after.devices // after.tiles
    if spare == 1:
        return
    missing = [c // g for c, g in zip(cut, common(cut, after.grid), strict=True)]
    choices = {f for f in product(*(divisors(m) for m in missing)) if math.prod(f) > 1 and spare % math.prod(f) == 0}
    choices |= set(_shared_on_hosts(after, topology))
    for factors in sorted(choices, key=lambda f: (-math.prod(f), f))[:MOST_GATHERS]:
        grid = tuple(a * f for a, f in zip(after.grid, factors, strict=True))
        if _exists(after, grid):
            yield grid


def _shared_on_hosts(after: Placement, topology: Topology) -> Iterator[Grid]:
    """Factors, along any one dimension, by which the replicas on one host may cut what comes from other hosts."""
    node = None if topology.hosts is None else node_of(after, topology)
    if node is None:
        return
    inside = LinkClasses.of(topology).each * math.prod(node[1]) // math.prod(node[0])
    for factor in divisors(inside)[1:]:
        for dim in range(after.rank):
            yield scaled((1,) * after.rank, dim, factor)


def _refined(placement: Placement, grid: Grid, near: Placement, topology: Topology) -> Placement:
    """Every tile cut finer, each device keeping a part of its own: one that `near` gives it, where there is one."""
    if grid == placement.grid:
        return placement
    prefer = Cells.of(near, common(grid, near.grid))
    return refine(placement.shape, Cells(placement.grid, placement.index), grid, prefer, near.number, topology)


def _exists(placement: Placement, grid: Grid) -> bool:
    return placement.devices % math.prod(grid) == 0 and all(
        size % count == 0 for size, count in zip(placement.shape, grid, strict=True)
    )
