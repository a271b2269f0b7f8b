"""Do the boxes that a device retains and receives fill its tile, every element once?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from redistrib.errors import VerificationError
from redistrib.plans._diagnostics import box, describe
from redistrib.plans._exact_cover import (
    cut_dimensions,
    first_not_filled_once,
    joined,
    overlapping,
    times_covered,
    wrong_cell,
)
from redistrib.plans.steps import Exchange, ReduceExchange
from redistrib.theory.boxes import volumes
from redistrib.theory.placement import Int64

_MOST_CELLS = 2**24  # between the borders of boxes, over all devices: some seconds


@dataclass(frozen=True, eq=False)
class _Pieces:
    """The boxes that all devices retain and receive.

    Attributes:
        holder, owner: `[boxes]` device that holds the box before the step, and device that holds it after the step.
        start, stop: `[boxes, rank]` first element and end, in global coordinates.
        low, high: the same from the first element of the owner's tile, along `cut` alone.
        cut: dimensions along which some box is shorter than its owner's tile.
    """

    holder: Int64
    owner: Int64
    start: Int64
    stop: Int64
    low: Int64
    high: Int64
    cut: Int64


def check_cover(number: int, step: Exchange | ReduceExchange) -> None:
    """Check that every device retains and receives every element of its tile once.

    Where the step adds, that holds of every partial sum that the device adds; for a maximum or minimum, an element may
    arrive more than once.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after, shares = step.before, step.after, step.shares
    if not after.tile_size or not len(after.holders):
        return  # no element to fill, and no share fits in
    goal, tile = after.start, after.boxes.size
    low = np.maximum(before.start, goal)
    high = np.minimum(before.start + before.boxes.size, goal + tile)
    retains = step.adds_own() if isinstance(step, ReduceExchange) else ~before.nowhere & ~after.nowhere
    keeps = np.flatnonzero((low < high).all(axis=1) & retains)
    holder, owner = np.concatenate([keeps, shares.sender]), np.concatenate([keeps, shares.receiver])
    if isinstance(step, Exchange) and _are_meets(step) and _are_all_cells(step, holder, owner):
        return
    start, size = (table.reshape(len(shares), before.rank) for table in (shares.box.start, shares.box.size))
    start, stop = np.concatenate([low[keeps], start]), np.concatenate([high[keeps], start + size])
    low, high = start - goal[owner], stop - goal[owner]
    cut = cut_dimensions(number, step.kind, low, high, tile[owner])
    pieces = _Pieces(holder, owner, start, stop, low[:, cut], high[:, cut], cut)
    if isinstance(step, ReduceExchange):
        _check_partial_sums(number, step, pieces)
        return
    filled = np.flatnonzero(~after.boxes.empty)  # the other devices have no tile, and own no box
    device = first_not_filled_once(pieces.low, pieces.high, np.searchsorted(filled, owner), tile[filled][:, cut])
    if device is not None:
        _fail_cover(number, step, int(filled[device]), pieces)


def runs(step: ReduceExchange) -> tuple[Int64, Int64]:
    """`[devices]` the first partial sum that each device adds, and the one after the last."""
    splits = np.array(step.splits, dtype=np.int64)
    return splits[step.after.label], splits[step.after.label + 1]


def _are_meets(exchange: Exchange) -> bool:
    """Whether every share is all that its sender holds of its receiver's tile; shares lie in both."""
    before, after, shares = exchange.before, exchange.after, exchange.shares
    held_start, goal = before.start[shares.sender], after.start[shares.receiver]
    low = np.maximum(held_start, goal)
    high = np.minimum(held_start + before.boxes.size[shares.sender], goal + after.boxes.size[shares.receiver])
    return bool((high - low == shares.box.size).all())


def _are_all_cells(exchange: Exchange, holder: Int64, owner: Int64) -> bool:
    """Whether the tiles of the holders are the different cells of the first grid that meet their owner's tile.

    Every holder's tile does meet it, so it is enough that they differ and are as many as there are to meet.
    """
    before, after = exchange.before, exchange.after
    if before.cuts or after.cuts:
        return False
    tile = np.array(before.tile, dtype=np.int64)
    start = after.start[after.holders]
    cells = (start + np.array(after.tile, dtype=np.int64) - 1) // tile - start // tile + 1
    if len(owner) != sum(volumes(cells)):
        return False
    number, span = np.zeros(before.devices, dtype=np.int64), 1
    for i, count in enumerate(before.grid):
        number, span = joined(number, span, before.index[:, i], count)
    key = np.sort(joined(owner, before.devices, number[holder], span)[0])
    return not (key[1:] == key[:-1]).any()


def _check_partial_sums(number: int, step: ReduceExchange, pieces: _Pieces) -> None:
    """Check that the slabs of every device fill its part of the stack of partial sums."""
    before, after, cut, owner = step.before, step.after, pieces.cut, pieces.owner
    begin, end = runs(step)
    tile = np.array(after.tile, dtype=np.int64)[cut]
    slab = before.label[pieces.holder][:, None]
    low, high = np.concatenate([slab, pieces.low], axis=1), np.concatenate([slab + 1, pieces.high], axis=1)
    if _is_sum(step):
        stack = np.array([before.summands, *tile], dtype=np.int64)
        device = _first_not_added_once(low, high, owner, stack, begin, end)
        if device is not None:
            owned = owner == device
            first_corner = np.array([begin[device], *np.zeros(len(cut), dtype=np.int64)])
            last_corner = np.array([end[device], *tile])
            _fail_sum(number, step, device, cut, *wrong_cell(low[owned], high[owned], first_corner, last_corner))
        return
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(after.devices + 1))
    cells = 0
    for device in range(after.devices):
        owned = order[bounds[device] : bounds[device + 1]]
        reach = [(int(begin[device]), int(end[device])), *((0, extent) for extent in tile.tolist())]
        borders = [np.unique([*ends, *low[owned, i], *high[owned, i]]) for i, ends in enumerate(reach)]
        cells += math.prod(len(border) for border in borders)
        if cells > _MOST_CELLS:
            raise VerificationError(
                "share rank",
                f"step {number} ({step.kind}) cuts tiles into more than {_MOST_CELLS} cells, which are too many to be "
                "checked; send fewer or larger boxes",
                number,
                most=_MOST_CELLS,
            )
        missing = np.argwhere(times_covered(low[owned], high[owned], borders) < 1)
        if len(missing):
            corner, behind = (
                [int(border[k + by]) for border, k in zip(borders, missing[0], strict=True)] for by in (0, 1)
            )
            _fail_sum(number, step, device, cut, np.array(corner), np.array(behind), 0)


def _first_not_added_once(low: Int64, high: Int64, owner: Int64, stack: Int64, begin: Int64, end: Int64) -> int | None:
    """The first device that does not add every element of its partial sums once.

    A device adds them once iff its slabs, and the partial sums of other devices, fill a stack of its tile once.
    """
    devices = len(begin)
    unused_low, unused_high = np.zeros((2, devices, len(stack)), dtype=np.int64), np.tile(stack, (2, devices, 1))
    unused_high[0, :, 0] = begin
    unused_low[1, :, 0] = end
    left = (unused_high > unused_low).all(axis=2)
    low, high = np.concatenate([low, unused_low[left]]), np.concatenate([high, unused_high[left]])
    return first_not_filled_once(low, high, np.concatenate([owner, np.nonzero(left)[1]]), np.tile(stack, (devices, 1)))


def _fail_sum(
    number: int, step: ReduceExchange, device: int, cut: Int64, start: Int64, stop: Int64, times: int
) -> NoReturn:
    """Name the box of a partial sum that a device does not add once."""
    after = step.after
    low, size = after.start[device].copy(), np.array(after.tile, dtype=np.int64)
    low[cut] += start[1:]
    size[cut] = (stop - start)[1:]
    raise VerificationError(
        "summand",
        f"step {number} ({step.kind}) has device {device} add partial sum {start[0]} of {box(low, size)} {times} "
        "times; " + ("a sum has each once" if _is_sum(step) else "a maximum or minimum has each at least once"),
        number,
        device,
        summand=int(start[0]),
        times=times,
    )


def _is_sum(step: ReduceExchange) -> bool:
    return (step.before.reduction or step.after.reduction or "sum") == "sum"


def _fail_cover(step: int, exchange: Exchange, device: int, pieces: _Pieces) -> NoReturn:
    """Name two boxes of a device that overlap, or the number of elements that the boxes fill."""
    after, cut, owned = exchange.after, pieces.cut, pieces.owner == device
    sender, start, stop = pieces.holder[owned], pieces.start[owned], pieces.stop[owned]
    filled, needed = sum(volumes(stop - start)), after.box(device).volume
    if filled < needed:
        raise VerificationError(
            "uncovered tile",
            f"step {step} (exchange) fills only {filled} of the {needed} elements {describe(after, device)} "
            f"of device {device}; what it keeps and what it receives must fill its tile",
            step,
            device,
            filled=filled,
            needed=needed,
        )
    goal = after.start[device, cut]
    one, other = overlapping(start[:, cut], stop[:, cut], goal, goal + after.boxes.size[device, cut])
    low, high = np.maximum(start[one], start[other]), np.minimum(stop[one], stop[other])
    giver, rival = int(sender[one]), int(sender[other])
    first_box = box(start[one], stop[one] - start[one])
    origin = f"it keeps {first_box}" if giver == device else f"device {giver} sends {first_box}"
    raise VerificationError(
        "overlapping shares",
        f"step {step} (exchange) fills {box(low, high - low)} of device {device} twice: {origin} and "
        f"device {rival} sends {box(start[other], stop[other] - start[other])}",
        step,
        device,
        senders=(giver, rival),
        overlap=box(low, high - low),
    )
