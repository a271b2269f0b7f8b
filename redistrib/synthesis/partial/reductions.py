"""Reductions: from summands to fewer, or to whole tiles, on a placement that lies well between source and target.

Every element is best added up at one device that holds a summand of it and wants the sum, if there is one. So
replicas share the work first (a slice), each group of devices that hold different summands of a tile keeps parts of the
sum that its members want, and who else wants them is told afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from redistrib.arith import divisors
from redistrib.plans.steps import AllReduce, DynSlice, Exchange, ReduceScatter, Step
from redistrib.synthesis import exchange
from redistrib.synthesis.grouping import Cells, chunk_groups, refine
from redistrib.synthesis.partial.numbering import Weights, assigned, even, kept, matched, summands_by_host
from redistrib.synthesis.partial.stacks import added, relabelled, stack_of, unstacked
from redistrib.synthesis.problem import Problem
from redistrib.theory.placement import Int64, Placement, number_of
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, common

MOST_CUTS = 1 << 10
MOST_PRICED = 1 << 14
MOST_MIDDLES = 48
MOST_EXCHANGES = 3
MOST_ASSIGNED = 64  # devices
MOST_SHARES = 1 << 12


@dataclass(frozen=True)
class ReducingSteps:
    """Steps that reduce, and where they end.

    Attributes:
        steps: a slice or none, and one step that adds.
        middle: the placement after them, of as many summands as are wanted in the end.
    """

    steps: tuple[Step, ...]
    middle: Placement


def reductions(problem: Problem, fixed: bool) -> Iterator[ReducingSteps]:
    """Ways to reduce to as many summands as the target has, which must divide those of the source.

    Args:
        problem: source and target, both with all tiles and summands held by equally many devices each.
        fixed: whether the library must add up by itself, and number no summand anew.
    """
    before, after = problem.before, problem.after
    if not fixed:
        before = matched(before, after, even(before, after))[0] if after.summands > 1 else before
    yield from _in_one_exchange(problem.between(before, after))
    for cuts, parts in _cuts(before, after):
        sliced = _sliced(before, after, cuts, problem)
        first: tuple[Step, ...] = () if sliced is before else (DynSlice(before, sliced),)
        if parts is None:
            if not fixed:
                yield _all_reduced(problem, first, sliced)
            continue
        yield _scattered(problem, first, sliced, parts, fixed)
        if not fixed:
            yield from _by_hosts(problem, first, sliced, parts)


def _by_hosts(problem: Problem, first: tuple[Step, ...], sliced: Placement, parts: Grid) -> Iterator[ReducingSteps]:
    """First among the devices of each host, so that only sums cross slow links, then across them."""
    after = problem.after
    hosts = None if after.summands > 1 else summands_by_host(sliced, problem.topology.hosts)
    if hosts is None:
        return
    numbered, count = hosts
    inside = relabelled(after.index, after.grid, numbered.label * count // sliced.summands, count, sliced)
    for near in factors_of(parts, sliced.summands // count, exactly=True):
        one = _scattered(problem.between(numbered, inside), first, numbered, near, False)
        far = tuple(n // m for n, m in zip(parts, near, strict=True))
        yield _scattered(problem.between(one.middle, after), one.steps, one.middle, far, False)


def _cuts(before: Placement, after: Placement) -> Iterator[tuple[Grid, Grid | None]]:
    """Factors to slice by and to scatter by, the least received first; None to scatter by where all is reduced."""
    members = before.summands // after.summands
    replicas = before.devices // before.tiles // before.summands
    tile, wanted = before.tile, after.tile
    scattered: list[tuple[int, int, Grid, Grid]] = []
    for cuts in factors_of(tile, replicas):
        cut = tuple(n // f for n, f in zip(tile, cuts, strict=True))
        copies = replicas // math.prod(cuts)
        for parts in factors_of(cut, members, exactly=True):
            part = tuple(n // f for n, f in zip(cut, parts, strict=True))
            estimate = (members - 1) * math.prod(part) - math.prod(map(min, part, wanted))
            scattered.append((estimate, copies, cuts, parts))
        if len(scattered) > MOST_PRICED:
            break
    scattered.sort()
    unsliced = [row for row in scattered if math.prod(row[2]) == 1]
    for _, _, cuts, parts in dict.fromkeys([*scattered[:MOST_MIDDLES], *unsliced[: MOST_MIDDLES // 4]]):
        yield cuts, parts
    finest = max(factors_of(tile, replicas), key=lambda cuts: (math.prod(cuts), cuts))
    for cuts in dict.fromkeys([(1,) * before.rank, finest]):
        yield cuts, None


def factors_of(tile: tuple[int, ...], count: int, exactly: bool = False) -> Iterator[Grid]:
    """Ways to cut a tile into equal parts whose number divides `count`, or is that exactly."""

    def cut(dim: int, left: int) -> Iterator[Grid]:
        if left == 1 or dim == len(tile):
            yield (1,) * (len(tile) - dim)
            return
        for factor in divisors(math.gcd(tile[dim], left)):
            if not exactly or math.prod(tile[dim + 1 :]) % (left // factor) == 0:
                for rest in cut(dim + 1, left // factor):
                    yield (factor, *rest)

    if not exactly or math.prod(tile) % count == 0:
        yield from islice(cut(0, count), MOST_CUTS)


def times(grid: Grid, factors: Grid) -> Grid:
    return tuple(g * f for g, f in zip(grid, factors, strict=True))


def _sliced(before: Placement, after: Placement, cuts: Grid, problem: Problem) -> Placement:
    """The source cut finer, so that its replicas share what is to be done, each a part that it wants."""
    if math.prod(cuts) == 1:
        return before
    stack, goal = stack_of(before, before.summands), stack_of(after, before.summands)
    return unstacked(_refined(stack, cuts, goal, problem.topology), before)


def _refined(stack: Placement, cuts: Grid, goal: Placement, topology: Topology) -> Placement:
    """The tiles of a stack cut finer, each device keeping what it has in common with its tile of another, if it can."""
    fine = (stack.grid[0], *times(stack.grid[1:], cuts))
    prefer = Cells.of(goal, common(fine, goal.grid))
    return refine(stack.shape, Cells(stack.grid, stack.index), fine, prefer, goal.number, topology)


def _groups(problem: Problem, sliced: Placement, keys: tuple[Int64, ...]) -> Int64:
    """`[groups, members]` devices that hold, of one tile, the different summands that go into one."""
    stack = stack_of(sliced, sliced.summands)
    return chunk_groups(stack, (problem.after.summands, *sliced.grid), keys, problem.topology)


def _all_reduced(problem: Problem, first: tuple[Step, ...], sliced: Placement) -> ReducingSteps:
    groups, many = _groups(problem, sliced, ()), problem.after.summands
    middle = relabelled(sliced.index, sliced.grid, sliced.label * many // sliced.summands, many, sliced)
    return ReducingSteps((*first, AllReduce(sliced, middle, groups)), middle)


def _scattered(problem: Problem, first: tuple[Step, ...], sliced: Placement, parts: Grid, fixed: bool) -> ReducingSteps:
    """Each member of a group keeps the part of the sum that it wants, as far as that can be."""
    after, members = problem.after, math.prod(parts)
    fine = times(sliced.grid, parts)
    near = common(fine, after.grid)
    within = number_of(after.coarse(near), near) - sliced.label
    turns = [(), (within % members,)] if sliced.devices > sliced.tiles * sliced.summands else [()]
    found: list[tuple[float, int, Int64, Placement]] = []
    for keys in turns:
        groups = _groups(problem, sliced, keys)
        middle = _parts(problem, sliced, groups, fine)
        found.append((-kept(middle, after).sum(), len(found), groups, middle))
    _, _, groups, middle = min(found, key=lambda row: row[:2])
    part = number_of(middle.index - sliced.index * np.array(parts, dtype=np.int64), parts)
    groups = np.take_along_axis(groups, np.argsort(part[groups], axis=1), axis=1)
    step = ReduceScatter(sliced, middle, groups, "alltoall" if fixed else "native")
    return ReducingSteps((*first, step), middle)


def _parts(problem: Problem, sliced: Placement, groups: Int64, fine: Grid) -> Placement:
    after, many = problem.after, problem.after.summands
    of = np.empty(sliced.devices, dtype=np.int64)
    of[groups] = np.arange(len(groups))[:, None]  # the group of each device, and then among those of its tile
    copies = len(groups) // (sliced.tiles * many)
    label = sliced.label * many // sliced.summands
    group = label * copies + of % copies
    layers = many * copies
    inside = Cells((layers, *sliced.grid), np.concatenate([group[:, None], sliced.index], axis=1))
    near = common(fine, after.grid)
    prefer = Cells((layers, *near), np.concatenate([group[:, None], after.coarse(near)], axis=1))
    found = refine((layers, *sliced.shape), inside, (layers, *fine), prefer)
    return relabelled(found.index[:, 1:], fine, label, many, sliced)


def _in_one_exchange(problem: Problem) -> Iterator[ReducingSteps]:
    """Every device pulls the summands of its own target tile, or of a part of it where its replicas pull the others."""
    before, after = problem.before, problem.after
    height = before.summands
    stack, goal = stack_of(before, height), stack_of(after, height)
    replicas = after.devices // after.tiles // after.summands
    ways = sorted(factors_of(after.tile, replicas), key=lambda cuts: (-math.prod(cuts), cuts))
    found: list[tuple[int, int, Placement, Placement]] = []
    for cuts in ways[:MOST_MIDDLES]:
        if math.prod(cuts) > 1:
            part = _refined(goal, cuts, stack, problem.topology)
            middle = unstacked(part, before)
            needed = height // after.summands * middle.tile_size - middle.tile_size
            found.append(
                (needed * middle.devices - sum(stack.boxes.meet(part.boxes).volumes()), len(found), part, middle)
            )
    for part, middle in [(goal, after), *(row[2:] for row in sorted(found, key=lambda row: row[:2])[:MOST_EXCHANGES])]:
        for step in _exchanges(problem.between(stack, part)):
            yield ReducingSteps((added(step, before, middle, even(before, after)),), middle)


def by_assignment(problem: Problem) -> Iterator[ReducingSteps]:
    """To the whole tiles of one size, one for each device, that take least to be added up and sent on from there.

    Finds what `reductions` misses where neither source nor target tiles are made of these tiles. Slow for many devices.
    """
    before, after = problem.before, problem.after
    if before.devices > MOST_ASSIGNED or not before.rank:
        return
    best: tuple[float, Grid, Int64] | None = None
    for grid in factors_of(before.shape, before.devices, exactly=True):
        stays = _overlaps(before, grid) + _overlaps(after, grid)
        device, tile = assigned(stays)
        total = float(stays[device, tile].sum())
        if best is None or total > best[0]:
            best = total, grid, tile
    if best is not None:
        index = np.stack(np.unravel_index(best[2], best[1]), axis=1)
        middle = relabelled(index, best[1], index[:, 0], 1, before)
        height = before.summands
        for step in _exchanges(problem.between(stack_of(before, height), stack_of(middle, height))):
            yield ReducingSteps((added(step, before, middle),), middle)


def _overlaps(placement: Placement, grid: Grid) -> Weights:
    """`[devices, tiles]` elements of each tile of the grid that each device holds."""
    table: Weights = np.ones((placement.devices, 1))
    for i, count in enumerate(grid):
        tile, low = placement.shape[i] // count, np.arange(count) * (placement.shape[i] // count)
        start = placement.start[:, i : i + 1]
        along = np.minimum(start + placement.tile[i], low + tile) - np.maximum(start, low)
        table = (table[:, :, None] * np.maximum(along, 0)[:, None, :]).reshape(placement.devices, -1)
    return table


def _exchanges(inner: Problem) -> Iterator[Exchange]:
    steps = exchange.in_rounds(inner, MOST_SHARES) or filter(None, [exchange.direct(inner)])
    for (step,) in steps:
        assert isinstance(step, Exchange)
        yield step
