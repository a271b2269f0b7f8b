"""A program spread over devices: units in the order of the pipeline, what they send, and what is done once."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.cost.model import CostModel
from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.pipelines.layout import Layout
from redistrib.pipelines.orders import Slot, Unit, forward_only, slots
from redistrib.pipelines.roles import Batch
from redistrib.pipelines.staging import Staging, cutter_of
from redistrib.pipelines.units import Key, UnitProgram, Writer, builder_of
from redistrib.programs.program import Call, Program, Value


def spread_over(batch: Batch, layout: Layout, model: CostModel | str, staging: Staging | None = None) -> Program:
    """A program over the devices of a layout; it is not checked.

    Args:
        batch: the program, seen from its batch.
        layout: how it is spread.
        model: what plans minimise.
        staging: of a layout that differs at most in its microbatches and their order. Where its cuts are of a single
            microbatch, the examples of `batch` are those of each microbatch, and not of all together.
    """
    found = staging or Staging(cutter_of(batch, layout, layout.microbatches), layout, model)
    return _Spreading(found, layout).program()


class _Spreading:
    def __init__(self, staging: Staging, layout: Layout) -> None:
        self.staging, self.batch, self.cutter, self.layout = staging, staging.batch, staging.cutter, layout
        self.builder = builder_of("step", staging.model)
        self.writers = [Writer(self.cutter, place, self.builder, group) for group, place in enumerate(staging.places)]
        self.home: dict[str, int] = {}
        self.sums: dict[str, Value] = {}
        self.constants: dict[int, list[str]] = {}  # by the units, which the staging keeps

    # ------------------------------------------------------------------------------------------ names and places

    def key(self, name: str, microbatch: int) -> Key:
        """Under which a value, or its part of a microbatch, is held."""
        return (name, microbatch) if self.batch.roles[name].kind == "batched" else name

    def named(self, name: str, microbatch: int) -> str:
        """What a value, or its part of a microbatch, is called."""
        split = self.batch.roles[name].kind == "batched" and self.layout.microbatches > 1
        return f"{name}.{microbatch}" if split else name

    # ------------------------------------------------------------------------------------------ the program

    def program(self) -> Program:
        self._start()
        rows = self.layout.order(self.layout.pipeline, self.layout.microbatches, self.layout.chunks)
        if not any(backward for _, backward in self.staging.stages.of.values()):
            rows = forward_only(rows)
        self._check(rows)
        for _, sends, one in _events(slots(rows, self._needs, self._seconds)):
            (self._send if sends else self._unit)(one)
        for number, step in enumerate(self.batch.steps):
            if step.kind == "final":
                self._once(number)
        outputs = [self._output(name, m) for name in self.batch.outputs for m in self._microbatches(name)]
        self.builder.donate(*self._donated({value.name for value in outputs}))
        return self.builder.unchecked(*outputs)

    def _microbatches(self, name: str) -> range:
        return range(self.layout.microbatches if self.batch.roles[name].kind == "batched" else 1)

    def _start(self) -> None:
        for value in self.batch.inputs:
            name = value.name
            stage = self.staging.stages.homes.get(name)
            group = self.staging.late.get(name, 0) if stage is None else self.staging.group(stage)
            if name not in self.cutter.types:  # nothing reads it
                self.cutter.types[name] = DistType.of(f"[{', '.join(map(str, value.type.global_shape))}]")
            self.home[name] = group
            for m in self._microbatches(name):
                self.writers[group].begin(self.named(name, m), self.cutter.types[name], name, self.key(name, m))

    def _check(self, rows: Sequence[Sequence[Unit]]) -> None:
        for group, row in enumerate(rows):
            for one in row:
                stages = self.layout.pipeline * self.layout.chunks
                if not 0 <= one.stage < stages or self.staging.group(one.stage) != group:
                    raise ProgramError("", "", "Order", f"stage {one.stage} is not on group {group} of devices")
        count = self.layout.pipeline * self.layout.chunks * self.layout.microbatches
        passes = 1 + any(one.backward for row in rows for one in row)
        if len({one for row in rows for one in row}) != count * passes or sum(map(len, rows)) != count * passes:
            raise ProgramError(
                "", "", "Order", f"the order has {sum(map(len, rows))} units, and every stage runs each of "
                f"{self.layout.microbatches} microbatches once, {count * passes} units in all",
            )  # fmt: skip

    def _needs(self, one: Unit) -> list[Unit]:
        return [
            Unit(stage, one.microbatch, backward) for stage, backward in self.staging.needs[one.stage, one.backward]
        ]

    def _seconds(self, one: Unit) -> float:
        return self.staging.seconds.get((one.stage, one.backward), 1.0)

    # ------------------------------------------------------------------------------------------ units

    def _unit(self, one: Unit) -> None:
        group = self.staging.group(one.stage)
        writer = self.writers[group]
        totals = tuple(name for name in self.staging.leaves[one.stage, one.backward] if name in self.sums)
        called = self.staging.unit(one.stage, one.backward, totals, one.microbatch)
        if not called.program.ops:
            return
        ins = self._constants(group, called)
        for k, name in called.batched:
            ins[k] = self._at(group, name, one.microbatch).name
        ins += [self.sums[name].name for name in called.totals]
        call = self._call(writer, called, tuple(ins), one.microbatch)
        self.builder.ops.append(call)
        for name, out in zip(called.outs, call.outs, strict=True):
            if self.batch.roles[name].kind == "summed":
                self.sums[name] = out
            else:
                writer.hold(self.key(name, one.microbatch), out)
            self.home[name] = group

    def _call(self, writer: Writer, called: UnitProgram, ins: tuple[str, ...], microbatch: int) -> Call:
        """The call of a unit; layouts that differ in the number of microbatches alone share it."""
        known = self.staging.calls.get((id(called), microbatch))
        if known is not None and known.ins == ins and self.builder.reserve([out.name for out in known.outs]):
            return known
        outs = tuple(
            writer.value(self.named(name, microbatch), inner.type, name)
            for name, inner in zip(called.outs, called.made, strict=True)
        )
        call = self.staging.calls[id(called), microbatch] = Call(called.program, ins, outs)
        return call

    def _constants(self, group: int, called: UnitProgram) -> list[str]:
        """What a unit reads, all but the parts of its microbatch, which are left out: the same for every microbatch."""
        if id(called) not in self.constants:
            batched = {k for k, _ in called.batched}
            names = ["" if k in batched else self._at(group, name, 0).name for k, name in enumerate(called.ins)]
            self.constants[id(called)] = names
        return [*self.constants[id(called)]]

    def _send(self, one: Unit) -> None:
        """What a unit has made goes to all who read it."""
        for name, group in self.staging.sent[one.stage, one.backward]:
            self._at(group, name, one.microbatch)

    def _at(self, group: int, name: str, microbatch: int) -> Value:
        """A value, or its part with a microbatch, on a group of devices, as it was made; sent if it is not there."""
        key, here = self.key(name, microbatch), self.writers[group]
        if not here.has(key):
            source = self.writers[self.home[name]].held(key)
            named = self.builder.new_name(f"{source.name}@{group}")
            here.hold(key, self.builder.move(source, place=here.place, name=named))
        return here.held(key)

    # ------------------------------------------------------------------------------------------ once

    def _once(self, number: int) -> None:
        """An operation on complete sums."""
        step, names = self.batch.steps[number], self.batch.sources[number]
        for name in names:
            self._complete(name)
        group = self.staging.late[step.op.outs[0][1].name]
        for name in names:
            self._at(group, name, 0)
        self.writers[group].compute(number)
        for _, value in step.op.outs:
            self.home[value.name] = group

    def _complete(self, name: str) -> None:
        """A sum over all microbatches, reduced over the replicas."""
        writer = self.writers[self.home[name]]
        if self.batch.roles[name].kind == "summed" and not writer.has(name):
            writer.hold(name, self.sums[name])
            writer.hold(name, writer.needed(name, self.cutter.completed(name)))

    def _output(self, name: str, microbatch: int) -> Value:
        if name not in self.home:  # a constant
            number = self.batch.makers[name]
            group = next((self.home[source] for source in self.batch.sources[number]), 0)
            for source in self.batch.sources[number]:
                self._at(group, source, 0)
            self.writers[group].compute(number)
            self.home[name] = group
        self._complete(name)
        writer, key = self.writers[self.home[name]], self.key(name, microbatch)
        value = writer.held(key)
        if name in self.staging.takes_place_of:
            return writer.needed(key, self.cutter.types[self.staging.takes_place_of[name]])
        if self.layout.zero in (1, 2) and name in self.staging.renewed:
            return writer.needed(key, self.cutter.whole(value.type))
        return value

    def _donated(self, outputs: set[str]) -> list[Value]:
        """Inputs that the update reads: new ones take their place."""
        steps = zip(self.batch.steps, self.batch.sources, strict=True)
        read = {name for step, names in steps if step.kind == "final" for name in names}
        return [value for value in self.builder.inputs if value.name in read - outputs]


def _events(found: Sequence[Slot]) -> list[tuple[float, bool, Unit]]:
    """Units when they start and, before what starts then, what they send when they end."""
    ends = [(slot.end, True, slot.unit) for slot in found]
    starts = [(slot.start, False, slot.unit) for slot in found]
    return sorted(ends + starts, key=lambda event: (event[0], not event[1]))
