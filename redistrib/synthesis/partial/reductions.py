"""Reductions to fewer partial sums, or to whole tiles, and the placements after them.

An element is best added on a device that holds a partial sum of the element and wants the sum. So first a slice divides
the work among replicas. Then every member of a group keeps the part of the sum that it wants. Last, the other devices
receive their parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from redistrib.arith import divisors
from redistrib.plans.slabs import relabelled, unstacked
from redistrib.plans.steps import AllReduce, DynSlice, Exchange, ReduceExchange, ReduceScatter, Step
from redistrib.synthesis import exchange, limits
from redistrib.synthesis.groups import CoarseCells, assign_tiles, chunk_groups
from redistrib.synthesis.partial.numbering import (
    Weights,
    assigned,
    even_splits,
    matched,
    overlap,
    overlaps,
    summands_by_host,
)
from redistrib.synthesis.phases import cut_finer
from redistrib.synthesis.problem import Problem
from redistrib.theory.placement import Int64, Placement, number_of
from redistrib.theory.weak import Grid, common


@dataclass(frozen=True)
class ReducingSteps:
    """Steps that reduce, and the placement after them.

    Attributes:
        steps: perhaps a slice, then the steps that add.
        middle: the placement after them, with as many partial sums as the target.
    """

    steps: tuple[Step, ...]
    middle: Placement


def reductions(problem: Problem, fixed: bool) -> Iterator[ReducingSteps]:
    """Reductions to the number of partial sums of the target, which must divide that of the source.

    Args:
        problem: source and target, in both of which every partial sum of every tile has equally many holders.
        fixed: whether the library must add by itself, without renumbering partial sums.
    """
    before, after = problem.before, problem.after
    if not fixed:
        before = matched(before, after, even_splits(before, after))[0] if after.summands > 1 else before
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
    """A reduction inside every host, so that only its sums cross slow links, then one between hosts."""
    after = problem.after
    hosts = None if after.summands > 1 else summands_by_host(sliced, problem.topology.hosts)
    if hosts is None:
        return
    numbered, count = hosts
    inside = relabelled(after.index, after.grid, numbered.label * count // sliced.summands, count, sliced)
    for near in factors_of(parts, sliced.summands // count, exactly=True):
        local = _scattered(problem.between(numbered, inside), first, numbered, near, False)
        far = tuple(n // m for n, m in zip(parts, near, strict=True))
        yield _scattered(problem.between(local.middle, after), local.steps, local.middle, far, False)


def _cuts(before: Placement, after: Placement) -> Iterator[tuple[Grid, Grid | None]]:
    """Factors to slice by and to scatter by, the least received first; None to scatter by for an all-reduce."""
    members = before.summands // after.summands
    replicas = before.devices // before.tiles // before.summands
    tile, needed = before.tile, after.tile
    scattered: list[tuple[int, int, Grid, Grid]] = []
    for cuts in factors_of(tile, replicas):
        cut = tuple(n // f for n, f in zip(tile, cuts, strict=True))
        copies = replicas // math.prod(cuts)
        for parts in factors_of(cut, members, exactly=True):
            part = tuple(n // f for n, f in zip(cut, parts, strict=True))
            estimate = (members - 1) * math.prod(part) - math.prod(map(min, part, needed))
            scattered.append((estimate, copies, cuts, parts))
        if len(scattered) > limits.SUM_PRICED:
            break
    scattered.sort()
    unsliced = [row for row in scattered if math.prod(row[2]) == 1]
    for _, _, cuts, parts in dict.fromkeys([*scattered[: limits.SUM_MIDDLES], *unsliced[: limits.SUM_MIDDLES // 4]]):
        yield cuts, parts
    finest = max(factors_of(tile, replicas), key=lambda cuts: (math.prod(cuts), cuts))
    for cuts in dict.fromkeys([(1,) * before.rank, finest]):
        yield cuts, None


def factors_of(tile: tuple[int, ...], count: int, exactly: bool = False) -> Iterator[Grid]:
    """Factors that cut a tile into equal parts, whose number divides `count`, or with `exactly` equals it."""

    def cut(dim: int, left: int) -> Iterator[Grid]:
        if left == 1 or dim == len(tile):
            yield (1,) * (len(tile) - dim)
            return
        for factor in divisors(math.gcd(tile[dim], left)):
            if not exactly or math.prod(tile[dim + 1 :]) % (left // factor) == 0:
                for rest in cut(dim + 1, left // factor):
                    yield (factor, *rest)

    if not exactly or math.prod(tile) % count == 0:
        yield from islice(cut(0, count), limits.SUM_CUTS)


def times(grid: Grid, factors: Grid) -> Grid:
    return tuple(g * f for g, f in zip(grid, factors, strict=True))


def _sliced(before: Placement, after: Placement, cuts: Grid, problem: Problem) -> Placement:
    """The source cut finer, so that each replica adds a part, one that it wants where possible."""
    if math.prod(cuts) == 1:
        return before
    stack, goal = before.stacked(), after.stacked(before.summands)
    return unstacked(cut_finer(stack, times(stack.grid, (1, *cuts)), goal, problem.topology), before)


def _groups(problem: Problem, sliced: Placement, keys: tuple[Int64, ...]) -> Int64:
    """`[groups, members]` devices that hold the partial sums of one tile that are added into one."""
    stack = sliced.stacked()
    return chunk_groups(stack, (problem.after.summands, *sliced.grid), keys, problem.topology)


def _all_reduced(problem: Problem, first: tuple[Step, ...], sliced: Placement) -> ReducingSteps:
    groups, many = _groups(problem, sliced, ()), problem.after.summands
    middle = relabelled(sliced.index, sliced.grid, sliced.label * many // sliced.summands, many, sliced)
    return ReducingSteps((*first, AllReduce(sliced, middle, groups)), middle)


def _scattered(problem: Problem, first: tuple[Step, ...], sliced: Placement, parts: Grid, fixed: bool) -> ReducingSteps:
    """A reduce-scatter, in which each member of a group keeps the part of the sum that it wants, where possible."""
    after, members = problem.after, math.prod(parts)
    fine = times(sliced.grid, parts)
    near = common(fine, after.grid)
    within = number_of(after.coarse(near), near) - sliced.label
    turns = [(), (within % members,)] if sliced.devices > sliced.tiles * sliced.summands else [()]
    choices: list[tuple[float, int, Int64, Placement]] = []
    for keys in turns:
        groups = _groups(problem, sliced, keys)
        middle = _parts(problem, sliced, groups, fine)
        choices.append((-overlap(middle, after).sum(), len(choices), groups, middle))
    _, _, groups, middle = min(choices, key=lambda row: row[:2])
    part = number_of(middle.index - sliced.index * np.array(parts, dtype=np.int64), parts)
    groups = np.take_along_axis(groups, np.argsort(part[groups], axis=1), axis=1)
    step = ReduceScatter(sliced, middle, groups, "alltoall" if fixed else "native")
    return ReducingSteps((*first, step), middle)


def _parts(problem: Problem, sliced: Placement, groups: Int64, fine: Grid) -> Placement:
    after, many = problem.after, problem.after.summands
    of = np.empty(sliced.devices, dtype=np.int64)
    of[groups] = np.arange(len(groups))[:, None]  # the group of each device
    copies = len(groups) // (sliced.tiles * many)
    label = sliced.label * many // sliced.summands
    group = label * copies + of % copies
    layers = many * copies
    inside = CoarseCells((layers, *sliced.grid), np.concatenate([group[:, None], sliced.index], axis=1))
    near = common(fine, after.grid)
    prefer = CoarseCells((layers, *near), np.concatenate([group[:, None], after.coarse(near)], axis=1))
    placement = assign_tiles((layers, *sliced.shape), inside, (layers, *fine), prefer)
    return relabelled(placement.index[:, 1:], fine, label, many, sliced)


def _in_one_exchange(problem: Problem) -> Iterator[ReducingSteps]:
    """Exchanges in which a device receives the partial sums of its target tile, or replicas those of its parts."""
    before, after = problem.before, problem.after
    height = before.summands
    stack, goal = before.stacked(height), after.stacked(height)
    replicas = after.devices // after.tiles // after.summands
    ways = sorted(factors_of(after.tile, replicas), key=lambda cuts: (-math.prod(cuts), cuts))
    choices: list[tuple[int, int, Placement, Placement]] = []
    for cuts in ways[: limits.SUM_MIDDLES]:
        if math.prod(cuts) > 1:
            part = cut_finer(goal, times(goal.grid, (1, *cuts)), stack, problem.topology)
            middle = unstacked(part, before)
            needed = height // after.summands * middle.tile_size - middle.tile_size
            choices.append(
                (needed * middle.devices - sum(stack.boxes.meet(part.boxes).volumes()), len(choices), part, middle)
            )
    for part, middle in [
        (goal, after),
        *(row[2:] for row in sorted(choices, key=lambda row: row[:2])[: limits.SUM_EXCHANGES]),
    ]:
        for step in _exchanges(problem.between(stack, part)):
            yield ReducingSteps((reducing(step, before, middle, even_splits(before, after)),), middle)


def by_assignment(problem: Problem) -> Iterator[ReducingSteps]:
    """Reductions to one whole tile on each device, on the grid whose tiles overlap most with source and target.

    They cover cases that `reductions` misses: neither source nor target tiles consist of these tiles. Slow for many
    devices.
    """
    before, after = problem.before, problem.after
    if before.devices > limits.SUM_ASSIGNED_DEVICES or not before.rank:
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
        for step in _exchanges(problem.between(before.stacked(height), middle.stacked(height))):
            yield ReducingSteps((reducing(step, before, middle),), middle)


def _overlaps(placement: Placement, grid: Grid) -> Weights:
    """`[devices, tiles]` elements of each tile of the grid that each device holds."""
    tile = tuple(size // count for size, count in zip(placement.shape, grid, strict=True))
    return overlaps(placement, np.zeros_like(placement.index), grid, tile)


def _exchanges(inner: Problem) -> Iterator[Exchange]:
    steps = exchange.in_rounds(inner, limits.SUM_ROUND_SHARES) or filter(None, [exchange.direct(inner)])
    for (step,) in steps:
        assert isinstance(step, Exchange)
        yield step


def reducing(step: Exchange, before: Placement, after: Placement, splits: tuple[int, ...] = ()) -> ReduceExchange:
    """An exchange of slabs as a reduce-exchange: the receivers add the slabs of one partial sum."""
    return ReduceExchange(before, after, step.shares.unstacked(), step.implementation, splits)
