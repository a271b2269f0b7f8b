"""Moves without a plan: every device receives its missing boxes from devices that hold them.

From one device to several, and from several to one, these amount to collectives: a scatter and broadcasts, reductions
and a gather.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from redistrib.plans.transfers import Transfers, lacking
from redistrib.programs.ir.program import Value

_Ints = tuple[int, ...]


def direct_transfers(value: Value, out: Value) -> Transfers:
    """The boxes that travel in a move without a plan, receiver by receiver.

    A device keeps the boxes that it holds already. Receivers of one tile are spread over the holders of that tile. The
    tiles of the new value may overlap; those of the old value do not.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.programs.ir.program import Place
    >>> root, both = Place(Mesh(()), (0,)), Place(Mesh.of("x=2"))
    >>> table = direct_transfers(Value("a", DistType.of("[4]"), root), Value("b", DistType.of("[2{x}4]"), both))
    >>> table.staying(0), table.receives(1)
    ([Box(start=(0,), size=(2,))], [(0, Box(start=(2,), size=(2,)))])
    """
    if value.has_halos:  # a part of a device's tile
        devices = np.array(out.place.devices)
        return Transfers(devices, devices, out.boxes, np.arange(len(devices))).where(~out.boxes.empty)
    return lacking(value.placement, value.place.devices, out.boxes, out.place.devices)


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
    >>> from redistrib.programs.ir.program import Place
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
    >>> from redistrib.programs.ir.program import Place
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
