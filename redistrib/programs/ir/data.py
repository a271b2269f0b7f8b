"""Programs over devices, in static single assignment: computations and moves, their devices and their order.

==========  ===========================================================================================
operation   effect
==========  ===========================================================================================
`Compute`   every device of a place works on its tile of an iteration space; nothing travels
`Move`      a value is given another type, by a plan
`Call`      another program runs on values of this one
`Loop`      another program runs on values of this one again and again
==========  ===========================================================================================

Every name is defined once, by an input or by the operation that makes it, and says type, place and element type of
the value. Operations stand in the order in which each device runs them. Whether a program is right is decided in
`check`; its results, in `reference`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from redistrib.plans.dtypes import packed_bytes, packed_total
from redistrib.plans.plan import Plan
from redistrib.programs.ir.loops import LoopForm
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.record import Record
from redistrib.programs.ir.value import Place, Value, pulled


@dataclass(frozen=True)
class Compute:
    """An operation, or several fused into one that may not communicate inside.

    Attributes:
        name: the operation.
        parts: the nests it is made of and their cuts, in order; one, unless nests are fused.
        place: the devices that run it.
        ins: pairs of an array of the parts and the value that it reads.
        outs: pairs of an array of the parts and the value that its result becomes.
        kind: the operation's name without a number, `"dot_general"`; by default its name.
        source: where it comes from, `file:line`; text leaves it out.
    """

    name: str
    parts: tuple[ScheduledNest, ...]
    place: Place
    ins: tuple[tuple[str, str], ...]
    outs: tuple[tuple[str, Value], ...]
    kind: str = ""
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", self.name)

    @property
    def record(self) -> Record:
        """What is known of the operation besides its nests."""
        return self.parts[0].nest.record or record_of(self.kind)

    @property
    def flops(self) -> int:
        """Floating-point operations of one device."""
        return sum(int(part.nest.flops * part.cut.local_size) for part in self.parts)


@dataclass(frozen=True)
class Move:
    """A value is given another type.

    Attributes:
        value: the value.
        out: the value it becomes.
        plan: how; None where the two places are not made of the same devices, or the tiles will overlap: then every
            device receives the elements that it lacks from devices that hold them.
    """

    value: str
    out: Value
    plan: Plan | None


@dataclass(frozen=True)
class Call:
    """Another program runs.

    Attributes:
        program: the program.
        ins: the value for each of its inputs.
        outs: the value that each of its outputs becomes.
    """

    program: ProgramData
    ins: tuple[str, ...]
    outs: tuple[Value, ...]


@dataclass(frozen=True)
class Loop:
    """A program that runs once for each step, and hands its carried values to the next step.

    The program's inputs, and `ins`, are in this order: constants, equal at every step; carried values at the start of
    the step; stacked arrays, which have an entry for each step along dimension 0, and of which a step reads its entry.
    The program's outputs are the carried values at the end of the step, and an entry for each stacked result. `outs`
    are the carried values after the last step, then the stacked results.

    Attributes:
        name: of the loop.
        program: one step.
        ins: the values for the program's inputs.
        outs: the values that become of its outputs.
        constants: how many of the inputs are constants.
        carried: how many are carried.
        steps: how often the program runs; of a loop with a condition the steps that it is counted with.
        reverse: whether the last entry comes first.
        condition: of the constants and the carried values: one boolean, whether another step follows; None where the
            steps are counted.
        source: where it comes from, `file:line`; text leaves it out.
    """

    name: str
    program: ProgramData
    ins: tuple[str, ...]
    outs: tuple[Value, ...]
    constants: int
    carried: int
    steps: int
    reverse: bool = False
    condition: ProgramData | None = None
    source: str = field(default="", compare=False)

    @property
    def form(self) -> LoopForm:
        """How often it runs, and how its operands and results follow each other."""
        return LoopForm(self.constants, self.carried, self.steps, self.reverse)

    @property
    def programs(self) -> tuple[ProgramData, ...]:
        """The step, and the condition where there is one."""
        return (self.program,) if self.condition is None else (self.program, self.condition)


@dataclass(frozen=True)
class KernelPart(Compute):
    """The part of an operation in a kernel, in a program that is timed and not run.

    Attributes:
        seconds: that it takes, on each device.
        holds: values that are in memory until it is done, besides those that it waits for.
        stores: values that are in memory from its start on, besides its results.
    """

    seconds: float = 0.0
    holds: tuple[str, ...] = ()
    stores: tuple[Value, ...] = ()


@dataclass(frozen=True)
class KernelMove(Move):
    """A move between kernels, in a program that is timed and not run.

    Attributes:
        reads: values that it waits for: what its operand is computed from, where no kernel has made it before.
        holds, stores: as of `KernelPart`.
    """

    reads: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    stores: tuple[Value, ...] = ()


@dataclass(frozen=True)
class KernelLoop(Loop):
    """A loop of kernels, in a program that is timed and not run.

    Attributes:
        holds: as of `KernelPart`, by the kernels of its steps.
    """

    holds: tuple[str, ...] = ()


Op: TypeAlias = Compute | Move | Call | Loop


@dataclass(frozen=True)
class ProgramData:
    """Operations over devices, in order.

    Attributes:
        inputs: the values it starts from.
        ops: the operations.
        outputs: names of the values it ends with.
        name: of the program in calls.
        donated: names of the inputs whose memory is free after their last reader. Every other input stays until the
            program ends. Where the program is called, its inputs are the caller's, and this says nothing.
    """

    inputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...]
    name: str = "main"
    donated: tuple[str, ...] = ()

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by its name."""
        return {value.name: value for value in (*self.inputs, *self._results())}

    def _results(self) -> Iterator[Value]:
        for op in self.ops:
            yield from stored_by(op)

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The devices of the machine that take part, ascending."""
        devices = {device for place in self.places for device in place.devices}
        for program in {id(one): one for op in self.ops for one in called_by(op)}.values():
            devices |= {*program.devices}
        return tuple(sorted(devices))

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where its values are, those of called programs left out; a place may be there more than once."""
        return tuple({id(value.place): value.place for value in self.values.values()}.values())

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves, in order, those of called programs left out."""
        return tuple(op for op in self.ops if isinstance(op, Move))

    def received(self, move: Move) -> dict[int, int]:
        """Elements that each device receives from others in a move, by its number in the machine."""
        value = self.values[move.value]
        if move.plan is not None:
            return dict(zip(value.place.devices, move.plan.received, strict=True))
        return dict.fromkeys(value.place.devices, 0) | pulled(value, move.out)

    def received_bytes_of(self, move: Move) -> int:
        """Bytes that all devices receive from others in a move."""
        return packed_total(self.received(move).values(), move.out.dtype)

    @cached_property
    def received_by_device(self) -> dict[int, int]:
        """Bytes that each device receives from others in all moves: those of called programs included, of loops at
        every step."""
        total = dict.fromkeys(self.devices, 0)
        for op in self.ops:
            if isinstance(op, Move):
                for device, elements in self.received(op).items():
                    total[device] += packed_bytes(elements, op.out.dtype)
            else:
                times = op.steps if isinstance(op, Loop) else 1
                for program in called_by(op):
                    for device, count in program.received_by_device.items():
                        total[device] += count * times
        return total

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of one device: those of called programs included, those of loops at every step.

        Operations of different devices are added too.
        """
        total = 0
        for op in self.ops:
            times = op.steps if isinstance(op, Loop) else 1
            total += op.flops if isinstance(op, Compute) else times * sum(program.flops for program in called_by(op))
        return total

    @property
    def received_bytes(self) -> int:
        """Bytes received in all moves by all devices."""
        return sum(self.received_by_device.values())


def name_of(op: Op) -> str:
    """The name of an operation in messages."""
    match op:
        case Compute() | Loop():
            return op.name
        case Call():
            return op.program.name
        case Move():
            return f"move {op.value}"


def made_by(op: Op) -> Iterable[Value]:
    """The values that an operation defines."""
    match op:
        case Compute():
            return [value for _, value in op.outs]
        case Move():
            return [op.out]
        case Call() | Loop():
            return op.outs


def stored_by(op: Op) -> Iterable[Value]:
    """The values that an operation defines or, as a part of a kernel, puts into memory."""
    return (*made_by(op), *op.stores) if isinstance(op, KernelPart | KernelMove) else made_by(op)


def called_by(op: Op) -> tuple[ProgramData, ...]:
    """The programs that an operation runs: that of a call, the step and the condition of a loop."""
    match op:
        case Call():
            return (op.program,)
        case Loop():
            return op.programs
        case Compute() | Move():
            return ()


def is_effectful(op: Op) -> bool:
    """Whether an operation does more than make its results, so that it stays where nothing reads them."""
    match op:
        case Compute():
            return any(part.nest.effectful for part in op.parts)
        case Call() | Loop():
            return any(is_effectful(inner) for program in called_by(op) for inner in program.ops)
        case Move():
            return False


def used_by(op: Op) -> Iterable[str]:
    """The values that an operation reads."""
    match op:
        case Compute():
            return [name for _, name in op.ins]
        case Call() | Loop():
            return op.ins
        case KernelMove():
            return op.reads
        case Move():
            return [op.value]


def held_by(op: Op) -> Iterable[str]:
    """The values that an operation reads or, as a part of a kernel, holds."""
    return (*used_by(op), *op.holds) if isinstance(op, KernelPart | KernelMove | KernelLoop) else used_by(op)
