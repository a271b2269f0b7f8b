"""Staging: what of a spread program does not depend on how many microbatches there are, nor on their order.

Which operations make up the units of every stage, on which group of devices each value is, and the program of each
unit. Layouts that differ in nothing else, with microbatches of equal size, share it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from redistrib.cost.model import CostModel
from redistrib.errors import ProgramError
from redistrib.pipelines.cuts import Cutter
from redistrib.pipelines.layout import Layout
from redistrib.pipelines.roles import Batch
from redistrib.pipelines.stages import Stages, stages_of
from redistrib.pipelines.units import UnitProgram, Writer, builder_of, outside_of, unit
from redistrib.programs.program import Call, Place


def cutter_of(batch: Batch, layout: Layout, microbatches: int) -> Cutter:
    """The cuts of a program's operations in a layout, its examples in so many microbatches."""
    return Cutter(
        batch,
        layout.data,
        layout.tensor,
        microbatches,
        layout.tensor_dims,
        shard=layout.zero >= 1,
        sums_sharded=layout.zero >= 2,
        inputs_sharded=layout.zero >= 3,
    )


class Staging:
    """A program dealt out.

    Attributes:
        cutter: how its operations are cut; its microbatches are those that the program's examples make.
        stages: where every operation runs.
        places: the groups of devices.
        numbers: of every unit its operations.
        needs: of every unit those that must be done before it, on the same microbatch.
        read_by: of every value the groups that read it.
        leaves: of every unit the values that leave it.
        sent: of these, those that other groups of devices read, with each of the groups.
        seconds: about how long each unit takes, to put them in order.
        indexed: units that differ from microbatch to microbatch.
        calls: of every unit, by its id and the microbatch, the last that was made.
    """

    def __init__(self, cutter: Cutter, layout: Layout, model: CostModel | str) -> None:
        self.cutter, self.batch, self.model, self.pipeline = cutter, cutter.batch, model, layout.pipeline
        if layout.chunks > 1 and layout.pipeline == 1:
            raise ProgramError("", "", "Layout", "one group of devices has no use for several chunks; give chunks=1")
        self.stages: Stages = stages_of(self.batch, layout.pipeline * layout.chunks, layout.starts)
        width = layout.data * layout.tensor
        self.places = [Place(cutter.mesh, tuple(range(p * width, (p + 1) * width))) for p in range(layout.pipeline)]
        self.numbers: dict[tuple[int, bool], list[int]] = defaultdict(list)
        for number, key in self.stages.of.items():
            self.numbers[key].append(number)
        self._units: dict[tuple[object, ...], UnitProgram] = {}
        self.calls: dict[tuple[int, int], Call] = {}
        self._readers()

    def group(self, stage: int) -> int:
        """The group of devices that a stage is on."""
        return stage % self.pipeline

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape of a value."""
        return self.batch.values[name].type.global_shape

    def unit(self, stage: int, backward: bool, totals: tuple[str, ...], microbatch: int) -> UnitProgram:
        """The program of a unit, which adds to these sums so far."""
        of = (stage, backward)
        key = (of, bool(totals), microbatch if of in self.indexed else 0)
        if key not in self._units:
            builder = builder_of(f"{'backward' if backward else 'forward'}{stage}", self.model)
            writer = Writer(self.cutter, self.places[self.group(stage)], builder)
            self._units[key] = unit(writer, self.numbers[of], self.leaves[of], totals, microbatch=microbatch)
        return self._units[key]

    def _readers(self) -> None:
        """Which groups read each value, which values leave the unit that makes them, and what units wait for."""
        self.needs: dict[tuple[int, bool], dict[tuple[int, bool], None]] = defaultdict(dict)
        self.read_by: dict[str, dict[int, None]] = defaultdict(dict)
        self.leaves: dict[tuple[int, bool], dict[str, None]] = defaultdict(dict)
        makers, steps = self.batch.makers, self.batch.steps
        share = self.cutter.microbatches
        self.seconds = {key: 1.0 + sum(steps[k].flops for k in own) / share for key, own in self.numbers.items()}
        asks: set[int] = set()  # operations that differ from microbatch to microbatch, and what reads such constants
        for k, step in enumerate(steps):
            constants = {makers[name] for name in step.reads.values() if self.is_made_where_read(name)}
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
        self.sent: dict[tuple[int, bool], list[tuple[str, int]]] = defaultdict(list)
        for key, leaving in self.leaves.items():
            others = ((name, group) for name in leaving for group in self.read_by[name] if group != self.group(key[0]))
            self.sent[key] += others

    def is_made_where_read(self, name: str) -> bool:
        maker = self.batch.makers.get(name)
        return maker is not None and self.batch.steps[maker].kind == "constant"

    @cached_property
    def late(self) -> dict[str, int]:
        """The group of what the update makes, and of inputs that only it reads.

        What is updated together with one input of the layers, and has its shape, is where that input is; so an
        optimizer's state is with its parameters. Any other operation runs where the largest of what it reads is.
        """
        late: dict[str, int] = {}
        final = [
            (names, [value.name for _, value in step.op.outs])
            for step, names in zip(self.batch.steps, self.batch.sources, strict=True)
            if step.kind == "final"
        ]
        for choose in (self._beside_an_input, self._nearest):
            known = -1
            while known < len(late):
                known = len(late)
                for names, outs in (*reversed(final), *final):
                    places = {name: self._where(name, late) for name in (*names, *outs)}
                    late |= choose(places, late)
        return late

    def _beside_an_input(self, places: Mapping[str, int | None], late: Mapping[str, int]) -> dict[str, int]:
        """Groups for what an operation reads and makes, where one input of the layers, or what is with it, says so."""
        largest = self._largest(places)
        groups = {places[name] for name in largest if name in self.stages.homes or name in late}
        (group,) = groups if len(groups) == 1 else (None,)
        return {} if group is None else {name: group for name in largest if places[name] is None}

    def _nearest(self, places: Mapping[str, int | None], _: Mapping[str, int]) -> dict[str, int]:
        """Groups for what an operation reads and makes; of several that would do, that of an input of the layers."""
        known = {name: group for name, group in places.items() if group is not None}
        largest = self._largest(known)
        group = min((known[name] for name in [n for n in largest if n in self.stages.homes] or largest), default=None)
        return {} if group is None else {name: group for name, place in places.items() if place is None}

    def _largest(self, names: Iterable[str]) -> list[str]:
        sizes = {name: math.prod(self.shape(name)) for name in names}
        return [name for name, size in sizes.items() if size == max(sizes.values())]

    def _where(self, name: str, late: dict[str, int]) -> int | None:
        if name in self.stages.homes:
            return self.group(self.stages.homes[name])
        number = self.batch.makers.get(name)
        return self.group(self.stages.of[number][0]) if number in self.stages.of else late.get(name)

    @cached_property
    def takes_place_of(self) -> dict[str, str]:
        """For what the update makes of one input of its shape alone that input: it ends as that begins."""
        found = {}
        for step, names in zip(self.batch.steps, self.batch.sources, strict=True):
            for _, value in step.op.outs if step.kind == "final" else ():
                of = [name for name in names if self.batch.roles[name].kind == "constant"]
                of = [name for name in of if self.shape(name) == self.shape(value.name)]
                if len(of) == 1:
                    found[value.name] = of[0]
        return found

    @cached_property
    def renewed(self) -> set[str]:
        """New values of what operations on examples read, which every replica must have."""
        found = set()
        for step, names in zip(self.batch.steps, self.batch.sources, strict=True):
            if step.kind == "final" and any(name in self.read_by for name in names):
                found |= {value.name for _, value in step.op.outs}
        return found
