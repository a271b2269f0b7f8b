"""A program spread over devices: the pipeline tasks in order, the values they send, and the update, once."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.cost.model import CostModel
from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.programs.ir.program import Call, Program, Value
from redistrib.programs.stages.layout import Layout
from redistrib.programs.stages.orders import PipelineTask, ScheduledTask, forward_only, list_schedule
from redistrib.programs.stages.roles import BatchedProgram
from redistrib.programs.stages.staging import Staging, cutter_of
from redistrib.programs.stages.tasks import Key, TaskProgram, Writer, builder_of


def spread_over(
    batch: BatchedProgram, layout: Layout, model: CostModel | str, staging: Staging | None = None
) -> Program:
    """A program over the devices of a layout; it is not checked.

    Args:
        batch: the program, seen from its batch.
        layout: how it is spread.
        model: the objective of plans.
        staging: of a layout that differs at most in its microbatches and their order. Where its cuts are of a single
            microbatch, the examples of `batch` are those of each microbatch, and not of all together.
    """
    return _Spreading(
        staging or Staging(cutter_of(batch, layout, layout.microbatches), layout, model), layout
    ).program()


class _Spreading:
    def __init__(self, staging: Staging, layout: Layout) -> None:
        self.staging, self.batch, self.cutter, self.layout = staging, staging.batch, staging.cutter, layout
        self.builder = builder_of("step", staging.model)
        self.writers = [Writer(self.cutter, place, self.builder) for place in staging.places]
        self.owner: dict[str, int] = {}
        self.sums: dict[str, Value] = {}
        self.constants: dict[int, list[str]] = {}  # by the tasks, which the staging keeps

    # ------------------------------------------------------------------------------------------ names and places

    def key(self, name: str, microbatch: int) -> Key:
        """The key of a value, or of its part with a microbatch."""
        return (name, microbatch) if self.batch.roles[name].kind == "batched" else name

    def named(self, name: str, microbatch: int) -> str:
        """The name of a value, or of its part with a microbatch."""
        split = self.batch.roles[name].kind == "batched" and self.layout.microbatches > 1
        return f"{name}.{microbatch}" if split else name

    # ------------------------------------------------------------------------------------------ the program

    def program(self) -> Program:
        self._start()
        rows = self.layout.rows
        if not any(backward for _, backward in self.staging.stages.of.values()):
            rows = forward_only(rows)
        self._check(rows)
        for _, sends, task in _events(list_schedule(rows, self._needs, self._seconds)):
            (self._send if sends else self._task)(task)
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
            stage = self.staging.stages.owners.get(name)
            group = self.staging.update_group.get(name, 0) if stage is None else self.staging.group(stage)
            if name not in self.cutter.types:  # nothing reads it
                self.cutter.types[name] = DistType.of(f"[{', '.join(map(str, value.type.global_shape))}]")
            self.owner[name] = group
            for m in self._microbatches(name):
                self.writers[group].begin(self.named(name, m), self.cutter.types[name], name, self.key(name, m))

    def _check(self, rows: Sequence[Sequence[PipelineTask]]) -> None:
        for group, row in enumerate(rows):
            for task in row:
                stages = self.layout.pipeline * self.layout.chunks
                if not 0 <= task.stage < stages or self.staging.group(task.stage) != group:
                    raise ProgramError("", "", "Order", f"stage {task.stage} is not on group {group} of devices")
        count = self.layout.pipeline * self.layout.chunks * self.layout.microbatches
        passes = 1 + any(task.backward for row in rows for task in row)
        if len({task for row in rows for task in row}) != count * passes or sum(map(len, rows)) != count * passes:
            raise ProgramError(
                "", "", "Order", f"the order has {sum(map(len, rows))} tasks, and every stage runs each of "
                f"{self.layout.microbatches} microbatches once, {count * passes} tasks in all",
            )  # fmt: skip

    def _needs(self, task: PipelineTask) -> list[PipelineTask]:
        return [
            PipelineTask(stage, task.microbatch, backward)
            for stage, backward in self.staging.needs[task.stage, task.backward]
        ]

    def _seconds(self, task: PipelineTask) -> float:
        return self.staging.seconds.get((task.stage, task.backward), 1.0)

    # ------------------------------------------------------------------------------------------ tasks

    def _task(self, task: PipelineTask) -> None:
        group = self.staging.group(task.stage)
        writer = self.writers[group]
        totals = tuple(name for name in self.staging.leaves[task.stage, task.backward] if name in self.sums)
        called = self.staging.task_program(task.stage, task.backward, totals, task.microbatch)
        if not called.program.ops:
            return
        ins = self._constants(group, called)
        for k, name in called.batched:
            ins[k] = self._at(group, name, task.microbatch).name
        ins += [self.sums[name].name for name in called.totals]
        call = self._call(writer, called, tuple(ins), task.microbatch)
        self.builder.ops.append(call)
        for name, out in zip(called.outs, call.outs, strict=True):
            if self.batch.roles[name].kind == "summed":
                self.sums[name] = out
            else:
                writer.hold(self.key(name, task.microbatch), out)
            self.owner[name] = group

    def _call(self, writer: Writer, called: TaskProgram, ins: tuple[str, ...], microbatch: int) -> Call:
        """The call of a task; layouts that differ in the number of microbatches alone share it."""
        reusable = self.staging.calls.get((id(called), microbatch))
        if reusable is not None and reusable.ins == ins and self.builder.reserve([out.name for out in reusable.outs]):
            return reusable
        outs = tuple(
            writer.value(self.named(name, microbatch), inner.type, name)
            for name, inner in zip(called.outs, called.inner_outs, strict=True)
        )
        call = self.staging.calls[id(called), microbatch] = Call(called.program, ins, outs)
        return call

    def _constants(self, group: int, called: TaskProgram) -> list[str]:
        """The names of a task's inputs, empty for the parts of its microbatch: the same list for every microbatch."""
        if id(called) not in self.constants:
            batched = {k for k, _ in called.batched}
            names = ["" if k in batched else self._at(group, name, 0).name for k, name in enumerate(called.ins)]
            self.constants[id(called)] = names
        return [*self.constants[id(called)]]

    def _send(self, task: PipelineTask) -> None:
        """Send the results of a task to the groups that read them."""
        for name, group in self.staging.sent[task.stage, task.backward]:
            self._at(group, name, task.microbatch)

    def _at(self, group: int, name: str, microbatch: int) -> Value:
        """A value, or its part with a microbatch, on a group of devices; it is sent if the group lacks it."""
        key = self.key(name, microbatch)
        writer = self.writers[group]
        if writer.has(key):
            return writer.computed(key)
        source = self.writers[self.owner[name]].computed(key)
        named = self.builder.new_name(f"{source.name}@{group}")
        return writer.hold(key, self.builder.move(source, place=writer.place, name=named))

    # ------------------------------------------------------------------------------------------ once

    def _once(self, number: int) -> None:
        """Add an operation on complete sums."""
        step, names = self.batch.steps[number], self.batch.sources[number]
        for name in names:
            self._complete(name)
        group = self.staging.update_group[self.staging.largest(value.name for _, value in step.op.outs)[0]]
        for name in names:
            self._at(group, name, 0)
        self.writers[group].compute(number)
        for _, value in step.op.outs:
            self.owner[value.name] = group

    def _complete(self, name: str) -> None:
        """Reduce the sum over all microbatches over the replicas, if the value is a sum that is still partial."""
        writer = self.writers[self.owner[name]]
        if self.batch.roles[name].kind == "summed" and not writer.has(name):
            writer.hold(name, self.sums[name])
            writer.hold(name, writer.needed(name, self.cutter.completed(name)))

    def _output(self, name: str, microbatch: int) -> Value:
        if name not in self.owner:  # a constant
            number = self.batch.makers[name]
            group = next((self.owner[source] for source in self.batch.sources[number]), 0)
            for source in self.batch.sources[number]:
                self._at(group, source, 0)
            self.writers[group].compute(number)
            self.owner[name] = group
        self._complete(name)
        writer, key = self.writers[self.owner[name]], self.key(name, microbatch)
        value = writer.computed(key)
        if name in self.staging.replaces:
            return writer.needed(key, self.cutter.types[self.staging.replaces[name]])
        if self.layout.zero in (1, 2) and name in self.staging.renewed:
            return writer.needed(key, self.cutter.whole(value.type))
        return value

    def _donated(self, outputs: set[str]) -> list[Value]:
        """The inputs that the update reads: its results replace them."""
        steps = zip(self.batch.steps, self.batch.sources, strict=True)
        read = {name for step, names in steps if step.kind == "final" for name in names}
        return [value for value in self.builder.inputs if value.name in read - outputs]


def _events(schedule: Sequence[ScheduledTask]) -> list[tuple[float, bool, PipelineTask]]:
    """The start of every task, and its end, when it sends; of equal times ends come first."""
    ends = [(entry.end, True, entry.task) for entry in schedule]
    starts = [(entry.start, False, entry.task) for entry in schedule]
    return sorted(ends + starts, key=lambda event: (event[0], not event[1]))
