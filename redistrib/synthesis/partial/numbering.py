"""The numbering of partial sums. Their numbers carry no meaning, so each step may choose a numbering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from redistrib.arith import distinct_rows
from redistrib.synthesis import limits
from redistrib.theory.placement import Int64, Placement
from redistrib.theory.weak import Grid

Weights = npt.NDArray[np.float64]


def assigned(weights: Weights) -> tuple[Int64, Int64]:
    """Rows and columns of a heaviest assignment."""
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    row, column = linear_sum_assignment(weights, maximize=True)
    return row.astype(np.int64), column.astype(np.int64)


def assigned_near(weights: Weights, into: Int64) -> tuple[Int64, Int64]:
    """Rows and columns of a heaviest assignment, where column k has the weights of `into[k]`, which are whole numbers.

    Row k stays at column k where nothing is gained.
    """
    rows, most = np.arange(len(weights)), weights.max(axis=1, initial=0)
    if len(rows) <= len(into) and (weights[rows, into[rows]] == most).all():
        return rows, rows
    return assigned(weights[:, into] + 1e-3 * np.eye(len(weights), len(into)))


def chosen_near(row: Int64, place: Int64, weight: Weights, into: Int64, shape: tuple[int, int]) -> tuple[Int64, bool]:
    """`[tiles * sums]` a column for each row, without a table of all: each takes the place where it is heaviest.

    Where there is not room for all, the heaviest rows come first.

    Args:
        row: `[entries]` the number of a tile times the sums of each tile, and that of the sum.
        place, weight: `[entries]` what the row weighs at a place; of equal rows and places it is added up.
        into: the place of each column, of which every tile has all.
        shape: tiles, and sums of each.

    Returns:
        Columns, -1 for rows without one, where columns are fewer than sums; and whether there was room for all, so that
        this is a heaviest assignment.
    """
    tiles, sums = shape
    pairs = distinct_rows(np.stack([row, place], axis=1))
    total = np.bincount(pairs.inverse, weight)
    row, place = pairs.rows.T
    column, free = np.full(tiles * sums, -1, dtype=np.int64), np.ones((tiles, len(into)), dtype=np.bool_)

    def take(rows: Int64, columns: Int64) -> None:
        column[rows], free[rows // sums, columns] = columns, False

    def take_free(rows: Int64, groups: Int64, group_of: Callable[[Int64, Int64], Int64]) -> None:
        """Give rows, in ascending groups, free columns of their group in turn, while there are any."""
        tile, columns = np.nonzero(free)
        there = group_of(tile, columns)
        order = np.argsort(there, kind="stable")
        columns, there = columns[order], there[order]
        turn = np.searchsorted(there, groups) + np.arange(len(groups)) - np.searchsorted(groups, groups)
        fits = turn < np.searchsorted(there, groups, side="right")
        take(rows[fits], columns[turn[fits]])

    number = row % sums
    stays = (number < len(into)) & (into[number % len(into)] == place)
    order = np.lexsort((~stays, -total, row))
    best = order[(np.diff(row[order], prepend=-1) > 0) & (total[order] > 0)]
    still, moving = best[stays[best]], best[~stays[best]]
    take(row[still], number[still])
    places = int(max(place.max(initial=0), into.max())) + 1
    group = row // sums * places + place
    moving = moving[np.lexsort((-total[moving], group[moving]))]
    take_free(row[moving], group[moving], lambda tile, columns: tile * places + into[columns])
    has_room = bool((column[row[best]] >= 0).all())
    unplaced = np.flatnonzero(column < 0)
    unplaced = unplaced[unplaced % sums < len(into)]
    unplaced = unplaced[free[unplaced // sums, unplaced % sums]]
    take(unplaced, unplaced % sums)
    unplaced = np.flatnonzero(column < 0)
    take_free(unplaced, unplaced // sums, lambda tile, columns: tile)
    return column, has_room


def tiles_of(placement: Placement) -> Int64:
    """`[devices]` number, from 0, of the tile that each device holds."""
    return distinct_rows(placement.index).inverse


def overlap(before: Placement, after: Placement) -> Weights:
    """`[devices]` elements of its tile after that each device holds before, of any partial sum."""
    return np.array(before.boxes.meet(after.boxes).volumes(), dtype=np.float64)


def overlaps(placement: Placement, begin: Int64, parts: Grid, part: tuple[int, ...]) -> Weights:
    """`[devices, parts]` elements that each device holds of each part of a box.

    Args:
        placement: says what each device holds.
        begin: where the box of each device begins, `[devices, rank]`.
        parts: into how many parts each dimension of the box is cut.
        part: the shape of a part, in elements.
    """
    table, boxes = np.ones((placement.devices, 1)), placement.boxes
    for dim, (count, length) in enumerate(zip(parts, part, strict=True)):
        low = begin[:, dim : dim + 1] + np.arange(count) * length
        start, size = boxes.start[:, dim : dim + 1], boxes.size[:, dim : dim + 1]
        along = np.minimum(start + size, low + length) - np.maximum(start, low)
        table = (table[:, :, None] * np.maximum(along, 0)[:, None, :]).reshape(placement.devices, -1)
    return table


def even_splits(before: Placement, after: Placement) -> tuple[int, ...]:
    """Split points of the partial sums before, as equal runs as possible, one run for each partial sum after."""
    p, q = before.summands, after.summands
    return tuple(p * j // q for j in range(q + 1)) if p >= q else tuple(min(j, p) for j in range(q + 1))


def matched(before: Placement, after: Placement, splits: tuple[int, ...]) -> tuple[Placement, Placement]:
    """Both placements, numbered so that the partial sums of a device before are added into its partial sum after.

    Partial sum j after is the sum of the partial sums `splits[j]` to `splits[j + 1] - 1` before.
    """
    weights = overlap(before, after)
    into = np.repeat(np.arange(after.summands), np.diff(splits))  # summand before -> summand after
    for _ in range(2):
        if before.summands > 1:
            before = _numbered(before, after.label, into, weights)
        if after.summands > 1:
            after = _numbered(after, into[before.label], np.arange(after.summands), weights)
    return before, after


def summands_by_host(placement: Placement, hosts: Int64 | None) -> tuple[Placement, int] | None:
    """The placement with partial sums numbered host by host, and the number of hosts that hold those of each tile.

    None where adding inside hosts first has no gain: where a host holds one partial sum of a tile, or all of them, or
    where several hosts hold one partial sum.
    """
    if hosts is None:
        return None
    tile, count = tiles_of(placement), placement.summands
    pair = tile * count + placement.label
    first = np.unique(pair, return_index=True)[1]  # a device for every tile and summand
    place = np.full(int(pair.max()) + 1, -1, dtype=np.int64)
    place[pair[first]] = hosts[first]
    if (place[pair] != hosts).any() or len(first) != len(place):
        return None
    table = place.reshape(-1, count)
    order = np.argsort(table, axis=1, kind="stable")
    in_order = np.sort(table, axis=1)
    hosts_of_tile = {len(np.unique(row)) for row in in_order}
    per_host = count // min(hosts_of_tile)
    if len(hosts_of_tile) > 1 or not 1 < per_host < count or count % per_host:
        return None
    blocks = in_order.reshape(len(in_order), -1, per_host)
    if (blocks != blocks[:, :, :1]).any():
        return None
    number = np.argsort(order, axis=1)
    return replace(placement, summand=number[tile, placement.label]), count // per_host


def _numbered(placement: Placement, needed: Int64, into: Int64, weights: Weights) -> Placement:
    """Partial sums numbered so that `into[number]` is the number that their holders need, with the most weight."""
    tile, label = tiles_of(placement), placement.label
    tiles, count = int(tile.max()) + 1, placement.summands
    if count > limits.NUMBERED_SUMS:
        row = tile * count + label
        column, has_room = chosen_near(row, needed, weights, into, (tiles, count))
        if has_room or len(column) * len(into) > limits.NUMBERED_PAIRS:
            return replace(placement, summand=column[row])
    table = np.zeros((tiles, count, int(max(into.max(), needed.max())) + 1))
    np.add.at(table, (tile, label, needed), weights)
    number = np.empty((tiles, count), dtype=np.int64)
    for k, rows in enumerate(table):
        row, column = assigned_near(rows, into)
        number[k, row] = column
    return replace(placement, summand=number[tile, label])
