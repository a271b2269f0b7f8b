"""Moves without a plan: every device receives its missing boxes from devices that hold them.

From one device to several, and from several to one, these amount to collectives: a scatter and broadcasts, reductions
and a gather.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from redistrib.programs.program import Value
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Placement

_Ints = tuple[int, ...]


class DirectSend(NamedTuple):
    """A box that one device takes from another, or keeps where both are one.

    Attributes:
        sender, receiver: numbers of the devices in the machine.
        start: first element of the box, in global coordinates.
        size: elements along each dimension.
    """

    sender: int
    receiver: int
    start: _Ints
    size: _Ints


def direct_sends(value: Value, out: Value) -> list[DirectSend]:
    """The boxes that travel in a move without a plan, receiver by receiver.

    A device keeps the boxes that it holds already. Receivers of one tile are spread over the holders of that tile. The
    tiles of the new value may overlap; those of the old value do not.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.programs.program import Place
    >>> root, both = Place(Mesh(()), (0,)), Place(Mesh.of("x=2"))
    >>> direct_sends(Value("a", DistType.of("[4]"), root), Value("b", DistType.of("[2{x}4]"), both))
    [DirectSend(sender=0, receiver=0, start=(0,), size=(2,)), DirectSend(sender=0, receiver=1, start=(2,), size=(2,))]
    """
    if value.has_halos:  # a part of a device's tile
        boxes = zip(out.place.devices, out.boxes.rows(), strict=True)
        return [DirectSend(device, device, box.start, box.size) for device, box in boxes]
    return direct_sends_between(value.placement, value.place.devices, out.boxes.rows(), out.place.devices)


def direct_sends_between(
    source: Placement, holders: Sequence[int], boxes: Sequence[Box], receivers: Sequence[int]
) -> list[DirectSend]:
    """The boxes that travel from devices with tiles of equal size to devices that need other boxes of the array.

    Args:
        source: the tiles.
        holders: for each row of the placement the device that holds it.
        boxes: boxes, each inside the array.
        receivers: for each box the device that needs it.
    """
    holders_of: dict[_Ints, list[int]] = defaultdict(list)
    for device, index in zip(holders, source.index.tolist(), strict=True):
        holders_of[tuple(index)].append(device)
    sends_of: dict[_Ints, int] = defaultdict(int)
    result = []
    for receiver, box in zip(receivers, boxes, strict=True):
        touched = (range(s // n, -(-(s + t) // n)) for s, t, n in zip(box.start, box.size, source.tile, strict=True))
        for index in product(*touched):
            part = box.meet(Box(tuple(i * n for i, n in zip(index, source.tile, strict=True)), source.tile))
            sender = receiver
            if receiver not in holders_of[index]:
                sender = holders_of[index][sends_of[index] % len(holders_of[index])]
                sends_of[index] += 1
            result.append(DirectSend(sender, receiver, part.start, part.size))
    return result


class Scattering(NamedTuple):
    """How an array on one device, the root, becomes the tiles of a value: at most one scatter and then broadcasts.

    Attributes:
        members: devices of the scatter, the root first; each but the root receives one tile. Empty if there is none.
        groups: devices of each broadcast, the one that has the tile first; they share no device.
    """

    members: _Ints
    groups: tuple[_Ints, ...]


def scattering(value: Value, root: int) -> Scattering:
    """The scatter and the broadcasts after which every device of a value holds its tile.

    Different tiles are scattered to one device each, which broadcasts its own to the devices that hold the same; a
    single tile the root broadcasts itself. Where tiles are partial sums, the first of them are the array and nothing is
    sent for the others.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.programs.program import Place
    >>> scattering(Value("a", DistType.of("[2{x}4]"), Place(Mesh.of("x=2,y=2"))), 0)
    Scattering(members=(0, 2), groups=((0, 1), (2, 3)))
    """
    if not math.prod(value.tile):
        return Scattering((), ())
    placement = value.placement
    holders: dict[int, list[int]] = defaultdict(list)
    numbers, labels = placement.number.tolist(), placement.label.tolist()
    for device, number, label in zip(value.place.devices, numbers, labels, strict=True):
        if label == 0:
            holders[number].append(device)
    alone = len(holders) == 1
    first = {number: root if alone or root in devices else devices[0] for number, devices in sorted(holders.items())}
    members = () if alone else (root, *(device for device in first.values() if device != root))
    groups = ((first[n], *(device for device in holders[n] if device != first[n])) for n in first)
    return Scattering(members, tuple(group for group in groups if len(group) > 1))


class Gathering(NamedTuple):
    """How the tiles of a value become an array on one device, the root: reductions, and then at most one gather.

    Attributes:
        teams: for every tile the devices that hold its partial sums, in their order; one device if it is no sum.
        senders: of each team the device that goes on with the tile.
        members: devices of the gather, the root first; each but the root sends one tile. Empty if there is none.
    """

    teams: tuple[_Ints, ...]
    senders: _Ints
    members: _Ints


def gathering(value: Value, root: int) -> Gathering:
    """The reductions and the gather after which the root holds the array.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.programs.program import Place
    >>> gathering(Value("a", DistType.of("[2{x}4] sum{y}"), Place(Mesh.of("x=2,y=2"))), 3)
    Gathering(teams=((0, 1), (2, 3)), senders=(0, 3), members=(3, 0))
    """
    if not math.prod(value.tile):
        return Gathering((), (), ())
    placement = value.placement
    holders: dict[int, dict[int, int]] = defaultdict(dict)
    numbers, labels = placement.number.tolist(), placement.label.tolist()
    for device, number, label in zip(value.place.devices, numbers, labels, strict=True):
        if label not in holders[number] or device == root:
            holders[number][label] = device
    teams = tuple(tuple(devices_of[label] for label in sorted(devices_of)) for _, devices_of in sorted(holders.items()))
    senders = tuple(root if root in team else team[0] for team in teams)
    members = () if senders == (root,) else (root, *(device for device in senders if device != root))
    return Gathering(teams, senders, members)
