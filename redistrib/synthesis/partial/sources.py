"""Partial targets: the placements from which one local step makes the target, and exchanges that every device pulls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from redistrib.plans.slabs import relabelled
from redistrib.plans.steps import Exchange, ReduceExchange, Unreduce
from redistrib.plans.transfers import NeededParts, Transfers, missing_parts
from redistrib.synthesis import limits
from redistrib.synthesis.exchange import tiles_touched
from redistrib.synthesis.host_balance import balanced_rounds
from redistrib.synthesis.partial.numbering import assigned_near, chosen_near, even_splits, matched, overlaps, tiles_of
from redistrib.synthesis.partial.reductions import factors_of, reducing, times
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.rounds import colour_rounds
from redistrib.theory.bounds import least_received
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64, Placement
from redistrib.theory.weak import Grid


@dataclass(frozen=True)
class PartialSource:
    """A placement, and the step that makes the target of it without a message; None where it is the target."""

    placement: Placement
    step: Unreduce | None


def partial_sources(problem: Problem) -> Iterator[PartialSource]:
    """Placements from which a local step makes the target, the ones that receive least first.

    A source is the target itself, or finer tiles, of fewer partial sums or of the array itself.
    """
    before, after = problem.before, problem.after
    if (there := _there(before, after)) is not None:
        yield there
    p, q = before.summands, after.summands
    rows: list[tuple[int, Grid, int]] = []

    def weighed(row: tuple[int, Grid, int]) -> int:
        return row[0] * row[2] * after.devices

    for f in range(1, q + 1):
        counts = {n for n in range(1, q // f + 1) if p % n == 0 or (p == 1 and f * n == q)} - ({q} if f == 1 else set())
        if counts:
            rows += [(n, parts, f) for parts in factors_of(after.tile, f, exactly=True) for n in counts]
    rows.sort(key=lambda row: (row[2] > 1, row[0] not in (1, p), -row[2] * row[0], row[1], row[0]))
    usual, most = [row for row in rows if weighed(row) <= limits.SUM_SOURCE_WEIGHED], 2 * limits.SUM_SOURCE_WEIGHED
    large = [row for row in rows if row[2] == 1 or (row[2] * row[0] == q and weighed(row) <= most)]
    large = [row for row in large if weighed(row) > limits.SUM_SOURCE_WEIGHED]
    counted = accumulate(weighed(row) for row in usual[: limits.SUM_SOURCES_TRIED])
    fine = sum(pairs <= limits.SUM_SOURCES_WEIGHED for pairs in counted)
    tried = [*usual[:fine], *sorted(usual[fine:], key=weighed)][: limits.SUM_SOURCES_TRIED]
    sources = [PartialSource(after, None)]
    for n, parts, _ in [*large[: limits.SUM_SOURCES_LARGE], *tried]:
        source = _source(before, after, parts, n)
        if least_received(before, source.placement) == 0:
            yield source
        else:
            sources.append(source)
    sources.sort(key=lambda source: least_received(before, source.placement))
    yield from sources[: limits.SUM_SOURCES]
    yield from (source for source in sources[limits.SUM_SOURCES :] if source.step is None)  # which many may precede


def _there(before: Placement, after: Placement) -> PartialSource | None:
    """The source itself, where every part of it is held by all holders of some partial sum of the target."""
    if before.summands == after.summands or any(b % a for b, a in zip(before.grid, after.grid, strict=True)):
        return None
    if (before.coarse(after.grid) != after.index).any():
        return None
    part, summand = tiles_of(before.stacked()), tiles_of(after.stacked())
    of_sum = part[np.unique(summand, return_index=True)[1]]
    of_sum[summand[part != of_sum[summand]]] = -1
    parts, sums = np.unique(of_sum, return_index=True)  # the first partial sum of each part has it, others have none
    if np.count_nonzero(parts >= 0) < before.tiles * before.summands:
        return None
    return PartialSource(before, Unreduce(before, after, np.flatnonzero(np.isin(summand, sums[parts >= 0]))))


def _source(before: Placement, after: Placement, parts: Grid, summands: int) -> PartialSource:
    """The target cut into `parts`, as `summands` partial sums, one part for every partial sum of the target."""
    fine = times(after.grid, parts)
    count, f = after.summands, math.prod(parts)
    grid = np.array(parts, dtype=np.int64)
    tile = tiles_of(after)
    corner = np.stack(np.unravel_index(np.arange(f), parts), axis=1) if after.rank else np.zeros((1, 0), dtype=np.int64)
    into = before.label * summands // max(before.summands, summands)
    part = tuple(n // m for n, m in zip(after.tile, parts, strict=True))
    amounts = overlaps(before, after.start, parts, part)
    largest = amounts.argmax(axis=1)
    choice = np.where(amounts.any(axis=1), largest * summands + into, 0)  # of a device that gets no part
    row, tiles, pieces = tile * count + after.label, int(tile.max()) + 1, f * summands
    if pieces * after.devices > 2 * limits.SUM_SOURCE_WEIGHED:  # of one part, so that each device has one place
        goes, _ = chosen_near(row, into, amounts[:, 0], np.arange(pieces), (tiles, count))
    else:
        table = np.zeros((tiles * count, f, summands))  # elements of each part that holders of a sum have, by sum
        order = np.argsort(row, kind="stable")
        turn = np.arange(after.devices) - np.searchsorted(row[order], row[order])  # of each of the holders of a sum
        for k in range(int(turn.max()) + 1):
            device = order[turn == k]
            table[row[device], :, into[device]] += amounts[device]
        goes = np.full((tiles, count), -1, dtype=np.int64)
        for k, weights in enumerate(table.reshape(tiles, count, pieces)):
            summand, piece = assigned_near(weights, np.arange(pieces))
            goes[k, summand] = piece
    goes = goes.reshape(-1)[row]
    keeps = goes >= 0
    choice = np.where(keeps, goes, choice)
    index = after.index * grid + corner[choice // summands]
    placement = relabelled(index, fine, choice % summands, summands, after)
    return PartialSource(placement, Unreduce(placement, after, np.flatnonzero(keeps)))


def pull_exchanges(
    problem: Problem,
    fixed: bool,
    most: int = limits.SUM_SOURCE_SHARES,
    is_dear: Callable[[Int64, Sequence[int]], bool] = lambda receiver, volumes: False,
) -> Iterator[tuple[ReduceExchange | Exchange, Placement]]:
    """The exchange in which every device receives its missing boxes, for any grids and partial sums, and its end.

    Yields nothing where the exchange has more than `most` or `limits.SUM_SOURCE_SHARES` shares, or where `is_dear` says
    of the receivers of shares, and of the elements of each, that they cost more than another plan.
    """
    before, after = problem.before, problem.after
    splits = even_splits(before, after)
    received = int(np.diff(splits).max(initial=1)) - 1  # tiles: some device adds so many beside the one that it holds
    if is_dear(np.zeros(received, dtype=np.int64), [after.tile_size] * received):
        return
    if not fixed:
        before, after = matched(before, after, splits)
    stack = before.stacked()
    missing = _missing_slabs(before, after, splits, min(most, limits.SUM_SOURCE_SHARES))
    if missing is None or is_dear(missing.receiver, missing.box.volumes()):
        return
    if len(missing):
        shares = balanced_rounds(colour_rounds(missing, stack, problem.topology, Boxes.volumes), problem.topology)
    else:
        shares = Transfers.none(stack.rank)
    if before.summands == after.summands:
        if all(number == k for k, number in enumerate(splits)):
            yield Exchange(before, after, shares.unstacked()), after
        return
    yield reducing(Exchange(stack, stack, shares), before, after, splits), after


def _missing_slabs(before: Placement, after: Placement, splits: tuple[int, ...], most: int) -> NeededParts | None:
    """The missing boxes of each device, one for each partial sum that it adds; None where they are more than `most`."""
    stack, split = before.stacked(), np.array(splits, dtype=np.int64)[:, None]
    begin, end = split[after.label], split[after.label + 1]
    tiles = after.boxes
    needed = Boxes(np.hstack([begin, tiles.start]), np.hstack([end - begin, tiles.size]))
    if tiles_touched(stack, needed) - after.devices > most:  # a device holds one slab
        return None
    missing = missing_parts(stack, needed)
    start = missing.box.start
    # Partial sums of one box come one after the other.
    missing = missing[np.lexsort((start[:, 0], *start[:, :0:-1].T, missing.receiver))]
    return missing if len(missing) <= most else None


def is_uniform(placement: Placement) -> bool:
    """Whether every partial sum of every tile has equally many holders."""
    return placement.stacked().is_uniform()
