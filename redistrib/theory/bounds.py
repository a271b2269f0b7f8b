"""Lower bounds on received elements where tiles may be partial sums: one for all devices, and one for each device.

Consider one element of the array with p partial sums (summands). H is the set of devices that hold a summand; T is the
set of devices that must hold the reduced value. Assume that every message is a linear combination of values that its
sender holds. Then the number of messages that depend on the element is at least

* p = 1:  |T \\ H|,
* p >= 2: p + |T| - 1 - [T meets H].

The reason: every summand must be sent, unless its holder computes the sum, and every device of T must receive the sum,
unless it computes the sum. A plan attains the bound by a reduction at a device of T, in H if possible, followed by a
broadcast to T. The bound of a single device is weaker: for p >= 2 the bounds of the devices add up to less than the
bound of all devices.

If the target is partial, the bound is lower, because the plan may choose the summands of the target. Every source
summand that no device of T holds must be sent. A source without summands must reach all holders of at least one target
summand. Where source summands have replicas, the minimum may be higher than this bound.

All figures are exact integers.
"""

from __future__ import annotations

import numpy as np

from redistrib.arith import distinct_rows
from redistrib.theory.placement import Int64, Placement, lower_bound

_LACKING = 1 << 22  # pairs of tiles times summands that are counted at once, for the sake of memory


def floors(source: Placement, target: Placement) -> list[int]:
    """For each device, a lower bound on the elements it receives.

    Where neither placement is partial this is `lower_bound`, and `least_received` is its sum.
    """
    if target.summands > 1:
        return [0] * target.devices
    if source.summands > 1:  # a device holds at most one of several summands, so it lacks every element of the sum
        return [target.tile_size] * target.devices
    return lower_bound(source, target)


def least_received(source: Placement, target: Placement) -> int:
    """A lower bound on the elements that all devices together receive.

    Only the tiles that some device holds in `target` count. `source` must contain all their summands.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.theory.placement import placement_of
    >>> mesh = Mesh.of("x=4,y=2")
    >>> ends = ("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]"), ("[16, 8] sum{x}", "[16, 8]")
    >>> [least_received(*(placement_of(DistType.of(text), mesh) for text in pair)) for pair in ends]
    [224, 1280]
    """
    if source.summands == target.summands == 1:
        return sum(lower_bound(source, target))
    needed = len(distinct_rows(target.index).rows) * target.tile_size
    if target.summands == 1:
        local = _overlap(source, target, [source.index, target.index])
        return (source.summands - 1) * needed + target.devices * target.tile_size - local
    if source.summands > 1:
        return source.summands * needed - _overlap(source, target, [source.index, source.label[:, None], target.index])
    return _to_one_summand(source, target)


def _overlap(source: Placement, target: Placement, columns: list[Int64]) -> int:
    """Elements in both tiles of a device, summed over one device for each distinct row of the columns."""
    devices = distinct_rows(np.concatenate(columns, axis=1)).first
    volume = source.boxes.meet(target.boxes).volumes()
    return sum(volume[device] for device in devices.tolist())


def _to_one_summand(source: Placement, target: Placement) -> int:
    """The bound from a source without summands to a partial target.

    Every element must reach all holders of one target summand. The bound takes the summand with the fewest holders that
    lack the element.
    """
    summands, new = target.summands, distinct_rows(target.index)
    old, shared = distinct_rows(source.index).inverse, source.boxes.meet(target.boxes).volumes()
    pairs = distinct_rows(np.stack([old, new.inverse], axis=1))
    holders = np.zeros((len(new.rows), summands), dtype=np.int64)
    np.add.at(holders, (new.inverse, target.label), 1)
    fewest: list[int] = np.where(holders, holders, target.devices).min(axis=1).tolist()
    lacked: list[int] = []  # of each pair, holders of one summand that lack what the two tiles share
    many = max(1, _LACKING // summands)
    for first in range(0, len(pairs.rows), many):
        tiles = pairs.rows[first : first + many, 1]
        lacking = np.where(holders[tiles], holders[tiles], target.devices)
        inside = np.flatnonzero((pairs.inverse >= first) & (pairs.inverse < first + many))
        np.subtract.at(lacking, (pairs.inverse[inside] - first, target.label[inside]), 1)
        lacked += lacking.min(axis=1).tolist()
    total, rest = 0, [target.tile_size] * len(new.rows)
    for tile, device, least in zip(pairs.rows[:, 1].tolist(), pairs.first.tolist(), lacked, strict=True):
        total += shared[device] * least
        rest[tile] -= shared[device]
    return total + sum(volume * least for volume, least in zip(rest, fewest, strict=True))
