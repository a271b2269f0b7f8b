"""The run of a program whose devices all do the same: one block of tasks, on one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from redistrib.programs.ir.data import Call, Move, ProgramData, name_of
from redistrib.programs.time.issue import ProgramBlock, ProgramTasks
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.prices import height_of
from redistrib.programs.time.sharing import shared_clocks
from redistrib.programs.time.task_blocks import TimedTasks, in_turn, live_bytes, timed
from redistrib.programs.time.timeline import Event, Run


def is_single(program: ProgramData) -> bool:
    """Whether all devices of a program do the same, and it calls no other."""
    return not any(isinstance(op, Call) for op in program.ops) and len({*shared_clocks(program).values()}) == 1


def run_once(
    program: ProgramData, machine: Machine, *, overlap: bool = False, window: int | None = None, record: bool = True
) -> Run:
    """The run of such a program.

    Args:
        program: of which `is_single` holds.
        machine: the rates of devices and links.
        overlap, window, record: as for `simulate`.
    """
    program_block = ProgramTasks(machine).tasks_of(program)
    block = timed(program_block.block, window, is_apart=not overlap)
    devices = sorted(program.devices)
    clock = devices[0]
    run = Run(dict.fromkeys(devices, clock))
    for stream, seconds in _busy(program_block, block).items():
        run.busy[clock, stream] = seconds
        run.now[clock, stream] = max(
            (end for k, end in enumerate(block.times.end) if stream in _streams(program_block, block, k)), default=0.0
        )
    run.peak[clock] = block.peak()[0]
    run.height, run.met = _height(program_block), _met(program_block)
    if record:
        run.events += _events(program_block, block, clock)
    return run


def _streams(program_block: ProgramBlock, block: TimedTasks, task: int) -> set[str]:
    """The streams that a task keeps busy."""
    if task not in program_block.parts:
        return {"moves" if block.tasks[task].moves and not block.is_apart else ""}
    parts = zip(program_block.parts[task], block.parts[task], strict=True)
    return {"", *(stream for part in parts for k in range(len(part[0].ops)) for stream in _streams(*part, k))}


def _busy(program_block: ProgramBlock, block: TimedTasks) -> Mapping[str, float]:
    """Seconds in which each stream works."""
    busy: dict[str, float] = defaultdict(float)
    for task, timed_task in enumerate(block.tasks):
        if task not in program_block.parts:
            (stream,) = _streams(program_block, block, task)
            busy[stream] += timed_task.seconds
            continue
        steps, _ = program_block.block.loops[task]
        for part in zip(program_block.parts[task], block.parts[task], strict=True):
            for stream, seconds in _busy(*part).items():
                busy[stream] += steps * seconds
    return busy


def _height(program_block: ProgramBlock) -> int:
    """Elements of the largest tile of anything that moves."""
    tallest = max((_height(part) for parts in program_block.parts.values() for part in parts), default=0)
    for op, stages in zip(program_block.ops, program_block.stages, strict=True):
        if isinstance(op, Move):
            tallest = max(tallest, height_of(op, program_block.program, stages))
    return tallest


def _met(program_block: ProgramBlock) -> int:
    """Operations met, those of a loop once."""
    return sum(
        sum(map(_met, program_block.parts[task])) if task in program_block.parts else 1
        for task in range(len(program_block.ops))
    )


def _events(program_block: ProgramBlock, block: TimedTasks, clock: int) -> Iterator[Event]:
    """The operations with their times, as they are issued, but for those that take none."""
    order, start, end = times = block.times
    counted = in_turn(order, 0.5) if block.is_apart else times
    held = live_bytes(program_block.block.buffers, block.scratch, counted)
    for k in order:
        op, stages = program_block.ops[k], tuple(program_block.stages[k])
        if not (block.tasks[k].seconds or stages):
            continue
        is_move = isinstance(op, Move)
        kind = "loop" if k in program_block.parts else "move" if is_move else "compute"
        stream = "moves" if is_move and not block.is_apart else ""
        during, after = held.at(counted.start[k]), held.at(counted.end[k])
        yield Event(name_of(op), kind, clock, stream, start[k], end[k], stages, during, after)
