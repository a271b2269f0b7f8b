"""Memory decided ahead of time: where in a device's memory everything that it holds could lie."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from redistrib.programs.data import ProgramData
from redistrib.programs.inline import inlined
from redistrib.programs.live import changes, devices_of


class Interval(NamedTuple):
    """Bytes that one device holds under one name from operation `first` to operation `last`, both included."""

    name: str
    first: int
    last: int
    bytes: int


@dataclass(frozen=True)
class Allocation:
    """Where one device keeps everything it holds, decided before it runs.

    Attributes:
        offsets: of every interval, in bytes from the start of the device's memory.
        intervals: what is held.
        size: bytes of memory that this takes.
        bound: bytes alive at the worst moment; nothing takes less.
    """

    offsets: tuple[int, ...]
    intervals: tuple[Interval, ...]
    size: int
    bound: int


def intervals(program: ProgramData, device: int) -> list[Interval]:
    """What a device holds, in order of creation; scratch is named after its operation, `scratch 3`."""
    flat = inlined(program)
    first = {value.name: -1 for value in flat.inputs if device in value.place.devices}
    found = []
    for k, (op, change) in enumerate(zip(flat.ops, changes(flat), strict=True)):
        first |= {value.name: k for value in change.born if device in value.place.devices}
        if change.scratch and device in devices_of(op, flat):
            found.append(Interval(f"scratch {k}", k, k, change.scratch))
        found += [
            Interval(value.name, first.pop(value.name), k, value.tile_bytes)
            for value in change.died
            if value.name in first
        ]
    found += [Interval(name, k, len(flat.ops), flat.values[name].tile_bytes) for name, k in first.items()]
    return sorted((one for one in found if one.bytes), key=lambda one: (one.first, one.last))


def allocate(held: Sequence[Interval]) -> Allocation:
    """Offsets at which no two intervals that are alive together overlap.

    Each is put into the smallest gap that takes it, in several orders: by size, by duration times size, by time. The
    smallest result is taken; finding the least is NP-hard.

    >>> from itertools import starmap
    >>> made = allocate(list(starmap(Interval, [("a", 0, 1, 4), ("b", 1, 2, 2), ("c", 2, 3, 4)])))
    >>> made.offsets, made.size, made.bound
    ((0, 4, 0), 6, 6)
    """
    orders = (
        lambda k: (-held[k].bytes, held[k].first),
        lambda k: (-held[k].bytes * (held[k].last - held[k].first + 1), held[k].first),
        lambda k: (held[k].first, -held[k].last),
        lambda k: (-held[k].last, held[k].first),
    )
    bound = _bound(held)
    best: list[int] = []
    size = -1
    for order in orders:
        offsets = _placed(held, sorted(range(len(held)), key=order))
        taken = max((at + one.bytes for at, one in zip(offsets, held, strict=True)), default=0)
        if size < 0 or taken < size:
            best, size = offsets, taken
        if size == bound:
            break
    return Allocation(tuple(best), tuple(held), size, bound)


def _bound(held: Sequence[Interval]) -> int:
    steps: dict[int, int] = defaultdict(int)
    for one in held:
        steps[one.first] += one.bytes
        steps[one.last + 1] -= one.bytes
    alive = most = 0
    for k in sorted(steps):
        alive += steps[k]
        most = max(most, alive)
    return most


def _placed(held: Sequence[Interval], order: Sequence[int]) -> list[int]:
    offsets = [0] * len(held)
    done: list[int] = []
    for k in order:
        one = held[k]
        beside = sorted(
            (offsets[j], held[j].bytes) for j in done if held[j].first <= one.last and one.first <= held[j].last
        )
        at, end, gap = -1, 0, 0
        for start, size in beside:
            if start - end >= one.bytes and (at < 0 or start - end < gap):
                at, gap = end, start - end
            end = max(end, start + size)
        offsets[k] = end if at < 0 else at
        done.append(k)
    return offsets
