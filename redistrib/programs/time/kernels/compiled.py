"""A program as the compiler of a machine runs it: kernels in the place of operations, and what they do not store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, TypeVar

from redistrib.programs.ir.data import (
    Compute,
    KernelLoop,
    KernelMove,
    KernelPart,
    Loop,
    Move,
    Op,
    ProgramData,
    held_by,
    made_by,
    stored_by,
    used_by,
)
from redistrib.programs.ir.graph import Operation
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import renames
from redistrib.programs.ir.value import Value
from redistrib.programs.time.kernels.attention import attentions
from redistrib.programs.time.kernels.fusion import Kernel, kernels_on
from redistrib.programs.time.kernels.prices import seconds_of, stored_bytes
from redistrib.programs.time.kernels.unmoved import Unmoved, unmoved
from redistrib.programs.time.machine import Machine

_Program = TypeVar("_Program", bound=ProgramData)


@dataclass(frozen=True)
class Unstored(Value):
    """A value that only its own kernel reads."""

    @property
    def tile_bytes(self) -> int:
        """None of a device."""
        return 0


def compiled(program: _Program, machine: Machine) -> _Program:
    """A program of kernels, to be timed and not to be run; itself for a machine that computes each operation alone.

    An operation inside the kernels of its readers is left out, and they read what it would. Where it is also moved, it
    is computed just before its first reader. A kernel holds what it reads as it was made, beside the tiles that were
    moved for it.
    """
    if not machine.fuses:
        return program
    flat = _apart(inlined(program))
    whole = unmoved(flat)
    kernels, moved = kernels_on(machine, whole.graph), {*_moved(flat, whole)}
    pairs = zip(kernels, whole.graph.operations, strict=True)
    unstored = {array.name for kernel, op in pairs if not kernel.stores for array in op.outs} - moved
    passes = [numbers for one in attentions(whole.graph) for numbers in one.passes] if machine.flash else []
    return _Compiled(machine, whole, kernels, moved, unstored, passes).program(flat, set())


def _apart(program: _Program) -> _Program:
    """The same with a program of its own for each loop."""
    ops = [
        replace(op, program=_apart(op.program), condition=op.condition and _apart(op.condition))
        if isinstance(op, Loop)
        else op
        for op in program.ops
    ]
    return replace(program, ops=tuple(ops))


def _moved(program: ProgramData, whole: Unmoved) -> Iterator[str]:
    """The arrays that are moved."""
    for op in program.ops:
        if isinstance(op, Move):
            yield whole.array_of[id(program), op.value]
        elif isinstance(op, Loop):
            for inner in op.programs:
                yield from _moved(inner, whole)


class _Inside(NamedTuple):
    """A value inside kernels.

    Attributes:
        reads: what it is computed from, by name.
        through: of what it is computed through, itself included, the values that are in memory too.
    """

    reads: tuple[str, ...]
    through: tuple[Value, ...]


@dataclass
class _Compiled:
    """The kernels of a program.

    Attributes:
        machine: the machine.
        whole: the graph of the program.
        kernels: of its operations.
        moved: arrays that are moved.
        unstored: arrays that only their own kernels read.
        passes: of flash kernels, the operations of each by number.
        made: for arrays the program, by its id, and the value in it as which they are made.
    """

    machine: Machine
    whole: Unmoved
    kernels: Sequence[Kernel]
    moved: set[str]
    unstored: set[str]
    passes: Sequence[frozenset[int]]
    made: dict[str, tuple[int, str]] = field(default_factory=dict)

    def program(self, program: _Program, outside: set[str]) -> _Program:
        """The program in kernels; `outside` gets the arrays made elsewhere that its kernels hold."""
        kernels = _Kernels(self, program, outside)
        inputs, ops = tuple(map(kernels.in_memory, program.inputs)), [*kernels.ops()]
        for numbers in self.passes:
            if parts := [kernels.parts[k] for k in sorted(numbers & kernels.parts.keys())]:
                ops = _in_one_pass(ops, parts)
        return replace(program, inputs=inputs, ops=tuple(ops))


@dataclass
class _Kernels:
    """The operations of a program in kernels.

    Attributes:
        compiled: the whole program.
        program: this one.
        outside: gets the arrays made elsewhere that its kernels hold.
        inside: values inside kernels.
        stored: those of them that are in memory, since they are moved too.
        same: other names of values inside kernels.
        parts: of kernels, by the numbers of their operations.
    """

    compiled: _Compiled
    program: ProgramData
    outside: set[str]
    inside: dict[str, _Inside] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    same: dict[str, str] = field(default_factory=dict)
    parts: dict[int, KernelPart] = field(default_factory=dict)

    def ops(self) -> Iterator[Op]:
        """In the order of the program."""
        for value in self.program.inputs:
            self._make(value)
        for place, op in enumerate(self.program.ops):
            for value in made_by(op):
                self._make(value)
            match op:
                case Compute():
                    yield from self._computed(op, self.compiled.whole.number_of[id(self.program), place])
                case Move() if op.value in self.same or op.value in self.inside:
                    name = self.same.get(op.value, op.value)
                    if renames(op, self.program):
                        self.same[op.out.name] = name
                    else:
                        yield KernelMove(op.value, op.out, op.plan, *self._memory([name]))
                case Loop():
                    yield self._loop(op)
                case _:
                    yield op

    def _make(self, value: Value) -> None:
        array = self.compiled.whole.array_of[id(self.program), value.name]
        self.compiled.made.setdefault(array, (id(self.program), value.name))

    def _computed(self, op: Compute, number: int) -> Iterator[KernelPart]:
        """A part of a kernel; of an operation inside of others only its seconds, if it takes any."""
        kernel, operation = self.compiled.kernels[number], self.compiled.whole.graph.operations[number]
        names = [self.same.get(name, name) for _, name in op.ins]
        seconds = self._seconds(op, operation, kernel)
        if kernel.runs:
            reads, holds, stores = self._memory(names)
            outs = tuple((array, self.in_memory(value)) for array, value in op.outs)
            held = tuple(dict.fromkeys([*holds, *self._held(kernel)]))
            self.parts[number] = _part(op, reads, outs, seconds, held, stores)
            yield self.parts[number]
            return
        reads, through = self._through(names)
        is_moved = not {array.name for array in operation.outs}.isdisjoint(self.compiled.moved)
        for _, value in op.outs:
            self.inside[value.name] = _Inside(reads, (*through, value) if is_moved else through)
        if seconds:
            yield _part(op, reads, (), seconds)

    def _through(self, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[Value, ...]]:
        """What operands are computed from, and those in memory that are moved too, by all kernels that read them."""
        reads, through = dict[str, None](), dict[Value, None]()
        for name in names:
            if name in self.inside:
                reads |= dict.fromkeys(self.inside[name].reads)
                through |= dict.fromkeys(self.inside[name].through)
            else:
                reads[name] = None
        return tuple(reads), tuple(through)

    def _memory(self, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Value, ...]]:
        """What an operation that reads these values waits for, holds, and is the first to store."""
        reads, through = self._through(names)
        stores = tuple(value for value in through if value.name not in self.stored)
        self.stored |= {value.name for value in stores}
        return reads, tuple(value.name for value in through), stores

    def _held(self, kernel: Kernel) -> Iterator[str]:
        """The values that a kernel holds as they were made, whatever of them was moved."""
        for read in kernel.reads:
            program, name = self.compiled.made[read.name]
            if program == id(self.program):
                yield name
            else:
                self.outside.add(read.name)

    def _loop(self, op: Loop) -> KernelLoop:
        inside = set[str]()
        step = self.compiled.program(op.program, inside)
        condition = op.condition and self.compiled.program(op.condition, inside)
        makers = [self.compiled.made[name] for name in sorted(inside)]
        self.outside |= {name for name in inside if self.compiled.made[name][0] != id(self.program)}
        facts = {one.name: getattr(op, one.name) for one in fields(op)}
        facts |= {"program": step, "condition": condition, "outs": tuple(map(self.in_memory, op.outs))}
        return KernelLoop(**facts, holds=tuple(name for program, name in makers if program == id(self.program)))

    def in_memory(self, value: Value) -> Value:
        """A value, without bytes where it is not stored."""
        if self.compiled.whole.array_of[id(self.program), value.name] not in self.compiled.unstored:
            return value
        return Unstored(value.name, value.type, value.place, value.dtype, value.windows, value.padding)

    def _seconds(self, op: Compute, operation: Operation, kernel: Kernel) -> float:
        """Seconds of a device's part of an operation."""
        machine, ins = self.compiled.machine, [self.program.values[name] for _, name in op.ins]
        size = stored_bytes(operation, [value.type for value in ins], [value.type for _, value in op.outs], kernel)

        def held(read: int) -> int:
            return machine.bytes_of(ins[read].type.local_size, ins[read].dtype)

        return seconds_of(
            machine, operation, kernel, (value.dtype for value in ins), size, kernel.flops(op.flops), held
        )


def _in_one_pass(ops: Sequence[Op], parts: Sequence[KernelPart]) -> list[Op]:
    """The operations where these parts are one kernel: it begins when all that it reads is there, and holds it."""
    places = [k for k, op in enumerate(ops) if any(op is part for part in parts)]
    begin, end = places[0], places[-1]
    made = {value.name for part in parts for value in stored_by(part)}
    operands = dict.fromkeys(name for part in parts for name in held_by(part) if name not in made)
    before, later = list[Op](), {value.name for value in stored_by(ops[begin])}
    rest = list[Op]()
    for op in ops[begin + 1 : end]:
        if isinstance(op, Move) and op.out.name in operands and later.isdisjoint(used_by(op)):
            before.append(op)
        else:
            later |= {value.name for value in stored_by(op)}
            rest.append(op)
    moved = tuple((op.out.name, op.out.name) for op in before if isinstance(op, Move))
    first = replace(parts[0], ins=(*parts[0].ins, *moved))
    last = first if begin == end else parts[-1]
    kernel = [*before, first, *rest] if begin != end else []
    return [*ops[:begin], *kernel, replace(last, holds=tuple(operands)), *ops[end + 1 :]]


def _part(
    op: Compute,
    reads: Iterable[str],
    outs: tuple[tuple[str, Value], ...],
    seconds: float,
    holds: tuple[str, ...] = (),
    stores: tuple[Value, ...] = (),
) -> KernelPart:
    ins = tuple((name, name) for name in reads)
    return KernelPart(op.name, op.parts, op.place, ins, outs, op.kind, op.source, seconds, holds, stores)
