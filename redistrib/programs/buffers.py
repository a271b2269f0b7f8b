"""Buffers as compilers lay them out: what one device holds of a program while its compiled form runs.

Three rules of XLA for CPUs, beside those of `fused`:

- Operations run breadth first: an operation joins a queue as soon as all that it reads is made. So what depends on
  nothing, such as zeros or a copy of a weight, is made at the start, and branches take turns.
- A loop writes its result over one of its operands, if that operand has the size of the result and nothing reads it
  afterwards. A scatter writes over what it adds to in the same way.
- Arguments keep their memory, and every result has memory of its own from the start. While that does not hold the
  result, it may hold other values that are no larger. All other values share one stretch of memory; the largest get
  their place first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from redistrib.programs.allocation import Interval, allocate
from redistrib.programs.data import Compute, Op, ProgramData, made_by, used_by
from redistrib.programs.fused import fused, is_loop
from redistrib.programs.live import changes, devices_of

_Program = TypeVar("_Program", bound=ProgramData)


def compiled_peak_bytes(program: ProgramData) -> dict[int, int]:
    """Bytes of arguments, results and what is held besides, on each device, where compilers lay out the buffers."""
    made = breadth_first(fused(program))
    known: dict[tuple[Interval, ...], int] = {}
    found = {}
    for device in made.devices:
        held = tuple(sorted(_intervals(made, device)))
        if held not in known:
            known[held] = _size(held, len(made.ops))
        found[device] = known[held]
    return found


def breadth_first(program: _Program) -> _Program:
    """The program with its operations in the order of a queue."""
    readers: dict[str, list[int]] = {}
    waiting = []
    for k, op in enumerate(program.ops):
        names = dict.fromkeys(used_by(op))
        waiting.append(len(names))
        for name in names:
            readers.setdefault(name, []).append(k)
    queue = deque(k for k, count in enumerate(waiting) if not count)
    order: list[Op] = []

    def ready(names: Iterator[str] | Sequence[str]) -> None:
        for name in names:
            for k in readers.get(name, ()):
                waiting[k] -= 1
                if not waiting[k]:
                    queue.append(k)

    ready([value.name for value in program.inputs])
    while queue:
        op = program.ops[queue.popleft()]
        order.append(op)
        ready([value.name for value in made_by(op)])
    return replace(program, ops=tuple(order))


def _intervals(program: ProgramData, device: int) -> Iterator[Interval]:
    """What a device holds and when; a value that is written over ends before the operation that does so."""
    first = {value.name: -1 for value in program.inputs if device in value.place.devices}
    for k, (op, change) in enumerate(zip(program.ops, changes(program), strict=True)):
        first |= {value.name: k for value in change.born if device in value.place.devices}
        if change.scratch and device in devices_of(op, program):
            yield Interval(f"scratch {k}", k, k, change.scratch)
        over = _written_over(op, [value.name for value in change.died if first.get(value.name, -1) >= 0], program)
        for value in change.died:
            if value.name in first:
                yield Interval(value.name, first.pop(value.name), k - (value.name == over), value.tile_bytes)
    for name, k in first.items():
        yield Interval(name, k, len(program.ops), program.values[name].tile_bytes)


def _written_over(op: Op, ended: Sequence[str], program: ProgramData) -> str:
    """The value among those that end whose memory the result takes; empty where none is."""
    if not isinstance(op, Compute) or len(op.outs) != 1 or not (is_loop(op) or op.kind.startswith("scatter")):
        return ""
    size = op.outs[0][1].tile_bytes
    return next((name for name in ended if program.values[name].tile_bytes == size), "")


def _size(held: Sequence[Interval], end: int) -> int:
    arguments = [one for one in held if one.first < 0]
    results = sorted((one for one in held if one.first >= 0 and one.last == end), key=lambda one: one.bytes)
    homes = [(one.bytes, [one]) for one in results]
    rest: list[Interval] = []
    for one in sorted((one for one in held if one.first >= 0 and one.last < end), key=lambda one: -one.bytes):
        free = (own for size, own in homes if one.bytes <= size and not any(_meet(one, other) for other in own))
        home = next(free, None)
        (rest if home is None else home).append(one)
    return sum(one.bytes for one in (*arguments, *results)) + allocate(rest).size


def _meet(one: Interval, other: Interval) -> bool:
    return one.first <= other.last and other.first <= one.last
