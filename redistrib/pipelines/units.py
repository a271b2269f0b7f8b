"""Units: the operations of one stage on one microbatch, forward or backward, as a program that is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from redistrib.cost.model import CostModel
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.pipelines.cuts import Cutter
from redistrib.plans.plan import Plan
from redistrib.programs.nest import Access, Nest
from redistrib.programs.program import Compute, Move, Op, Place, Program, Value
from redistrib.programs.pullback import Part
from redistrib.synthesis.synthesize import synthesize

Key: TypeAlias = str | tuple[str, int]  # a value of the program, or its part with a microbatch


@lru_cache(maxsize=4096)
def planned(source: DistType, target: DistType, mesh: Mesh, dtype: str, model: CostModel | str) -> Plan:
    """The plan between two types on one mesh."""
    return synthesize(source, mesh, target, mesh, dtype=dtype, model=model)


@dataclass
class Writer:
    """Operations on one place in the making, with every version of every value.

    Attributes:
        cutter: how operations are cut.
        place: the devices.
        model: what plans minimise.
        held: of every value, or part of it with a microbatch, the versions that are here, the one it was made as first.
        names: that are taken, each with the number that its last namesake has.
    """

    cutter: Cutter
    place: Place
    model: CostModel | str
    ops: list[Op] = field(default_factory=list)
    held: dict[Key, list[Value]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def give(self, key: Key, value: Value) -> Value:
        """A value that is here from now on."""
        self.held[key] = [value]
        self.names.setdefault(value.name, 0)
        return value

    def value(self, name: str, form: DistType, like: str, place: Place | None = None) -> Value:
        """A new value, of the element type of one of the program."""
        unique = name
        while unique in self.names:
            self.names[name] += 1
            unique = f"{name}.{self.names[name]}"
        self.names[unique] = 0
        return Value(unique, form, place or self.place, self.cutter.batch.values[like].dtype)

    def as_needed(self, key: Key, form: DistType) -> Value:
        """A value of the program with a type, moved to it if it is not there."""
        for version in self.held[key]:
            if version.type == form:
                return version
        source = self.held[key][0]
        out = self.value(source.name, form, key if isinstance(key, str) else key[0])
        self.ops.append(Move(source.name, out, planned(source.type, form, self.place.mesh, out.dtype, self.model)))
        self.held[key].append(out)
        return out

    def compute(self, number: int, microbatch: int = 0) -> None:
        """An operation of the program, and what makes the constants that it reads; summands are reduced."""
        cutter = self.cutter
        step, cut, part = cutter.batch.steps[number], cutter.cuts[number], cutter.cut_of(number, microbatch)
        for name in step.reads.values():
            if name not in self.held:
                self.compute(cutter.batch.makers[name], microbatch)
        ins = tuple((array, self.as_needed(name, cut.ins[array]).name) for array, name in step.op.ins)
        outs = tuple((array, self.value(value.name, cut.outs[array], value.name)) for array, value in step.op.outs)
        self.ops.append(Compute(step.op.name, (part,), self.place, ins, outs))
        for (_, original), (_, made) in zip(step.op.outs, outs, strict=True):
            self.give(original.name, made)
            form = cutter.types[original.name]
            if form != made.type:
                self.held[original.name] = [self.as_needed(original.name, form)]

    def add(self, name: str, total: Value) -> None:
        """A sum so far and what was made here, added."""
        made = self.held[name][0]
        out = self.value(f"{name}.total", made.type, name)
        part = adding(made.type)
        self.ops.append(Compute("add", (part,), self.place, (("a", total.name), ("b", made.name)), (("out", out),)))
        self.held[name] = [out]


@lru_cache(maxsize=1024)
def adding(form: DistType) -> Part:
    """The sum of two values of a type, summands included."""
    names = [f"i{k}" for k in range(form.rank)]
    dims = tuple((name,) for name in names)
    nest = Nest(
        "add",
        tuple((name, range(dim.size)) for name, dim in zip(names, form.dims, strict=True)),
        (Access("a", dims), Access("b", dims)),
        (Access("out", dims),),
        linear=((0, 1),),
        body=lambda at, a, b: a + b,
    )
    return Part(nest, DistType(form.dims), (form.partial,) if form.partial else ())


@dataclass(frozen=True)
class UnitProgram:
    """A unit's program.

    Attributes:
        program: to call.
        ins: the value of the whole program for each input; a sum so far is named twice, first with what makes it.
        totals: values that it adds to sums so far, whose inputs come last.
        outs: the value for each output.
        batched: the values of `ins` with examples, each with its number there.
        made: what the program calls each output.
    """

    program: Program
    ins: tuple[str, ...]
    totals: tuple[str, ...]
    outs: tuple[str, ...]
    batched: tuple[tuple[int, str], ...]
    made: tuple[Value, ...]


def unit(
    writer: Writer, numbers: Sequence[int], outs: Iterable[str], totals: Iterable[str], *, name: str, microbatch: int
) -> UnitProgram:
    """The program of a unit.

    Args:
        writer: an empty one, on the unit's place.
        numbers: the operations, in order.
        outs: what others read of what it makes.
        totals: sums over examples among these, to be added to what was summed before; empty for the first.
        name: of the program.
        microbatch: number of the microbatch, for operations that must know.
    """
    cutter = writer.cutter
    inputs: dict[str, Value] = {}
    for outside in outside_of(cutter, numbers):
        inputs[outside] = writer.give(outside, writer.value(outside, cutter.types[outside], outside))
    given = {name: writer.value(f"{name}.before", _total(cutter, name), name) for name in totals}
    last = {value.name: k for k in numbers for _, value in cutter.batch.steps[k].op.outs}
    for number in numbers:
        writer.compute(number, microbatch)
        for _, value in cutter.batch.steps[number].op.outs:
            if cutter.batch.roles[value.name].kind == "summed" and last[value.name] == number:
                writer.held[value.name] = [writer.as_needed(value.name, _total(cutter, value.name))]
                if value.name in given:
                    writer.add(value.name, given[value.name])
    ends = tuple(outs)
    program = Program(
        (*inputs.values(), *given.values()),
        tuple(writer.ops),
        tuple(writer.held[end][0].name for end in ends),
        name,
    )
    batched = ((k, name) for k, name in enumerate(inputs) if cutter.batch.roles[name].kind == "batched")
    made = tuple(program.values[output] for output in program.outputs)
    return UnitProgram(program, tuple(inputs), tuple(given), ends, tuple(batched), made)


def _total(cutter: Cutter, name: str) -> DistType:
    """The type of a sum over the microbatches so far."""
    return cutter.completed(name) if cutter.sums_sharded else cutter.types[name]


def outside_of(cutter: Cutter, numbers: Iterable[int]) -> list[str]:
    """What operations read that none of them makes; constants are made where they are read."""
    batch, numbers = cutter.batch, tuple(numbers)
    made = {value.name for number in numbers for _, value in batch.steps[number].op.outs}
    return list(dict.fromkeys(name for number in numbers for name in batch.sources[number] if name not in made))
