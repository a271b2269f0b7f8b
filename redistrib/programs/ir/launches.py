"""A program on several places as launches: stretches of operations on one place, and transfers between places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from redistrib.programs.ir.data import (
    Call,
    Compute,
    Move,
    Op,
    ProgramData,
    is_effectful,
    made_by,
    used_by,
)
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.value import Place, Value


@dataclass(frozen=True)
class Launch:
    """A stretch of operations on one place.

    Attributes:
        program: the operations, with inputs and outputs on the place; equal launches share one object.
        place: the devices.
        ins: for each input the value of the whole program.
        outs: for each output the value of the whole program.
        drops: values without a later reader.
    """

    program: ProgramData
    place: Place
    ins: tuple[str, ...]
    outs: tuple[Value, ...]
    drops: tuple[str, ...] = ()


@dataclass(frozen=True)
class TransferLaunch:
    """Values that are sent together from one place to another.

    Attributes:
        ins: the values.
        outs: the values that they become.
        drops: values without a later reader.
    """

    ins: tuple[str, ...]
    outs: tuple[Value, ...]
    drops: tuple[str, ...] = ()


AnyLaunch: TypeAlias = Launch | TransferLaunch


def launches(program: ProgramData) -> list[AnyLaunch]:
    """The launches and transfers of a program, in order.

    On every place the operations stay in order. A stretch ends only when another place needs its results, or its place
    calls a program: so small operations that alternate between places become few stretches.
    """
    if any(isinstance(op, Call) and len(_places(op.program)) > 1 for op in program.ops):
        program = inlined(program)
    stretches = _Stretches(program)
    for op in program.ops:
        stretches.add(op)
    for place in list(stretches.waiting):
        stretches.finish(place)
    return _dropping(stretches.items, program)


def _places(program: ProgramData) -> dict[Place, None]:
    return dict.fromkeys(value.place for value in program.values.values())


@dataclass
class _Stretches:
    """The stretches so far.

    Attributes:
        program: whose operations they are.
        items: the complete launches and transfers.
        waiting: for every place the operations of its open stretch.
        makers: for every result of an open stretch its place.
    """

    program: ProgramData
    items: list[AnyLaunch] = field(default_factory=list)
    waiting: dict[Place, list[Op]] = field(default_factory=dict)
    makers: dict[str, Place] = field(default_factory=dict)

    def add(self, op: Op) -> None:
        match op:
            case Call():
                (place,) = _places(op.program)
                self.finish(place)
                self.items.append(Launch(op.program, place, op.ins, op.outs))
            case Move() if self.program.values[op.value].place != op.out.place:
                if op.value in self.makers:
                    self.finish(self.makers[op.value])
                self._send(op)
            case _:
                place = op.place if isinstance(op, Compute) else next(iter(made_by(op))).place
                self.waiting.setdefault(place, []).append(op)
                self.makers |= {value.name: place for value in made_by(op)}

    def finish(self, place: Place) -> None:
        """Complete the stretch of a place; transfers have completed the stretches of its operands."""
        ops = self.waiting.pop(place, [])
        if not ops:
            return
        results = {value.name: value for op in ops for value in made_by(op)}
        values = self.program.values
        ins = tuple(dict.fromkeys(name for op in ops for name in used_by(op) if name not in results))
        inside = ProgramData(tuple(values[name] for name in ins), tuple(ops), tuple(results))
        self.items.append(Launch(inside, place, ins, tuple(results.values())))
        self.makers = {name: at for name, at in self.makers.items() if at != place}

    def _send(self, op: Move) -> None:
        """Send a value, in the last transfer if that goes between the same places."""
        last = self.items[-1] if self.items else None
        values = self.program.values
        ends = values[op.value].place, op.out.place
        if isinstance(last, TransferLaunch) and (values[last.ins[0]].place, last.outs[0].place) == ends:
            self.items[-1] = TransferLaunch((*last.ins, op.value), (*last.outs, op.out))
            return
        self.items.append(TransferLaunch((op.value,), (op.out,)))


def _dropping(items: Sequence[AnyLaunch], program: ProgramData) -> list[AnyLaunch]:
    """The items without unread results, each with the values that have no later reader."""
    alive = set(program.outputs)
    called = {id(op.program) for op in program.ops if isinstance(op, Call)}
    dropping: list[AnyLaunch] = []
    for item in reversed(items):
        if isinstance(item, Launch) and id(item.program) not in called:
            outs = tuple(value for value in item.outs if value.name in alive)
            item = replace(item, outs=outs, program=replace(item.program, outputs=tuple(value.name for value in outs)))
            if not outs and not any(map(is_effectful, item.program.ops)):
                continue
        ended = [name for name in _named(item) if name not in alive]
        dropping.append(replace(item, drops=tuple(ended)))
        alive.update(item.ins)
    return dropping[::-1]


def _named(item: AnyLaunch) -> Iterator[str]:
    names: Iterable[str] = (*item.ins, *(value.name for value in item.outs))
    yield from dict.fromkeys(names)
