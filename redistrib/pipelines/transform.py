"""A program spread over devices: units in the order of the pipeline, what they send, and what is done once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

from redistrib.cost.model import CostModel
from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.pipelines.cuts import Cutter
from redistrib.pipelines.layout import Layout
from redistrib.pipelines.orders import Slot, Unit, forward_only, slots
from redistrib.pipelines.roles import Batch
from redistrib.pipelines.stages import Stages, stages_of
from redistrib.pipelines.units import UnitProgram, Writer, outside_of, unit
from redistrib.programs.program import Call, Free, Move, Op, Place, Program, Value, used_by


def spread_over(batch: Batch, layout: Layout, model: CostModel | str) -> Program:
    """A program over the devices of a layout; it is not checked."""
    return _Spreading(batch, layout, model).program()


class _Spreading:
    def __init__(self, batch: Batch, layout: Layout, model: CostModel | str) -> None:
        self.batch, self.layout, self.model = batch, layout, model
        if layout.chunks > 1 and layout.pipeline == 1:
            raise ProgramError("", "", "Layout", "one group of devices has no use for several chunks; give chunks=1")
        self.stages: Stages = stages_of(batch, layout.pipeline * layout.chunks, layout.starts)
        self.cutter = Cutter(
            batch,
            layout.data,
            layout.tensor,
            layout.microbatches,
            layout.tensor_dims,
            shard=layout.zero >= 1,
            sums_sharded=layout.zero >= 2,
            inputs_sharded=layout.zero >= 3,
        )
        width = layout.data * layout.tensor
        self.places = [
            Place(self.cutter.mesh, tuple(range(p * width, (p + 1) * width))) for p in range(layout.pipeline)
        ]
        self.numbers: dict[tuple[int, bool], list[int]] = defaultdict(list)
        for number, key in self.stages.of.items():
            self.numbers[key].append(number)
        self.units: dict[tuple[object, ...], UnitProgram] = {}
        self.inputs: list[Value] = []
        # One writer for each group of devices: what it holds, by the name `value` or `value.microbatch`.
        self.ops: list[Writer] = [Writer(self.cutter, place, model) for place in self.places]
        shared: dict[str, int] = {}
        for writer in self.ops:
            writer.ops, writer.names = self.ops[0].ops, shared
        self.home: dict[str, int] = {}
        self.sums: dict[str, Value] = {}
        self._readers()

    # ------------------------------------------------------------------------------------------ names and places

    def group(self, stage: int) -> int:
        """The group of devices that a stage is on."""
        return stage % self.layout.pipeline

    def key(self, name: str, microbatch: int) -> str:
        """Under which a value, or its part of a microbatch, is held; no name of the program is like it."""
        return f"{name}\n{microbatch}" if self.batch.roles[name].kind == "batched" else name

    def named(self, name: str, microbatch: int) -> str:
        """What a value, or its part of a microbatch, is called."""
        split = self.batch.roles[name].kind == "batched" and self.layout.microbatches > 1
        return f"{name}.{microbatch}" if split else name

    def _readers(self) -> None:
        """Which groups read each value, which values leave the unit that makes them, and what units wait for."""
        self.needs: dict[tuple[int, bool], dict[tuple[int, bool], None]] = defaultdict(dict)
        self.read_by: dict[str, dict[int, None]] = defaultdict(dict)
        self.leaves: dict[tuple[int, bool], dict[str, None]] = defaultdict(dict)
        makers, steps = self.batch.makers, self.batch.steps
        self.flops = {key: 1.0 + sum(steps[k].flops for k in numbers) for key, numbers in self.numbers.items()}
        asks: set[int] = set()  # operations that differ from microbatch to microbatch, and what reads such constants
        for k, step in enumerate(steps):
            constants = {makers[name] for name in step.reads.values() if self._is_made_where_read(name)}
            if step.batch in step.nest.indexed or constants & asks:
                asks.add(k)
        self.indexed = {key for key, numbers in self.numbers.items() if asks.intersection(numbers)}
        for key, numbers in self.numbers.items():
            for name in outside_of(self.cutter, numbers):
                self.read_by[name][self.group(key[0])] = None
                if name in makers:
                    self.leaves[self.stages.of[makers[name]]][name] = None
                    self.needs[key][self.stages.of[makers[name]]] = None
        for step, names in zip(steps, self.batch.sources, strict=True):
            for name in names if step.kind == "final" else ():
                if self.batch.roles[name].kind == "summed":
                    self.leaves[self.stages.of[makers[name]]][name] = None
        for name in self.batch.outputs:
            if name in makers and makers[name] in self.stages.of:
                self.leaves[self.stages.of[makers[name]]][name] = None

    # ------------------------------------------------------------------------------------------ the program

    def program(self) -> Program:
        self._start()
        rows = self.layout.order(self.layout.pipeline, self.layout.microbatches, self.layout.chunks)
        if not any(backward for _, backward in self.stages.of.values()):
            rows = forward_only(rows)
        self._check(rows)
        for _, sends, one in _events(slots(rows, self._needs, self._seconds)):
            (self._send if sends else self._unit)(one)
        for number, step in enumerate(self.batch.steps):
            if step.kind == "final":
                self._once(number)
        outputs = tuple(self._output(name, m) for name in self.batch.outputs for m in self._microbatches(name))
        ops = tuple(_donating(self.ops[0].ops, self._donated(), outputs))
        return Program(tuple(self.inputs), ops, outputs, "step")

    def _microbatches(self, name: str) -> range:
        return range(self.layout.microbatches if self.batch.roles[name].kind == "batched" else 1)

    def _start(self) -> None:
        for value in self.batch.inputs:
            name = value.name
            stage = self.stages.homes.get(name)
            group = self.late.get(name, 0) if stage is None else self.group(stage)
            if name not in self.cutter.types:  # nothing reads it
                self.cutter.types[name] = DistType.of(f"[{', '.join(map(str, value.type.global_shape))}]")
            self.home[name] = group
            for m in self._microbatches(name):
                value = self.ops[group].value(self.named(name, m), self.cutter.types[name], name)
                self.inputs.append(self.ops[group].give(self.key(name, m), value))

    @cached_property
    def late(self) -> dict[str, int]:
        """The group of what the update makes, and of inputs that only it reads.

        An operation runs where the largest of what it reads is; of several, where an input of the layers is.
        """
        late: dict[str, int] = {}
        final = [
            (names, [value.name for _, value in step.op.outs])
            for step, names in zip(self.batch.steps, self.batch.sources, strict=True)
            if step.kind == "final"
        ]
        known = -1
        while known < len(late):
            known = len(late)
            for names, outs in final:
                places = {name: self._where(name, late) for name in (*names, *outs)}
                group = self._nearest({name: place for name, place in places.items() if place is not None})
                if group is not None:
                    late |= {name: group for name, place in places.items() if place is None}
        return late

    def _nearest(self, places: dict[str, int]) -> int | None:
        sizes = {name: math.prod(self._shape(name)) for name in places}
        largest = [name for name in places if sizes[name] == max(sizes.values())]
        return min(
            (places[name] for name in [name for name in largest if name in self.stages.homes] or largest), default=None
        )

    def _where(self, name: str, late: dict[str, int]) -> int | None:
        if name in self.stages.homes:
            return self.group(self.stages.homes[name])
        number = self.batch.makers.get(name)
        return self.group(self.stages.of[number][0]) if number in self.stages.of else late.get(name)

    def _is_made_where_read(self, name: str) -> bool:
        maker = self.batch.makers.get(name)
        return maker is not None and self.batch.steps[maker].kind == "constant"

    def _check(self, rows: Sequence[Sequence[Unit]]) -> None:
        for group, row in enumerate(rows):
            for one in row:
                if not 0 <= one.stage < self.layout.pipeline * self.layout.chunks or self.group(one.stage) != group:
                    raise ProgramError("", "", "Order", f"stage {one.stage} is not on group {group} of devices")
        count = self.layout.pipeline * self.layout.chunks * self.layout.microbatches
        passes = 1 + any(one.backward for row in rows for one in row)
        if len({one for row in rows for one in row}) != count * passes or sum(map(len, rows)) != count * passes:
            raise ProgramError(
                "", "", "Order", f"the order has {sum(map(len, rows))} units, and every stage runs each of "
                f"{self.layout.microbatches} microbatches once, {count * passes} units in all",
            )  # fmt: skip

    def _needs(self, one: Unit) -> list[Unit]:
        return [Unit(stage, one.microbatch, backward) for stage, backward in self.needs[one.stage, one.backward]]

    def _seconds(self, one: Unit) -> float:
        return self.flops.get((one.stage, one.backward), 1.0)

    # ------------------------------------------------------------------------------------------ units

    def _unit(self, one: Unit) -> None:
        numbers = self.numbers[one.stage, one.backward]
        group = self.group(one.stage)
        writer = self.ops[group]
        made = self.leaves[one.stage, one.backward]
        totals = [name for name in made if name in self.sums]
        indexed = (one.stage, one.backward) in self.indexed
        key = (one.stage, one.backward, bool(totals), one.microbatch if indexed else 0)
        if key not in self.units:
            fresh = Writer(self.cutter, self.places[group], self.model)
            label = f"{'backward' if one.backward else 'forward'}{one.stage}"
            self.units[key] = unit(fresh, numbers, made, totals, name=label, microbatch=one.microbatch)
        called = self.units[key]
        if not called.program.ops:
            return
        ins = [self._at(group, name, one.microbatch).name for name in called.ins]
        ins += [self.sums[name].name for name in called.totals]
        outs = []
        for name, output in zip(called.outs, called.program.outputs, strict=True):
            inner = called.program.values[output]
            out = writer.value(self.named(name, one.microbatch), inner.type, name)
            outs.append(out)
        writer.ops.append(Call(called.program, tuple(ins), tuple(outs)))
        for name, out in zip(called.outs, outs, strict=True):
            if self.batch.roles[name].kind == "summed":
                self.sums[name] = out
                self.home[name] = group
                continue
            writer.give(self.key(name, one.microbatch), out)
            self.home[name] = group

    def _send(self, one: Unit) -> None:
        """What a unit has made goes to all who read it."""
        for name in self.leaves[one.stage, one.backward]:
            for group in self.read_by[name]:
                self._at(group, name, one.microbatch)

    def _at(self, group: int, name: str, microbatch: int) -> Value:
        """A value, or its part with a microbatch, on a group of devices, as it was made; sent if it is not there."""
        key, home, here = self.key(name, microbatch), self.home[name], self.ops[group]
        if key not in here.held:
            source = self.ops[home].held[key][0]
            out = here.value(f"{source.name}@{group}", source.type, name)
            here.ops.append(Move(source.name, out, None))
            here.give(key, out)
        return here.held[key][0]

    # ------------------------------------------------------------------------------------------ once

    def _once(self, number: int) -> None:
        """An operation on complete sums."""
        step, names = self.batch.steps[number], self.batch.sources[number]
        for name in names:
            self._complete(name)
        group = self.late[step.op.outs[0][1].name]
        for name in names:
            self._at(group, name, 0)
        self.ops[group].compute(number)
        for _, value in step.op.outs:
            self.home[value.name] = group

    def _complete(self, name: str) -> None:
        """A sum over all microbatches, reduced over the replicas."""
        if self.batch.roles[name].kind == "summed" and name not in self.ops[self.home[name]].held:
            writer, total = self.ops[self.home[name]], self.sums[name]
            writer.give(name, total)
            writer.held[name] = [writer.as_needed(name, self.cutter.completed(name))]

    def _output(self, name: str, microbatch: int) -> str:
        if name not in self.home:  # a constant
            number = self.batch.makers[name]
            group = next((self.home[source] for source in self.batch.sources[number]), 0)
            for source in self.batch.sources[number]:
                self._at(group, source, 0)
            self.ops[group].compute(number)
            self.home[name] = group
        self._complete(name)
        writer, key = self.ops[self.home[name]], self.key(name, microbatch)
        value = writer.held[key][0]
        if name in self.takes_place_of:
            return writer.as_needed(key, self.cutter.types[self.takes_place_of[name]]).name
        if self.layout.zero in (1, 2) and name in self.renewed:
            return writer.as_needed(key, self.cutter.whole(value.type)).name
        return value.name

    @cached_property
    def takes_place_of(self) -> dict[str, str]:
        """For what the update makes of one input of its shape alone that input: it ends as that begins."""
        found = {}
        for step, names in zip(self.batch.steps, self.batch.sources, strict=True):
            for _, value in step.op.outs if step.kind == "final" else ():
                of = [name for name in names if self.batch.roles[name].kind == "constant"]
                of = [name for name in of if self._shape(name) == self._shape(value.name)]
                if len(of) == 1:
                    found[value.name] = of[0]
        return found

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.batch.values[name].type.global_shape

    @cached_property
    def renewed(self) -> set[str]:
        """New values of what operations on examples read, which every replica must have."""
        found = set()
        for step, names in zip(self.batch.steps, self.batch.sources, strict=True):
            if step.kind == "final" and any(name in self.read_by for name in names):
                found |= {value.name for _, value in step.op.outs}
        return found

    def _donated(self) -> set[str]:
        """Inputs that the update reads: new ones take their place."""
        steps = zip(self.batch.steps, self.batch.sources, strict=True)
        read = {name for step, names in steps if step.kind == "final" for name in names}
        return {value.name for value in self.inputs if value.name in read}


def _events(found: Sequence[Slot]) -> list[tuple[float, bool, Unit]]:
    """Units when they start and, before what starts then, what they send when they end."""
    ends = [(slot.end, True, slot.unit) for slot in found]
    starts = [(slot.start, False, slot.unit) for slot in found]
    return sorted(ends + starts, key=lambda event: (event[0], not event[1]))


def _donating(ops: Sequence[Op], names: set[str], outputs: Sequence[str]) -> Iterator[Op]:
    """The operations, each followed by a `Free` of the inputs among `names` that it is the last to read."""
    last = {name: k for k, op in enumerate(ops) for name in used_by(op) if name in names and name not in outputs}
    for k, op in enumerate(ops):
        yield op
        yield from (Free(name) for name in dict.fromkeys(used_by(op)) if last.get(name) == k)
