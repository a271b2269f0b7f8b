"""Units: the operations of one stage on one microbatch, forward or backward, as a program that is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from redistrib.cost.model import CostModel
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.pipelines.cuts import Cutter
from redistrib.plans.plan import Plan
from redistrib.programs.builder import Builder
from redistrib.programs.nest import Access, Nest
from redistrib.programs.program import Place, Program, Value
from redistrib.programs.pullback import Part
from redistrib.synthesis.synthesize import synthesize

Key: TypeAlias = str | tuple[str, int]  # a value of the program, or its part with a microbatch
BEFORE = -1  # in the place of a microbatch: the sum over those before


@lru_cache(maxsize=4096)
def planned(source: DistType, target: DistType, mesh: Mesh, dtype: str, model: CostModel | str) -> Plan:
    """The plan between two types on one mesh."""
    return synthesize(source, mesh, target, mesh, dtype=dtype, model=model)


def builder_of(name: str, model: CostModel | str) -> Builder:
    """An empty program whose moves stay on their place and have plans."""
    return Builder(name, lambda value, out: planned(value.type, out.type, value.place.mesh, value.dtype, model))


@dataclass
class Writer:
    """Operations on one place, added to a program.

    Attributes:
        cutter: how operations are cut.
        place: the devices.
        builder: takes the operations; it holds the versions of a value on this place under the group and the value's
            key, the version that was computed first.
        group: number of the place.
    """

    cutter: Cutter
    place: Place
    builder: Builder
    group: int = 0

    def has(self, key: Key) -> bool:
        """Whether a value is here."""
        return (self.group, key) in self.builder.versions

    def held(self, key: Key) -> Value:
        """A value that is here, in the layout that it was computed in."""
        return self.builder.versions[self.group, key][0]

    def hold(self, key: Key, value: Value) -> Value:
        """A value that is here from now on, in no other layout."""
        return self.builder.hold((self.group, key), value)

    def value(self, name: str, form: DistType, like: str) -> Value:
        """A new value, of the element type of one of the program."""
        return Value(self.builder.new_name(name), form, self.place, self.cutter.batch.values[like].dtype)

    def begin(self, name: str, form: DistType, like: str, key: Key) -> Value:
        """A new input."""
        return self.builder.begin((self.group, key), self.value(name, form, like))

    def needed(self, key: Key, form: DistType) -> Value:
        """A value of the program with a type, moved to it if it is not there."""
        return self.builder.needed((self.group, key), replace(self.held(key), type=form))

    def compute(self, number: int, microbatch: int = 0) -> None:
        """An operation of the program, and what makes the constants that it reads; summands are reduced."""
        cutter = self.cutter
        step, cut, part = cutter.batch.steps[number], cutter.cuts[number], cutter.cut_of(number, microbatch)
        for name in step.reads.values():
            if not self.has(name):
                self.compute(cutter.batch.makers[name], microbatch)
        reads = [
            (array, (self.group, name), replace(self.held(name), type=cut.ins[array])) for array, name in step.op.ins
        ]
        writes = [(array, self.value(value.name, cut.outs[array], value.name)) for array, value in step.op.outs]
        self.builder.add(step.op.name, (part,), self.place, reads, writes, step.op.kind)
        for (_, original), (_, made) in zip(step.op.outs, writes, strict=True):
            self.hold(original.name, made)
            form = cutter.types[original.name]
            if form != made.type:
                self.hold(original.name, self.needed(original.name, form))

    def add(self, name: str, total: Value) -> None:
        """A sum so far and what was made here, added."""
        made = self.held(name)
        out = self.value(f"{name}.total", made.type, name)
        reads = [("a", (self.group, (name, BEFORE)), total), ("b", (self.group, name), made)]
        self.builder.add("add", (adding(made.type),), self.place, reads, [("out", out)])
        self.hold(name, out)


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
    writer: Writer, numbers: Sequence[int], outs: Iterable[str], totals: Iterable[str], *, microbatch: int
) -> UnitProgram:
    """The program of a unit.

    Args:
        writer: an empty one, on the unit's place.
        numbers: the operations, in order.
        outs: what others read of what it makes.
        totals: sums over examples among these, to be added to what was summed before; empty for the first.
        microbatch: number of the microbatch, for operations that must know.
    """
    cutter = writer.cutter
    inputs = outside_of(cutter, numbers)
    for outside in inputs:
        writer.begin(outside, cutter.types[outside], outside, outside)
    before = {name: writer.begin(f"{name}.before", _total(cutter, name), name, (name, BEFORE)) for name in totals}
    last = {value.name: k for k in numbers for _, value in cutter.batch.steps[k].op.outs}
    for number in numbers:
        writer.compute(number, microbatch)
        for _, value in cutter.batch.steps[number].op.outs:
            if cutter.batch.roles[value.name].kind == "summed" and last[value.name] == number:
                writer.hold(value.name, writer.needed(value.name, _total(cutter, value.name)))
                if value.name in before:
                    writer.add(value.name, before[value.name])
    ends = tuple(outs)
    program = writer.builder.unchecked(*map(writer.held, ends))
    batched = ((k, name) for k, name in enumerate(inputs) if cutter.batch.roles[name].kind == "batched")
    made = tuple(program.values[output] for output in program.outputs)
    return UnitProgram(program, tuple(inputs), tuple(before), ends, tuple(batched), made)


def _total(cutter: Cutter, name: str) -> DistType:
    """The type of a sum over the microbatches so far."""
    return cutter.completed(name) if cutter.sums_sharded else cutter.types[name]


def outside_of(cutter: Cutter, numbers: Iterable[int]) -> list[str]:
    """What operations read that none of them makes; constants are made where they are read."""
    batch, numbers = cutter.batch, tuple(numbers)
    made = {value.name for number in numbers for _, value in batch.steps[number].op.outs}
    return list(dict.fromkeys(name for number in numbers for name in batch.sources[number] if name not in made))
