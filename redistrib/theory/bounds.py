"""How much has to travel, where tiles may be summands: a total, and what single devices cannot do without.

Take one element with p summands. H is the set of devices that hold any of them, T the set of those that want the
reduced value. Whatever the plan, if a message is a linear combination of what its sender knows, then at least

* p = 1:  |T \\ H| messages,
* p >= 2: p + |T| - 1 - [T meets H] messages,

carry something about that element, since each holder of a summand must send all but the sums that it is the first to
know, and each device of T must be told once. Reducing at a device of both T and H, and telling the others from there,
attains it. What one device receives is bounded by its own floor only: for p >= 2 the floors do not add up to the total.

A partial target asks for less, since it is left open which summand holds what. Then every source summand that no device
of T holds must be sent, and one source held whole must reach all holders of at least one target summand. Where source
summands have replicas, more may be needed.

All figures are exact integers.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import numpy as np

from redistrib.theory.placement import Int64, Placement, lower_bound

_Row: TypeAlias = tuple[int, ...]


def floors(source: Placement, target: Placement) -> list[int]:
    """Elements that each device must receive at least, one integer per device.

    For tiles that are no summands this is `lower_bound`, and the total is its sum.
    """
    if target.summands > 1:
        return [0] * target.devices
    if source.summands > 1:  # of two summands or more a device holds one at most
        return [target.tile_size] * target.devices
    return lower_bound(source, target)


def least_received(source: Placement, target: Placement) -> int:
    """Elements that all devices together must receive at least.

    Every tile of the target's grid that some device wants counts; `source` must hold every summand of it.

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
    wanted = len(np.unique(target.index, axis=0)) * target.tile_size
    if target.summands == 1:
        stay = _met(source, target, [source.index, target.index])
        return (source.summands - 1) * wanted + target.devices * target.tile_size - stay
    if source.summands > 1:
        return source.summands * wanted - _met(source, target, [source.index, source.label[:, None], target.index])
    return _to_one_summand(source, target)


def _met(source: Placement, target: Placement, columns: list[Int64]) -> int:
    """Elements that devices hold before and after, counted once for each different row of the columns."""
    rows = np.unique(np.concatenate(columns, axis=1), axis=0, return_index=True)[1]
    volume = source.boxes.meet(target.boxes).volumes()
    return sum(volume[device] for device in rows.tolist())


def _to_one_summand(source: Placement, target: Placement) -> int:
    """Where the source is whole: for each element what the holders of one summand lack, of the one that lacks least."""
    holders: Counter[tuple[_Row, int]] = Counter()  # of a target tile and summand
    have: Counter[tuple[_Row, _Row, int]] = Counter()  # and of these, who hold the source tile too
    shared: dict[tuple[_Row, _Row], int] = {}  # elements in both tiles
    rows = (map(tuple, placement.index.tolist()) for placement in (source, target))
    kept = source.boxes.meet(target.boxes).volumes()
    for old, new, summand, volume in zip(*rows, target.label.tolist(), kept, strict=True):
        holders[new, summand] += 1
        have[old, new, summand] += 1
        shared[old, new] = volume
    total, rest = 0, dict.fromkeys((new for new, _ in holders), target.tile_size)
    for (old, new), volume in shared.items():
        total += volume * min(holders[new, k] - have[old, new, k] for k in range(target.summands) if holders[new, k])
        rest[new] -= volume
    for new, volume in rest.items():
        total += volume * min(holders[new, k] for k in range(target.summands) if holders[new, k])
    return total
