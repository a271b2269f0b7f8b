"""Programs as blocks of tasks, and the order in which their operations are issued where moves run beside computations.

Devices are taken as one, which has all operations: so the times are those of programs whose operations run on all
devices, as those of `rd.distribute` do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from redistrib.programs.ir.data import Call, Loop, Move, Op, ProgramData, held_by, made_by, stored_by, used_by
from redistrib.programs.ir.live import Liveness, carries_on, renames, steps_of
from redistrib.programs.ir.program import Program
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.prices import MovePrices, PricedStage, priced_stages
from redistrib.programs.time.task_blocks import TaskBlock, TaskBuffer, TimedTasks, timed
from redistrib.programs.time.two_streams import Task


@dataclass(eq=False)
class ProgramBlock:
    """A program as the tasks of one device.

    Attributes:
        program: the program.
        block: its tasks and buffers.
        ops: of every task its operation; moves that only give another name are left out.
        stages: of every task its parts in time; of loops and calls none.
        names: the moves that only give another name.
        parts: of loops and calls, by task, their programs.
    """

    program: ProgramData
    block: TaskBlock = field(default_factory=TaskBlock)
    ops: list[Op] = field(default_factory=list)
    stages: list[Sequence[PricedStage]] = field(default_factory=list)
    names: list[Op] = field(default_factory=list)
    parts: dict[int, Sequence[ProgramBlock]] = field(default_factory=dict)


@dataclass
class ProgramTasks:
    """The tasks of programs on a machine.

    Attributes:
        machine: the rates of devices and links.
    """

    machine: Machine
    _prices: MovePrices = field(default_factory=dict)
    _programs: dict[int, ProgramBlock] = field(default_factory=dict)
    _liveness: Liveness = field(default_factory=Liveness)

    def tasks_of(self, program: ProgramData, outside: int = 0) -> ProgramBlock:
        """A program, of which the bytes of the first inputs are counted elsewhere, as many as `outside`."""
        if id(program) in self._programs:
            return self._programs[id(program)]
        program_block = self._programs[id(program)] = ProgramBlock(program)
        lives = self._liveness.lifetimes(program)
        task_of: dict[int, int] = {}
        makers: dict[str, tuple[int, ...]] = {}  # the tasks that a value waits for; several where it has other names
        for number, (op, change) in enumerate(zip(program.ops, lives.changes, strict=True)):
            reads = tuple(dict.fromkeys(k for name in used_by(op) for k in makers.get(name, ())))
            if isinstance(op, Move) and renames(op, program):
                makers[op.out.name] = reads
                program_block.names.append(op)
                continue
            freed = sum(value.tile_bytes for value in change.died)
            grows = isinstance(op, Move) and op.out.tile_bytes > freed
            stages, is_whole = priced_stages(op, program, self.machine, self._prices), isinstance(op, Loop | Call)
            task = Task(sum(stage.seconds for stage in stages), reads, isinstance(op, Move), grows, is_whole)
            task_of[number] = program_block.block.add(task, 0 if is_whole else change.scratch)
            program_block.ops.append(op)
            program_block.stages.append(stages)
            for value in made_by(op):
                makers[value.name] = (task_of[number],)
            if isinstance(op, Loop | Call):
                self._add_parts(program_block, task_of[number], op)
        program_block.block.buffers += self._buffers(program, task_of, outside)
        return program_block

    def _add_parts(self, program_block: ProgramBlock, task: int, op: Loop | Call) -> None:
        """The programs that an operation runs."""
        if isinstance(op, Loop):
            steps, parts = op.steps, [self.tasks_of(step, op.form.held) for step in steps_of(op)]
        else:
            steps, parts = 1, [self.tasks_of(op.program)]
        program_block.parts[task], program_block.block.loops[task] = parts, (steps, [part.block for part in parts])

    def _buffers(self, program: ProgramData, task_of: Mapping[int, int], outside: int) -> Iterator[TaskBuffer]:
        """The buffers of values, each with the operations that make and read its bytes under any name."""
        first = self._liveness.aliases(program)
        stays = {first[value.name] for value in program.inputs if value.name not in program.donated}
        stays |= {first[name] for name in program.outputs}
        readers, begins = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        used = {*program.outputs, *(name for op in program.ops for name in used_by(op))}
        named_first, latest = set[str](), -1
        for number, op in enumerate(program.ops):  # a name that nobody uses counts for the task before it
            latest = task_of.get(number, latest)
            if number not in task_of and used.issuperset(value.name for value in made_by(op)):
                continue
            taken_over = {name for name, _ in carries_on(op, program, first)} if isinstance(op, Loop) else ()
            for name in dict.fromkeys(first[name] for name in held_by(op)):
                if latest < 0:
                    named_first.add(name)
                else:
                    (begins if name in taken_over else readers)[name].append(latest)
        inputs = [(value, (), number < outside) for number, value in enumerate(program.inputs)]
        results = [(value, (k,), False) for number, k in task_of.items() for value in stored_by(program.ops[number])]
        for value, makers, is_counted in (*inputs, *results):
            name = value.name
            if first[name] == name and not (is_counted and name in stays):
                uses, stay = ((*readers[name],), (*begins[name],)), name in stays
                is_over = name in named_first and not (any(uses) or stay)
                yield TaskBuffer(value.tile_bytes, makers, *uses, stay, is_counted, is_over)


def issued(program: Program, machine: Machine, window: int | None = None) -> Program:
    """The program with its moves where a device should issue them, in loops and called programs too.

    Args:
        program: to be reordered.
        machine: the rates of devices and links.
        window: computations by which a move that takes memory may be issued earlier than the program has it; None for
            any number.
    """
    program_block = ProgramTasks(machine).tasks_of(program)
    return replace(program, ops=tuple(_in_order(program_block, timed(program_block.block, window), {})))


def _in_order(program_block: ProgramBlock, block: TimedTasks, done: dict[int, ProgramData]) -> Iterator[Op]:
    """The operations of a program as they are issued; `done` has the programs that were reordered, by their blocks."""
    ops = [*program_block.ops]
    for task, parts in program_block.parts.items():
        inner = [_reordered(*pair, done) for pair in zip(parts, block.parts[task], strict=True)]
        match ops[task]:
            case Loop() as op:
                step = replace(inner[0], donated=op.program.donated)
                ops[task] = replace(op, program=step, condition=inner[1] if op.condition is not None else None)
            case Call() as op:
                ops[task] = replace(op, program=inner[0])
    return _with_names(ops, block.times.order, program_block.names, program_block.program)


def _reordered(program_block: ProgramBlock, block: TimedTasks, done: dict[int, ProgramData]) -> ProgramData:
    if id(program_block) not in done:
        done[id(program_block)] = replace(program_block.program, ops=tuple(_in_order(program_block, block, done)))
    return done[id(program_block)]


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
