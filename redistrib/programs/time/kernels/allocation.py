"""Memory planning: an offset in a device's memory for every tile that it holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import changes, devices_running


class Interval(NamedTuple):
    """A tile in the memory of a device.

    Attributes:
        name: of the value; of scratch, `scratch` and the number of its operation.
        first, last: numbers of the operations from which and to which the device holds it; inputs begin at -1.
        bytes: its size.
    """

    name: str
    first: int
    last: int
    bytes: int


@dataclass(frozen=True)
class Allocation:
    """Offsets of the tiles that a device holds.

    Attributes:
        offsets: of every interval, in bytes from the start of the device's memory.
        intervals: the tiles, each with its lifetime.
        size: bytes from the first offset to the end of the last tile.
        bound: bytes alive at the worst moment, a lower bound on `size`.
    """

    offsets: tuple[int, ...]
    intervals: tuple[Interval, ...]
    size: int
    bound: int


def intervals(program: ProgramData, device: int) -> list[Interval]:
    """The tiles that a device holds, in order of creation; scratch has the name of its operation, `scratch 3`.

    >>> from redistrib import nest, partition
    >>> program = partition(nest("ij->i", (8, 8), name="sum"), {"sum": {"j": 2}})
    >>> for tile in intervals(program, 0):
    ...     print(*tile)
    a -1 2 128
    out 0 1 32
    scratch 1 1 1 64
    out.1 1 2 32
    """
    flat = inlined(program)
    first = {value.name: -1 for value in flat.inputs if device in value.place.devices}
    lifetimes = []
    for k, (op, change) in enumerate(zip(flat.ops, changes(flat), strict=True)):
        first |= {value.name: k for value in change.born if device in value.place.devices}
        if change.scratch and device in devices_running(op, flat):
            lifetimes.append(Interval(f"scratch {k}", k, k, change.scratch))
        lifetimes += [
            Interval(value.name, first.pop(value.name), k, value.tile_bytes)
            for value in change.died
            if value.name in first
        ]
    lifetimes += [Interval(name, k, len(flat.ops), flat.values[name].tile_bytes) for name, k in first.items()]
    return sorted((tile for tile in lifetimes if tile.bytes), key=lambda tile: (tile.first, tile.last))


def allocate(tiles: Sequence[Interval]) -> Allocation:
    """Offsets at which no two intervals that are alive together overlap.

    Each goes into the smallest gap that is large enough; several orders are tried: size, duration times size, time.
    The smallest result is returned; the minimum is NP-hard.

    >>> from itertools import starmap
    >>> allocation = allocate(list(starmap(Interval, [("a", 0, 1, 4), ("b", 1, 2, 2), ("c", 2, 3, 4)])))
    >>> allocation.offsets, allocation.size, allocation.bound
    ((0, 4, 0), 6, 6)
    """
    orders = (
        lambda k: (-tiles[k].bytes, tiles[k].first),
        lambda k: (-tiles[k].bytes * (tiles[k].last - tiles[k].first + 1), tiles[k].first),
        lambda k: (tiles[k].first, -tiles[k].last),
        lambda k: (-tiles[k].last, tiles[k].first),
    )
    bound = _bound(tiles)
    best: list[int] = []
    size = -1
    for order in orders:
        offsets = _placed(tiles, sorted(range(len(tiles)), key=order))
        taken = max((at + tile.bytes for at, tile in zip(offsets, tiles, strict=True)), default=0)
        if size < 0 or taken < size:
            best, size = offsets, taken
        if size == bound:
            break
    return Allocation(tuple(best), tuple(tiles), size, bound)


def _bound(tiles: Sequence[Interval]) -> int:
    steps: dict[int, int] = defaultdict(int)
    for tile in tiles:
        steps[tile.first] += tile.bytes
        steps[tile.last + 1] -= tile.bytes
    alive = most = 0
    for k in sorted(steps):
        alive += steps[k]
        most = max(most, alive)
    return most


def _placed(tiles: Sequence[Interval], order: Sequence[int]) -> list[int]:
    offsets = [0] * len(tiles)
    placed: list[int] = []
    for k in order:
        tile = tiles[k]
        beside = sorted(
            (offsets[j], tiles[j].bytes) for j in placed if tiles[j].first <= tile.last and tile.first <= tiles[j].last
        )
        at, end, gap = -1, 0, 0
        for start, size in beside:
            if start - end >= tile.bytes and (at < 0 or start - end < gap):
                at, gap = end, start - end
            end = max(end, start + size)
        offsets[k] = end if at < 0 else at
        placed.append(k)
    return offsets
