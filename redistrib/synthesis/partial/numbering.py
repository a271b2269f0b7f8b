"""The numbering of partial sums. Their numbers carry no meaning, so each step may choose a numbering."""

from __future__ import annotations

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

    Row k stays at column k where nothing is gained. For many columns no table of all is made where each row is heaviest
    in one place, and there are columns for all.
    """
    rows, most = np.arange(len(weights)), weights.max(axis=1, initial=0)
    stays = weights[rows, into[rows]] == most if len(rows) <= len(into) else np.zeros(len(rows), dtype=np.bool_)
    if stays.all():
        return rows, rows
    if len(into) > limits.NUMBERED_SUMS and (stays | ((weights == most[:, None]).sum(axis=1) == 1)).all():
        best = np.where(stays, into[rows % len(into)], weights.argmax(axis=1))
        needed, there = (np.bincount(places, minlength=weights.shape[1]) for places in (best, into))
        if (needed <= there).all():
            columns, free = rows.copy(), np.ones(len(into), dtype=np.bool_)
            free[rows[stays]] = False
            moving, open_columns = rows[~stays], np.flatnonzero(free)
            moving = moving[np.argsort(best[moving], kind="stable")]
            open_columns = open_columns[np.argsort(into[open_columns], kind="stable")]
            first = np.searchsorted(into[open_columns], best[moving])
            turn = np.arange(len(moving)) - np.searchsorted(best[moving], best[moving])
            columns[moving] = open_columns[first + turn]
            return rows, columns
    return assigned(weights[:, into] + 1e-3 * np.eye(len(weights), len(into)))


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
    count = placement.summands
    table = np.zeros((int(tile.max()) + 1, count, int(max(into.max(), needed.max())) + 1))
    np.add.at(table, (tile, label, needed), weights)
    number = np.empty((len(table), count), dtype=np.int64)
    for k, rows in enumerate(table):
        row, column = assigned_near(rows, into)
        number[k, row] = column
    return replace(placement, summand=number[tile, label])
