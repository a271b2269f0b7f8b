"""Staging: the part of a spread program that depends neither on the number of microbatches nor on their order.

It assigns operations to tasks, tasks to stages and values to groups of devices, and has the program of each task.
Layouts that differ in the number and order of equal microbatches share it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from redistrib.cost.model import CostModel
from redistrib.errors import ProgramError
from redistrib.programs.ir.program import Call, Place
from redistrib.programs.stages.cuts import Cutter
from redistrib.programs.stages.layout import Layout
from redistrib.programs.stages.loops import is_indexed
from redistrib.programs.stages.roles import BatchedProgram
from redistrib.programs.stages.stages import Stages, stages_of
from redistrib.programs.stages.tasks import TaskProgram, Writer, builder_of, outside_of, task_program


def cutter_of(batch: BatchedProgram, layout: Layout, microbatches: int) -> Cutter:
    """The cuts of a program's operations in a layout, its examples in so many microbatches."""
    return Cutter(
        batch,
        layout.data,
        layout.tensor,
        microbatches,
        layout.input_dims,
        shard=layout.zero >= 1,
        sums_sharded=layout.zero >= 2,
        inputs_sharded=layout.zero >= 3,
    )


class Staging:
    """A program whose operations are assigned to stages.

    A task here is a pair of a stage and whether it is the backward pass: it is the same for every microbatch.

    Attributes:
        cutter: how the operations are cut; the program's examples are all of its microbatches.
        stages: the stage of every operation.
        places: the groups of devices.
        numbers: for every task its operations.
        needs: for every task the tasks that must end before it, on the same microbatch.
        read_by: for every value the groups that read it.
        leaves: for every task the values that later tasks, the update or the caller read.
        sent: for every task the values that other groups read, each with the group.
        seconds: for every task a relative duration, for the list schedule.
        indexed: tasks whose operations depend on the number of the microbatch.
        calls: for every program of a task, by its id, and microbatch the last call.
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
        self._programs: dict[tuple[object, ...], TaskProgram] = {}
        self.calls: dict[tuple[int, int], Call] = {}
        self._readers()

    def group(self, stage: int) -> int:
        """The group of devices that a stage is on."""
        return stage % self.pipeline

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape of a value."""
        return self.batch.values[name].type.global_shape

    def task_program(self, stage: int, backward: bool, totals: tuple[str, ...], microbatch: int) -> TaskProgram:
        """The program of a task that adds to these sums over the microbatches before."""
        of = (stage, backward)
        key = (of, bool(totals), microbatch if of in self.indexed else 0)
        if key not in self._programs:
            builder = builder_of(f"{'backward' if backward else 'forward'}{stage}", self.model)
            writer = Writer(self.cutter, self.places[self.group(stage)], builder)
            self._programs[key] = task_program(writer, self.numbers[of], self.leaves[of], totals, microbatch=microbatch)
        return self._programs[key]

    def _readers(self) -> None:
        """Find the groups that read each value, the values that leave each task, and the tasks that each task needs."""
        self.needs: dict[tuple[int, bool], dict[tuple[int, bool], None]] = defaultdict(dict)
        self.read_by: dict[str, dict[int, None]] = defaultdict(dict)
        self.leaves: dict[tuple[int, bool], dict[str, None]] = defaultdict(dict)
        makers, steps = self.batch.makers, self.batch.steps
        share = self.cutter.microbatches
        self.seconds = {
            key: 1.0 + sum(steps[k].flops for k in steps_of_value) / share
            for key, steps_of_value in self.numbers.items()
        }
        asks: set[int] = set()  # operations that depend on the number of the microbatch, and readers of such constants
        for k, step in enumerate(steps):
            constants = {makers[name] for name in step.reads.values() if self.is_made_where_read(name)}
            if is_indexed(self.batch, k) or constants & asks:
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
                if self.batch.roles[name].kind == "summed" or makers.get(name) in self.stages.of:
                    self.leaves[self.stages.of[makers[name]]][name] = None
        for output in self.batch.outputs:
            made_of = self.batch.sources[makers[output]] if self.is_made_where_read(output) else (output,)
            for name in made_of:
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
    def update_group(self) -> dict[str, int]:
        """The group of every result of the update, and of every input that only the update reads.

        A value that is updated together with one input of the layers, and has its shape, is on the group of that
        input: so an optimizer's state is with its parameters. Any other operation runs where its largest operand is.
        """
        update_group: dict[str, int] = {}
        final = [
            (names, [value.name for _, value in step.op.outs])
            for step, names in zip(self.batch.steps, self.batch.sources, strict=True)
            if step.kind == "final"
        ]
        for choose in (self._beside_an_input, self._nearest):
            count = -1
            while count < len(update_group):
                count = len(update_group)
                for names, outs in (*reversed(final), *final):
                    places = {name: self._where(name, update_group) for name in (*names, *outs)}
                    update_group |= choose(places, update_group)
        return update_group

    def _beside_an_input(self, places: Mapping[str, int | None], update_group: Mapping[str, int]) -> dict[str, int]:
        """Groups for operands and results of an operation whose largest ones are on one group with an input."""
        largest = self.largest(places)
        groups = {places[name] for name in largest if name in self.stages.owners or name in update_group}
        (group,) = groups if len(groups) == 1 else (None,)
        return {} if group is None else {name: group for name in largest if places[name] is None}

    def _nearest(self, places: Mapping[str, int | None], _: Mapping[str, int]) -> dict[str, int]:
        """Groups for operands and results of an operation: that of its largest operand, preferably an input's."""
        group_of = {name: group for name, group in places.items() if group is not None}
        largest = self.largest(group_of)
        group = min(
            (group_of[name] for name in [n for n in largest if n in self.stages.owners] or largest), default=None
        )
        return {} if group is None else {name: group for name, place in places.items() if place is None}

    def largest(self, names: Iterable[str]) -> list[str]:
        """Of some values those with the most elements."""
        sizes = {name: math.prod(self.shape(name)) for name in names}
        return [name for name, size in sizes.items() if size == max(sizes.values())]

    def _where(self, name: str, update_group: dict[str, int]) -> int | None:
        if name in self.stages.owners:
            return self.group(self.stages.owners[name])
        number = self.batch.makers.get(name)
        return self.group(self.stages.of[number][0]) if number in self.stages.of else update_group.get(name)

    @cached_property
    def replaces(self) -> dict[str, str]:
        """For results of the update the one input of its shape that each replaces, and whose layout it ends in."""
        replaced = {}
        for result, names in self.batch.updates:
            of = [name for name in names if self.batch.roles[name].kind == "constant"]
            of = [name for name in of if self.shape(name) == self.shape(result)]
            if len(of) == 1:
                replaced[result] = of[0]
        return replaced

    @cached_property
    def renewed(self) -> set[str]:
        """Results of the update that replace values which operations on examples read: every replica needs them."""
        return {result for result, names in self.batch.updates if any(name in self.read_by for name in names)}
