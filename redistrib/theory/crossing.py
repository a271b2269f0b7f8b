"""Lower bounds on the elements that each device sends, and on the elements that cross between sides.

Sides partition the devices; every device has the number of its side. If source and target are on different devices, the
holders of the source are one side and all other devices are the other. The hosts of a topology are sides too.

All bounds are exact integers. They are for placements without partial sums.
"""

from __future__ import annotations

import numpy as np

from redistrib.arith import distinct_rows
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64, Placement


def sides_of(source: Placement) -> Int64:
    """`[devices]` side 0 for the devices that hold a tile of the source, side 1 for all others."""
    return source.nowhere.astype(np.int64)


def least_sent(source: Placement, target: Placement) -> list[int]:
    """For each device, a lower bound on the elements it sends.

    If a device is the only holder of an element and another device needs it, the device sends it at least once. Every
    tile of the target's grid must be on some device.
    """
    only_source, only_target = (_is_only_holder(placement) for placement in (source, target))
    overlaps = target.boxes.meet(source.boxes).volumes()
    return [
        tile - (overlap if stays else 0) if only else 0
        for tile, overlap, only, stays in zip(source.boxes.volumes(), overlaps, only_source, only_target, strict=True)
    ]


def _is_only_holder(placement: Placement) -> list[bool]:
    """For each device, whether it holds a tile that no other device holds."""
    tiles = distinct_rows(placement.index)
    only: list[bool] = ((tiles.counts[tiles.inverse] == 1) & ~placement.nowhere).tolist()
    return only


def least_crossing(source: Placement, target: Placement, side: Int64) -> int:
    """A lower bound on the elements that cross between sides.

    For every side, an element crosses once if a device of the side needs it and no device of the side holds it.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.theory.placement import placement_of
    >>> source = placement_of(DistType.of("[2{x}8]"), Mesh.of("x=4"), 8)
    >>> target = placement_of(DistType.of("[4{x}8]"), Mesh.of("x=2,y=2", range(4, 8)))
    >>> least_crossing(source, target, sides_of(source))
    8
    """
    return sum(_missing(source, target, np.flatnonzero(side == number)) for number in np.unique(side).tolist())


def _missing(source: Placement, target: Placement, devices: Int64) -> int:
    """Elements that some of these devices need and none of them holds."""
    needed, held = (_distinct_tiles(placement, devices) for placement in (target, source))
    needed_row = np.repeat(np.arange(len(needed.start)), len(held.start))
    held_row = np.tile(np.arange(len(held.start)), len(needed.start))
    return sum(needed.volumes()) - sum(needed[needed_row].meet(held[held_row]).volumes())


def _distinct_tiles(placement: Placement, devices: Int64) -> Boxes:
    """The distinct tiles that these devices hold."""
    first = distinct_rows(placement.index[devices]).first
    boxes = placement.boxes[devices[first]]
    return boxes[~boxes.empty]
