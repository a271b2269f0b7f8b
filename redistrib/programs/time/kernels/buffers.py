"""Buffers of compiled programs: the bytes that one device holds while the compiled program runs.

Four rules of XLA for CPUs, besides those of `fused`:

- Operations run breadth first: an operation joins a queue as soon as all its operands are computed. So zeros, or a
  copy of a weight, are computed at the start, and branches take turns.
- Random numbers are hashes of two words each: while they are computed, three arrays as large as the result are held.
- A loop writes its result over one of its operands, if that operand has the size of the result and no later reader. A
  scatter writes over its first operand in the same way.
- Arguments keep their memory, and every result has reserved memory from the start. Before the result is written, this
  memory may hold other values that are no larger. All other values share one stretch of memory; the largest get their
  place first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from redistrib.programs.ir.data import Compute, Op, ProgramData, made_by, used_by
from redistrib.programs.ir.live import changes, devices_running
from redistrib.programs.ir.record import Fusion
from redistrib.programs.time.kernels.allocation import Interval, allocate
from redistrib.programs.time.kernels.fused import fused, is_loop

_Program = TypeVar("_Program", bound=ProgramData)
HASHED = 3  # words of a hash of 32 bits besides its result


def compiled_peak_bytes(program: ProgramData) -> dict[int, int]:
    """Bytes of arguments, results and intermediate values on each device, with the buffers of the compiled program."""
    compiled = breadth_first(fused(program))
    sizes: dict[tuple[Interval, ...], int] = {}
    peaks = {}
    for device in compiled.devices:
        buffers = tuple(sorted(_intervals(compiled, device)))
        if buffers not in sizes:
            sizes[buffers] = _size(buffers, len(compiled.ops))
        peaks[device] = sizes[buffers]
    return peaks


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
    """The buffers of a device with their lifetimes; one that an operation writes over ends before that operation."""
    first = {value.name: -1 for value in program.inputs if device in value.place.devices}
    for k, (op, change) in enumerate(zip(program.ops, changes(program), strict=True)):
        first |= {value.name: k for value in change.born if device in value.place.devices}
        scratch = change.scratch + _hashed_bytes(op)
        if scratch and device in devices_running(op, program):
            yield Interval(f"scratch {k}", k, k, scratch)
        over = _written_over(op, [value.name for value in change.died if first.get(value.name, -1) >= 0], program)
        for value in change.died:
            if value.name in first:
                yield Interval(value.name, first.pop(value.name), k - (value.name in over), value.tile_bytes)
    for name, k in first.items():
        yield Interval(name, k, len(program.ops), program.values[name].tile_bytes)


def _hashed_bytes(op: Op) -> int:
    """Bytes of the words that a hash of random numbers reads and writes besides its result."""
    if not isinstance(op, Compute) or op.record.fusion is not Fusion.HASH:
        return 0
    return HASHED * sum(value.tile_bytes for _, value in op.outs)


def _written_over(op: Op, ended: Sequence[str], program: ProgramData) -> set[str]:
    """The values among those that end whose buffers results reuse."""
    if not isinstance(op, Compute) or len(op.outs) != 1 or not (is_loop(op) or op.record.fusion is Fusion.SCATTER):
        return set()
    size = op.outs[0][1].tile_bytes
    return set([name for name in ended if program.values[name].tile_bytes == size][:1])


def _size(buffers: Sequence[Interval], end: int) -> int:
    """Bytes of the buffers: no argument or result shares its memory, except with smaller buffers that end before it."""
    arguments = [buffer for buffer in buffers if buffer.first < 0]
    results = sorted(
        (buffer for buffer in buffers if buffer.first >= 0 and buffer.last == end), key=lambda buffer: buffer.bytes
    )
    inside = [(result.bytes, [result]) for result in results]
    others: list[Interval] = []
    temporary = (buffer for buffer in buffers if buffer.first >= 0 and buffer.last < end)
    for buffer in sorted(temporary, key=lambda buffer: -buffer.bytes):
        free = (
            tenants
            for size, tenants in inside
            if buffer.bytes <= size and not any(_overlap(buffer, tenant) for tenant in tenants)
        )
        tenants = next(free, None)
        (others if tenants is None else tenants).append(buffer)
    return sum(buffer.bytes for buffer in (*arguments, *results)) + allocate(others).size


def _overlap(first: Interval, second: Interval) -> bool:
    """Whether two buffers are alive at one moment."""
    return first.first <= second.last and second.first <= first.last
