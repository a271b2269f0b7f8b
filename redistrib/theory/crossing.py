"""What has to leave each device, and what has to cross from one side of several to another, whatever the plan.

Sides are a number for every device. Where source and target are on different devices, the devices that hold the source
are one side and all others are another; the hosts of a topology are sides as well.

All figures are exact integers, for placements whose tiles are no summands.
"""

from __future__ import annotations

import numpy as np

from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64, Placement


def sides_of(source: Placement) -> Int64:
    """`[devices]` side 0 for the devices that hold some of the source, side 1 for all others."""
    return source.nowhere.astype(np.int64)


def least_sent(source: Placement, target: Placement) -> list[int]:
    """Elements that each device must send at least, one integer per device.

    An element that one device alone holds leaves it at least once, if some other device wants it. The target must have
    every tile of its grid on some device.
    """
    alone, last = (_held_by_one(placement) for placement in (source, target))
    stays = target.boxes.meet(source.boxes).volumes()  # of a tile that only its holder wants
    return [
        held - (own if only else 0) if single else 0
        for held, own, single, only in zip(source.boxes.volumes(), stays, alone, last, strict=True)
    ]


def _held_by_one(placement: Placement) -> list[bool]:
    """Whether each device holds a tile, and no other holds the same."""
    _, tile, times = np.unique(placement.index, axis=0, return_inverse=True, return_counts=True)
    alone: list[bool] = ((times[tile.reshape(-1)] == 1) & ~placement.nowhere).tolist()
    return alone


def least_crossing(source: Placement, target: Placement, side: Int64) -> int:
    """Elements that must cross from one side to another at least.

    Each element that some device of a side wants, and none of it holds, crosses once.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.theory.placement import placement_of
    >>> source = placement_of(DistType.of("[2{x}8]"), Mesh.of("x=4"), 8)
    >>> target = placement_of(DistType.of("[4{x}8]"), Mesh.of("x=2,y=2", range(4, 8)))
    >>> least_crossing(source, target, sides_of(source))
    8
    """
    return sum(_lacking(source, target, np.flatnonzero(side == number)) for number in np.unique(side).tolist())


def _lacking(source: Placement, target: Placement, devices: Int64) -> int:
    """Elements that some of these devices want and none of them holds."""
    wanted, there = (_different(placement, devices) for placement in (target, source))
    pairs = np.repeat(np.arange(len(wanted.start)), len(there.start))
    again = np.tile(np.arange(len(there.start)), len(wanted.start))
    return sum(wanted.volumes()) - sum(wanted[pairs].meet(there[again]).volumes())


def _different(placement: Placement, devices: Int64) -> Boxes:
    """The different tiles that some devices hold."""
    first = np.unique(placement.index[devices], axis=0, return_index=True)[1]
    boxes = placement.boxes[devices[first]]
    return boxes[~boxes.empty]
