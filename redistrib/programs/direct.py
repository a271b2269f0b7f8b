"""Moves without a plan: every device takes what it lacks straight from a device that holds it."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import NamedTuple

from redistrib.programs.program import Value

_Ints = tuple[int, ...]


class Pull(NamedTuple):
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


def pulls(value: Value, out: Value) -> list[Pull]:
    """What travels when a value becomes another without a plan, receiver by receiver.

    A device keeps what it holds; those that ask for one tile are spread over its holders. The tiles to be made may
    overlap, those that there are do not.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.programs.program import Place
    >>> root, both = Place(Mesh(()), (0,)), Place(Mesh.of("x=2"))
    >>> pulls(Value("a", DistType.of("[4]"), root), Value("b", DistType.of("[2{x}4]"), both))
    [Pull(sender=0, receiver=0, start=(0,), size=(2,)), Pull(sender=0, receiver=1, start=(2,), size=(2,))]
    """
    source, tile = value.placement, out.tile
    holders: dict[_Ints, list[int]] = defaultdict(list)
    for device, index in zip(value.place.devices, source.index.tolist(), strict=True):
        holders[tuple(index)].append(device)
    asked: dict[_Ints, int] = defaultdict(int)
    result = []
    for receiver, start in zip(out.place.devices, out.placement.start.tolist(), strict=True):
        touched = (range(s // n, -(-(s + t) // n)) for s, t, n in zip(start, tile, source.tile, strict=True))
        for index in product(*touched):
            low = tuple(max(s, i * n) for s, i, n in zip(start, index, source.tile, strict=True))
            ends = zip(start, tile, index, source.tile, strict=True)
            size = tuple(min(s + t, (i + 1) * n) - a for a, (s, t, i, n) in zip(low, ends, strict=True))
            held = holders[index]
            sender = receiver
            if receiver not in held:
                sender = held[asked[index] % len(held)]
                asked[index] += 1
            result.append(Pull(sender, receiver, low, size))
    return result
