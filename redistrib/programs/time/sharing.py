"""Devices that take part in the same operations have equal histories, and so share a clock."""

from __future__ import annotations

from collections.abc import Iterator

from redistrib.programs.ir.data import Compute, ProgramData, called_by


def shared_clocks(program: ProgramData) -> dict[int, int]:
    """For every device the lowest one that is in the same places."""
    member: dict[int, list[int]] = {device: [] for device in program.devices}
    for k, devices in enumerate(dict.fromkeys(_places(program, set()))):
        for device in devices:
            member[device].append(k)
    lowest: dict[tuple[int, ...], int] = {}
    return {device: lowest.setdefault(tuple(places), device) for device, places in sorted(member.items())}


def _places(program: ProgramData, seen: set[int]) -> Iterator[frozenset[int]]:
    seen.add(id(program))
    for place in program.places:
        yield place.members
    for op in program.ops:
        if isinstance(op, Compute):
            yield op.place.members
        for inner in called_by(op):
            if id(inner) not in seen:
                yield from _places(inner, seen)
