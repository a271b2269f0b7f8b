"""Pipeline tasks as programs to call: the operations of one stage on one microbatch, forward or backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from redistrib.cache import cached
from redistrib.cost.model import CostModel
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.cuts import cut_of
from redistrib.programs.ir.graph import Array
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Loop, Place, Program, Value
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.lower.emit import cut_that_gives
from redistrib.programs.lower.layouts import BuiltVersions
from redistrib.programs.stages.cuts import CutOperation, Cutter
from redistrib.programs.stages.loops import filled
from redistrib.synthesis.synthesize import synthesize

Key: TypeAlias = str | tuple[str, int]  # a value of the program, or the part of it that belongs to a microbatch
BEFORE = -1  # in the place of a microbatch: the sum over those before


@cached(4096)
def planned(source: DistType, target: DistType, mesh: Mesh, dtype: str, model: CostModel | str) -> Plan:
    """The plan between two types on one mesh."""
    return synthesize(source, mesh, target, mesh, dtype=dtype, model=model)


def builder_of(name: str, model: CostModel | str) -> Builder:
    """An empty program whose moves stay on their place and have plans."""
    return Builder(name, lambda value, out: planned(value.type, out.type, value.place.mesh, value.dtype, model))


@dataclass
class Writer:
    """Adds the operations of one group of devices to a program.

    Attributes:
        cutter: how operations are cut.
        place: the devices of the group.
        builder: the program.
        layouts: the layout versions of values that the group has.
    """

    cutter: Cutter
    place: Place
    builder: Builder
    layouts: BuiltVersions = field(init=False)

    def __post_init__(self) -> None:
        self.layouts = BuiltVersions(self.builder)

    def has(self, key: Key) -> bool:
        """Whether the group has a value."""
        return key in self.layouts.versions

    def computed(self, key: Key) -> Value:
        """A value of the group in the layout in which it was computed."""
        return self.layouts.versions[key][0]

    def hold(self, key: Key, value: Value) -> Value:
        """Let the group have a value, in this layout only."""
        return self.layouts.hold(key, value)

    def value(self, name: str, form: DistType, like: str) -> Value:
        """A new value with the element type of the program's value `like`."""
        return Value(self.builder.new_name(name), form, self.place, self.cutter.batch.values[like].dtype)

    def begin(self, name: str, form: DistType, like: str, key: Key) -> Value:
        """A new input, see `value`."""
        return self.layouts.begin(key, self.value(name, form, like))

    def needed(self, key: Key, form: DistType) -> Value:
        """A value of the group in a layout, after a move if there is no version in this layout yet."""
        return self.layouts.needed(key, self._layout(key, form))

    def _layout(self, key: Key, form: DistType) -> Value:
        value = self.computed(key)
        return value if value.type == form else replace(value, type=form)

    def compute(self, number: int, microbatch: int = 0) -> None:
        """Add an operation, after the constants that it reads; partial sums in its results are reduced."""
        cutter = self.cutter
        step, cut, part = cutter.batch.steps[number], cutter.cuts[number], cutter.cut_of(number, microbatch)
        for name in step.reads.values():
            if not self.has(name):
                self.compute(cutter.batch.makers[name], microbatch)
        if cut.loop is not None:
            self._loop(number, microbatch)
            return
        reads = [(array, name, replace(self.computed(name), type=cut.ins[array])) for array, name in step.op.ins]
        writes = [(array, self.value(value.name, cut.outs[array], value.name)) for array, value in step.op.outs]
        self.layouts.add(step.op.name, (part,), self.place, reads, writes, step.op.kind)
        for (_, original), (_, computed) in zip(step.op.outs, writes, strict=True):
            self._computed(original.name, computed)

    def _computed(self, name: str, value: Value) -> None:
        """Hold a result, its partial sums reduced."""
        self.hold(name, value)
        form = self.cutter.types[name]
        if form != value.type:
            self.hold(name, self.needed(name, form))

    def _loop(self, number: int, microbatch: int) -> None:
        """Add a loop; what differs between the parts of a step is moved inside it."""
        op, cut = self.cutter.batch.steps[number].op, self.cutter.cuts[number]
        assert cut.loop is not None
        loop, names = cut.loop, dict(op.ins)
        ins = []
        for array, form in cut.ins.items():
            whole = Array(array, form.global_shape, loop.batch.values[array].dtype)
            if loop.batch.roles[array].kind == "summed":
                ins.append(self._zeros(whole, form))
            elif array in names:
                ins.append(self.needed(names[array], form).name)
            else:
                ins.append(self._filled(whole, form, loop.numbers[array]))
        outs = {array: self.value(value.name, cut.outs[array], value.name) for array, value in op.outs}
        self.builder.ops.append(
            Loop(
                self.builder.new_name(op.name),
                self._step(cut, f"{op.name}.step", microbatch),
                tuple(ins),
                tuple(outs[access.array] for access in cut.part.nest.writes),
                **loop.form._asdict(),
                source=op.source,
            )
        )
        for array, value in op.outs:
            self._computed(value.name, outs[array])

    def _step(self, cut: CutOperation, name: str, microbatch: int) -> Program:
        """A step of a loop."""
        assert cut.step is not None and cut.loop is not None
        loop, batch, types = cut.loop, cut.loop.batch, cut.step.types
        writer = Writer(cut.step, self.place, self.builder.empty(name))
        for value in batch.inputs:
            writer.begin(value.name, types[value.name], value.name, value.name)
        for number, inner in enumerate(batch.steps):
            if inner.kind != "constant":
                writer.compute(number, microbatch)
        _, carried, _ = loop.form.operands(batch.inputs)
        ends = []
        for k, output in enumerate(batch.outputs):
            if not writer.has(output):
                writer.compute(batch.makers[output], microbatch)
            ends.append(writer.needed(output, types[carried[k].name if k < len(carried) else output]))
        return writer.builder.unchecked(*ends)

    def _zeros(self, array: Array, form: DistType) -> str:
        """The name of a new value that is a sum of zeros, the parts of which lie along the partial axes of a type."""
        parts = {f"p{k}": self.place.mesh.axis(axis).size for k, axis in enumerate(form.partial)}
        axes: dict[str, Sequence[str]] = {f"p{k}": (axis,) for k, axis in enumerate(form.partial)}
        axes |= {f"d{k}": dim.axes for k, dim in enumerate(form.dims)}
        nest = filled(array, 0, parts)
        return self._made(array, nest, cut_of(nest, axes, self.place.mesh), form)

    def _filled(self, array: Array, form: DistType, number: Any) -> str:
        """The name of a new value whose elements are all one number."""
        nest = filled(array, number)
        return self._made(array, nest, cut_that_gives(nest, form), form)

    def _made(self, array: Array, nest: Nest, cut: DistType | None, form: DistType) -> str:
        assert cut is not None  # every dimension of it can be cut
        value = Value(self.builder.new_name("constant"), form, self.place, array.dtype)
        self.layouts.add(value.name, (ScheduledNest(nest, cut),), self.place, [], [("out", value)])
        return value.name

    def add(self, name: str, total: Value) -> None:
        """Add the value of a sum in this task to the sum over the microbatches before."""
        addend = self.computed(name)
        out = self.value(f"{name}.total", addend.type, name)
        reads = [("a", (name, BEFORE), total), ("b", name, addend)]
        self.layouts.add("add", (adding(addend.type),), self.place, reads, [("out", out)])
        self.hold(name, out)


@cached(1024)
def adding(form: DistType) -> ScheduledNest:
    """The sum of two values of a type, partial sums as well."""
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
    return ScheduledNest(nest, DistType(form.dims), (form.partial,) if form.partial else ())


@dataclass(frozen=True)
class TaskProgram:
    """The program of a pipeline task.

    Attributes:
        program: to call.
        ins: for each input the value of the whole program, the sums of `totals` left out.
        totals: the sums over the microbatches before to which it adds; they are its last inputs.
        outs: for each output the value of the whole program.
        batched: the values of `ins` with examples, each with its number there.
        inner_outs: for each output the value inside the program.
    """

    program: Program
    ins: tuple[str, ...]
    totals: tuple[str, ...]
    outs: tuple[str, ...]
    batched: tuple[tuple[int, str], ...]
    inner_outs: tuple[Value, ...]


def task_program(
    writer: Writer, numbers: Sequence[int], outs: Iterable[str], totals: Iterable[str], *, microbatch: int
) -> TaskProgram:
    """The program of a task.

    Args:
        writer: of an empty program, on the group of the task.
        numbers: the operations, in order.
        outs: the results that other tasks read.
        totals: the sums among them that are added to the sums over the microbatches before; empty for the first.
        microbatch: number of the microbatch, for operations whose points depend on it.
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
    program = writer.builder.unchecked(*map(writer.computed, ends))
    batched = ((k, name) for k, name in enumerate(inputs) if cutter.batch.roles[name].kind == "batched")
    results = tuple(program.values[output] for output in program.outputs)
    return TaskProgram(program, tuple(inputs), tuple(before), ends, tuple(batched), results)


def _total(cutter: Cutter, name: str) -> DistType:
    """The type of a sum over the microbatches before."""
    return cutter.completed(name) if cutter.sums_sharded else cutter.types[name]


def outside_of(cutter: Cutter, numbers: Iterable[int]) -> list[str]:
    """The values that operations read and none of them computes; constants are computed where they are read."""
    batch, numbers = cutter.batch, tuple(numbers)
    results = {value.name for number in numbers for _, value in batch.steps[number].op.outs}
    return list(dict.fromkeys(name for number in numbers for name in batch.sources[number] if name not in results))
