"""Exact covers: do boxes fill regions, every element once, and where do they not?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from redistrib.errors import VerificationError
from redistrib.theory.boxes import volumes
from redistrib.theory.placement import Int64

_MOST_CUTS = 10  # a box has 2**10 corners


def cut_dimensions(step: int, kind: str, low: Int64, high: Int64, tile: Int64) -> Int64:
    """The dimensions along which some box is shorter than its owner's tile; boxes count from the tile's first element.

    `tile` is the extent of all tiles, or of that of each box's owner, `[boxes, dimensions]`.

    Raises:
        VerificationError: if they are more than can be checked.
    """
    cut = np.flatnonzero((low != 0).any(axis=0) | (high != tile).any(axis=0))
    if len(cut) > _MOST_CUTS:
        raise VerificationError(
            "share rank",
            f"step {step} ({kind}) has boxes that are parts of tiles along {len(cut)} dimensions, which can be "
            f"checked along at most {_MOST_CUTS}; send larger boxes",
            step,
            dimensions=len(cut),
            most=_MOST_CUTS,
        )
    return cut


def first_not_filled_once(low: Int64, high: Int64, owner: Int64, tile: Int64) -> int | None:
    """The first device whose boxes do not fill its tile once; boxes count from the tile's first element.

    `tile` is the extent of the tile of each device, `[devices, dimensions]`.

    Boxes fill a tile once iff their signed corners add up to those of the tile, since the mixed difference of a
    function of bounded support determines it. The test needs no volumes, which may exceed 64 bits, and no pairs of
    boxes.
    """
    devices = len(tile)
    low, high = np.concatenate([np.zeros_like(tile), low]), np.concatenate([tile, high])
    owner = np.concatenate([np.arange(devices), owner])
    key, span = owner, devices
    sign = np.ones(len(key), dtype=np.int64)
    sign[:devices] = -1
    for i, extent in enumerate(tile.max(axis=0, initial=0).tolist()):
        repeats = len(key) // len(low)
        corner = np.concatenate([np.tile(low[:, i], repeats), np.tile(high[:, i], repeats)])
        key, span = joined(np.tile(key, 2), span, corner, extent + 1)
        sign = np.concatenate([sign, -sign])
    order = np.argsort(key)
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    wrong = starts[np.add.reduceat(sign[order], starts) != 0]
    return int(owner[order[wrong] % len(owner)].min()) if len(wrong) else None


def joined(key: Int64, span: int, digit: Int64, base: int) -> tuple[Int64, int]:
    """One number for each pair of a key below `span` and a digit below `base`, and a bound on these numbers."""
    if span * base >= 2**62:  # renumber: then both are below the number of rows
        key, digit = (
            np.unique(key, return_inverse=True)[1],
            np.unique(digit, return_inverse=True)[1],
        )
        span, base = int(key.max()) + 1, int(digit.max()) + 1
    return key * base + digit, span * base


def overlapping(low: Int64, high: Int64, start: Int64, stop: Int64) -> tuple[int, int]:
    """Two overlapping boxes, of boxes that have at least as many elements as their region and do not fill it once."""
    boxes, _, _ = _narrowed(low, high, start, stop, _is_overfull)
    return int(boxes[0]), int(boxes[1])


def wrong_cell(low: Int64, high: Int64, start: Int64, stop: Int64) -> tuple[Int64, Int64, int]:
    """First element and end of a part of a region that is not filled once, and the number of boxes that cover it."""
    boxes, start, stop = _narrowed(low, high, start, stop, _is_not_filled_once)
    return start, stop, len(boxes)


def _narrowed(
    low: Int64, high: Int64, start: Int64, stop: Int64, is_at_fault: Callable[[Int64, Int64, Int64, Int64], bool]
) -> tuple[Int64, Int64, Int64]:
    """A part of a region at fault that no edge of a box cuts, and the boxes that cover the part.

    One half of a region at fault is at fault as well. So the region is bisected at the median edge of its boxes, then
    its half at fault, until no edge of a box cuts the remaining part.
    """
    boxes = np.arange(len(low))
    while True:
        low, high = np.maximum(low, start), np.minimum(high, stop)
        inside = (low < high).all(axis=1)
        boxes, low, high = boxes[inside], low[inside], high[inside]
        for i in range(len(start)):
            edges = np.concatenate([low[:, i], high[:, i]])
            edges = np.unique(edges[(edges > start[i]) & (edges < stop[i])])
            if len(edges):
                break
        else:
            return boxes, start, stop
        lower, upper = stop.copy(), start.copy()
        lower[i] = upper[i] = edges[len(edges) // 2]
        if is_at_fault(low, high, start, lower):
            stop = lower
        else:
            start = upper


def _is_overfull(low: Int64, high: Int64, start: Int64, stop: Int64) -> bool:
    """Whether boxes have at least as many elements in a region as it has, and do not fill it once."""
    low, high = _clipped(low, high, start, stop)
    more = sum(volumes(high - low)) - math.prod((stop - start).tolist())
    return more > 0 or (more == 0 and _is_not_filled_once(low, high, start, stop))


def _is_not_filled_once(low: Int64, high: Int64, start: Int64, stop: Int64) -> bool:
    low, high = _clipped(low, high, start, stop)
    alone = np.zeros(len(low), dtype=np.int64)
    return first_not_filled_once(low - start, high - start, alone, (stop - start)[None]) is not None


def _clipped(low: Int64, high: Int64, start: Int64, stop: Int64) -> tuple[Int64, Int64]:
    low, high = np.maximum(low, start), np.minimum(high, stop)
    inside = (low < high).all(axis=1)
    return low[inside], high[inside]


def times_covered(low: Int64, high: Int64, borders: Sequence[Int64]) -> Int64:
    """`[cells along each dimension]` number of boxes that cover each cell; `borders` include the edges of all boxes."""
    change = np.zeros([len(border) for border in borders], dtype=np.int64)
    ends = [(np.searchsorted(b, low[:, i]), np.searchsorted(b, high[:, i])) for i, b in enumerate(borders)]
    for corner in itertools.product((0, 1), repeat=len(borders)):
        at = tuple(pair[end] for pair, end in zip(ends, corner, strict=True))
        np.add.at(change, at, -1 if sum(corner) % 2 else 1)
    for i in range(len(borders)):
        change = change.cumsum(axis=i)
    return change[tuple(slice(-1) for _ in borders)]
