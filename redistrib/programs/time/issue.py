"""The order in which a program's operations are issued where moves run beside computations, see `two_streams`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from redistrib.programs.ir.data import Call, Compute, Loop, Move, Op, ProgramData, made_by, used_by
from redistrib.programs.ir.live import Liveness, renames
from redistrib.programs.ir.program import Program
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.prices import compute_stages, move_stages
from redistrib.programs.time.two_streams import Task, overlapped


def issued(program: Program, machine: Machine, window: int | None = None) -> Program:
    """The program with its moves where a device should issue them, in loops and called programs too.

    Devices are taken as one, which has all operations: so the order is that of a list schedule where all of them run
    on all devices, as those of `rd.distribute` do.

    Args:
        program: to be reordered.
        machine: the rates of devices and links.
        window: computations by which a move that takes memory may be issued earlier than the program has it; None for
            any number.
    """
    return _Issue(machine, window).reordered(program)


@dataclass
class _Issue:
    machine: Machine
    window: int | None
    prices: dict[tuple[object, ...], float] = field(default_factory=dict)
    programs: dict[int, tuple[ProgramData, ProgramData, float]] = field(default_factory=dict)

    def reordered(self, program: Program) -> Program:
        return replace(program, ops=tuple(self._ops(program)[0]))

    def _called(self, program: ProgramData) -> tuple[ProgramData, float]:
        """A called program, reordered, and the seconds of its operations on one device."""
        if id(program) not in self.programs:
            ops, seconds = self._ops(program)
            self.programs[id(program)] = (program, replace(program, ops=tuple(ops)), seconds)
        return self.programs[id(program)][1:]

    def _ops(self, program: ProgramData) -> tuple[list[Op], float]:
        died = [change.died for change in Liveness().lifetimes(program).changes]
        ops: list[Op] = []
        tasks: list[Task] = []
        makers: dict[str, tuple[int, ...]] = {}  # the tasks that a value waits for; several where it has other names
        names: list[Op] = []  # moves that only give another name
        for op, ended in zip(program.ops, died, strict=True):
            reads = tuple(dict.fromkeys(k for name in used_by(op) for k in makers.get(name, ())))
            if isinstance(op, Move) and renames(op, program):
                makers[op.out.name] = reads
                names.append(op)
                continue
            op, seconds = self._timed(op, program)
            freed = sum(value.tile_bytes for value in ended)
            grows = isinstance(op, Move) and op.out.tile_bytes > freed
            for value in made_by(op):
                makers[value.name] = (len(tasks),)
            ops.append(op)
            tasks.append(Task(seconds, reads, isinstance(op, Move), grows, isinstance(op, Loop | Call)))
        timeline = overlapped(tasks, self.window)
        return [*_with_names(ops, timeline.order, names, program)], timeline.seconds

    def _timed(self, op: Op, program: ProgramData) -> tuple[Op, float]:
        """An operation, reordered inside, and its seconds."""
        if isinstance(op, Compute):
            return op, sum(stage.seconds for stage in compute_stages(op, program, self.machine))
        if isinstance(op, Move):
            value = program.values[op.value]
            key: tuple[object, ...] = (id(op.plan), value.place)
            if op.plan is None:
                key = (value.type, value.place, op.out.type, op.out.windows, op.out.place, op.out.dtype)
            if key not in self.prices:
                self.prices[key] = sum(stage.seconds for stage in move_stages(op, program, self.machine))
            return op, self.prices[key]
        inner, seconds = self._called(op.program)
        if isinstance(op, Loop):
            condition = None if op.condition is None else self._called(op.condition)
            steps = op.steps * (seconds + (condition[1] if condition else 0.0))
            return replace(op, program=inner, condition=condition[0] if condition else None), steps
        return replace(op, program=inner), seconds


def _with_names(ops: list[Op], order: tuple[int, ...], names: list[Op], program: ProgramData) -> Iterator[Op]:
    """Operations in an order, with each move that only renames a value directly after the value's maker."""
    there = {value.name for value in program.inputs}
    waiting = [*names]

    def named() -> Iterator[Op]:
        nonlocal waiting
        while ready := [op for op in waiting if there.issuperset(used_by(op))]:
            yield from ready
            there.update(value.name for op in ready for value in made_by(op))
            waiting = [op for op in waiting if not there.issuperset(value.name for value in made_by(op))]

    yield from named()
    for number in order:
        yield ops[number]
        there.update(value.name for value in made_by(ops[number]))
        yield from named()
