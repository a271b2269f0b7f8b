"""Some axes of the mesh decided together, the others being what they are: options, flows, and the integer program."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from redistrib.autoshard.alike import Classes, alike
from redistrib.autoshard.candidates import Cut, Option, of_array, of_operation, summed
from redistrib.autoshard.deadline import NEVER, Deadline
from redistrib.autoshard.folding import Folded
from redistrib.autoshard.fusion import Kernel, kernels_of, mark
from redistrib.autoshard.memory import Charges, Use, uses
from redistrib.autoshard.moves import Moves
from redistrib.autoshard.problem import ChoiceGraph, Flow, Node, Reader
from redistrib.lang.types import DistType
from redistrib.partitioning.propagate import Propagation
from redistrib.partitioning.versions import Plans
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.graph import Graph
from redistrib.simulator.machine import Machine

_T = TypeVar("_T")

HEAVY = 100  # times the work of an operation that is not much beside the largest
TIES = 2e-4  # of the work shared out evenly: the price of idle devices, which decides where nothing else does


@dataclass(frozen=True)
class Task:
    """What is searched, and what is said of it beforehand.

    Attributes:
        graph: the operations.
        machine: what they run on.
        moves: prices of moves; they know the mesh.
        starts: types of inputs that are given, by name.
        ends: types of outputs that are given, by number.
        pins: for inputs, by name, and for outputs, by number, the dimension that an axis cuts; None, left whole.
        work: for operations, by number, the dimension that an axis cuts.
        tied: outputs, by number, that become an input, by name, when the program runs again.
        ties: what idle devices cost, see `TIES`; no part of a bound.
        held: what a byte costs that a device holds, by number of the operation that is about to run.
        keep: for how many operations a value that was moved is kept; None: to the end.
        donated: inputs whose memory is free after their last use.
        folded: what the graph stands for, where repeated layers were taken out of it.
        whole: the task without folding, where there is one.
        known: the options of operations that were asked for.
        plans: of the moves of programs that were built.
        facts: about the graph and the pins, which variants of the task share.
    """

    graph: Graph
    machine: Machine
    moves: Moves
    starts: Mapping[str, DistType] = field(default_factory=dict)
    ends: Mapping[int, DistType] = field(default_factory=dict)
    pins: Mapping[str | int, Mapping[str, int | None]] = field(default_factory=dict)
    work: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    tied: Mapping[int, str] = field(default_factory=dict)
    ties: float = TIES
    held: Mapping[int, float] = field(default_factory=dict)
    keep: int | None = None
    donated: tuple[str, ...] = ()
    folded: Folded | None = None
    whole: Task | None = None
    known: dict[tuple[object, ...], list[Option]] = field(default_factory=dict, compare=False, repr=False)
    plans: Plans = field(default_factory=dict, compare=False, repr=False)
    facts: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def times(self) -> tuple[int, ...]:
        """For every operation how often it runs in a call."""
        return self.folded.times if self.folded is not None else (1,) * len(self.graph.operations)

    def _fact(self, name: str, find: Callable[[], _T]) -> _T:
        """A fact about the graph, found once for all variants of the task."""
        if name not in self.facts:
            self.facts[name] = find()
        return cast("_T", self.facts[name])

    @property
    def sums(self) -> set[str]:
        """The values that may be made as summands."""
        return self._fact("sums", lambda: summed(self.graph))

    @property
    def marks(self) -> list[tuple[object, ...]]:
        """For every operation what tells it from others that do the same: summands that it reads, rates of its own."""
        return self._fact("marks", self._marks)

    def _marks(self) -> list[tuple[object, ...]]:
        rated, sums = self.machine.operations, self.sums
        marks: list[tuple[object, ...]] = [
            (tuple(name in sums for name in one.ins), one.name if one.name in rated else "")
            for one in self.graph.operations
        ]
        if self.kernels is not None:
            arrays = self.graph.arrays()
            shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
            own = (mark(kernel, [shapes[name] for name, _ in kernel.reads]) for kernel in self.kernels)
            marks = [(*one, *more) for one, more in zip(marks, own, strict=True)]
        return marks

    @property
    def kernels(self) -> list[Kernel] | None:
        """For every operation what the compiler makes of it; None where each is a kernel."""
        if not self.machine.fuses:
            return None
        return self._fact("kernels", self._kernels)

    def _kernels(self) -> list[Kernel]:
        own = kernels_of(self.graph)
        if self.folded is None or self.whole is None or self.whole.kernels is None:
            return own
        every = (self.whole.kernels[k] for k in self.folded.kept)  # some are read only by layers that are taken out
        return [kernel._replace(reads=one.reads) for kernel, one in zip(every, own, strict=True)]

    def kernel(self, number: int) -> Kernel | None:
        """What the compiler makes of an operation."""
        return None if self.kernels is None else self.kernels[number]

    @property
    def kinds(self) -> tuple[int, ...]:
        """For every operation a number, the same for those that have the same options."""
        return self._fact("kinds", lambda: alike(self.graph, marks=dict(enumerate(self.marks)), near=0).operations)

    @property
    def heavy(self) -> list[bool]:
        """Whether an operation has some of the work: where only bytes count, nothing else would have axes cut it."""
        return self._fact("heavy", self._heavy)

    def _heavy(self) -> list[bool]:
        work = [operation.nest.points * operation.nest.flops for operation in self.graph.operations]
        most = max(work, default=0)
        return [own * HEAVY >= most > 0 for own in work]

    @cached_property
    def floor(self) -> float:
        """Lower bound on the seconds of every schedule: each operation, shared out evenly; of bytes, 0."""
        if self.moves.objective == "bytes":
            return 0.0
        total, arrays, devices = 0.0, self.graph.arrays(), self.moves.mesh.size
        for number, (operation, times) in enumerate(zip(self.graph.operations, self.times, strict=True)):
            kernel, made = self.kernel(number), [array.name for array in operation.outs]
            names = dict.fromkeys((*operation.ins, *made))
            if kernel is not None:
                names = dict.fromkeys((*(name for name, _ in kernel.reads), *(made if kernel.stores else ())))
            if kernel is not None and not kernel.runs:
                continue
            size = sum(math.prod(arrays[name].shape) * itemsize_of(arrays[name].dtype) for name in names)
            rates = self.machine.rates_of(operation.name, (arrays[name].dtype for name in operation.ins))
            flops = operation.nest.points * operation.nest.flops
            total += times * rates.seconds(size // devices, flops // devices)
            total -= times * rates.launch if kernel is not None and not kernel.launches else 0.0
        return total


@dataclass
class Decisions:
    """How axes cut operations, inputs and outputs; those that are not decided yet cut nothing."""

    found: Propagation
    ins: dict[str, dict[str, int]]
    outs: list[dict[str, int]]

    @classmethod
    def none(cls, task: Task) -> Decisions:
        """Nothing decided."""
        found = Propagation(task.graph, task.moves.mesh)
        found.order[:] = task.moves.mesh.names
        return cls(found, {array.name: {} for array in task.graph.inputs}, [{} for _ in task.graph.outputs])

    def copy(self) -> Decisions:
        """The same, to be changed."""
        return Decisions(self.found.copy(), {k: dict(v) for k, v in self.ins.items()}, [dict(v) for v in self.outs])

    @property
    def text(self) -> str:
        """The same for the same decisions, and for no others."""
        return repr((self.found.cuts, self.found.carries, self.ins, self.outs))

    def clear(self, axes: Sequence[str]) -> None:
        """Take back what is decided along axes."""
        known: list[dict[str, Any]] = [*self.found.cuts, *self.found.carries, *self.ins.values(), *self.outs]
        for cuts in known:
            for axis in axes:
                cuts.pop(axis, None)


class AxesProblem:
    """The problem of deciding some axes, and the way back from its choices.

    Args:
        task: what is searched.
        decided: how other axes cut everything.
        axes: to be decided.
        classes: what is decided alike.
        deadline: after which the problem is given up.
        idle: operations that the axes may leave uncut though only bytes count and they have much work.

    Attributes:
        problem: nodes, flows.
        options: of each node.

    Raises:
        OutOfTime: where there is no time to write the problem down.
    """

    def __init__(
        self,
        task: Task,
        decided: Decisions,
        axes: Sequence[str],
        classes: Classes,
        deadline: Deadline = NEVER,
        idle: Collection[int] = (),
    ) -> None:
        self.idle = {classes.operations[number] for number in idle}
        self.task, self.axes, self.classes, self.deadline = task, tuple(axes), classes, deadline
        self.decided = decided.copy()
        self.decided.clear(axes)
        self.found = self.decided.found
        self.graph = task.graph
        self.options: list[list[Option]] = []
        self.names: list[str] = []
        self.times: list[int] = []
        self.node_of_operation: list[int] = []
        self.node_of_input: dict[str, int] = {}
        self.node_of_output: list[int] = []
        self._nodes()
        self.charges = Charges(task.held, len(self.options))
        self._flows()
        self._tie = task.ties * (task.floor or 1.0) / sum(self.times)
        self.problem = ChoiceGraph(tuple(map(self._priced, range(len(self.options)))), tuple(self.flows))

    # ------------------------------------------------------------------------------------------ nodes

    def _nodes(self) -> None:
        task, graph, makers = self.task, self.graph, self.found.maker
        known: dict[tuple[object, ...], int] = {}
        machine = task.machine if task.moves.objective == "seconds" else None
        for number, colour in enumerate(self.classes.operations):
            if ("operation", colour) not in known:
                self.deadline.check()
                options = self._ways(number, machine)
                if machine is None and task.heavy[number] and colour not in self.idle:
                    options = [o for o in options if all(isinstance(cut, str) for _, cut in o.cuts)] or options
                known["operation", colour] = self._add(graph.operations[number].name, options)
            self.node_of_operation.append(known["operation", colour])
            self.times[self.node_of_operation[-1]] += task.times[number]
        for array, colour in zip(graph.inputs, self.classes.inputs, strict=True):
            if ("input", colour) not in known:
                known["input", colour] = self._add(array.name, self._layouts(array.name, array.name))
            self.node_of_input[array.name] = known["input", colour]
            self.times[self.node_of_input[array.name]] += 1
        for number, name in enumerate(graph.outputs):
            if number in task.tied:
                self.node_of_output.append(self.node_of_input[task.tied[number]])
                continue
            alone = name not in makers or number in task.ends or number in task.pins
            end = ("output", number) if alone else ("output", self.node_of_operation[makers[name][0]], makers[name][1])
            if end not in known:
                known[end] = self._add(f"result {number}", self._layouts(number, name))
            self.times[known[end]] += 1
            self.node_of_output.append(known[end])

    def _ways(self, number: int, machine: Machine | None) -> list[Option]:
        """The options of an operation; those of operations that do the same are found once."""
        task, found = self.task, self.found
        fixed = {axis: dim for axis, dim in task.work.get(number, {}).items() if axis in self.axes}
        own = (tuple(sorted(one.items())) for one in (fixed, found.cuts[number], found.carries[number]))
        key = (task.kinds[number], self.axes, *own)
        if key not in task.known:
            task.known[key] = of_operation(found, number, self.axes, fixed, task.sums, machine, task.kernel(number))
        return task.known[key]

    def _add(self, name: str, options: list[Option]) -> int:
        self.options.append(options)
        self.names.append(name)
        self.times.append(0)
        return len(self.options) - 1

    def _layouts(self, end: str | int, name: str) -> list[Option]:
        """The layouts of an input, by name, or of an output, by number."""
        given = self.task.starts.get(end) if isinstance(end, str) else self.task.ends.get(end)
        if given is not None:
            share = given.local_size / max(1, given.global_size)
            cuts = tuple((axis, dim_of(given, axis)) for axis in self.axes)
            return [Option(cuts, (given,), (given,), 0.0, share)]
        at = self.decided.ins[end] if isinstance(end, str) else self.decided.outs[end]
        pinned = {axis: dim for axis, dim in self.task.pins.get(end, {}).items() if axis in self.axes}
        return of_array(self.found, name, at, self.axes, pinned)

    def _priced(self, number: int) -> Node:
        times = self.times[number]
        prices = [times * (option.seconds + self._tie * option.share) for option in self.options[number]]
        held = self.charges.of_nodes[number] or [0.0] * len(prices)
        return Node(self.names[number], tuple(price + own for price, own in zip(prices, held, strict=True)))

    def _size(self, form: DistType, dtype: str) -> int:
        return form.local_size * itemsize_of(dtype)

    # ------------------------------------------------------------------------------------------ flows

    def _flows(self) -> None:
        """One flow for all values that the same nodes make and read; where memory is short, one for each time that a
        value is moved again."""
        self.flows: list[Flow] = []
        self.forms: list[tuple[DistType, ...]] = []
        self.values: list[list[Use]] = []
        groups: dict[tuple[int, int, str, tuple[tuple[int, int], ...]], list[Use]] = defaultdict(list)
        for use in uses(self.graph, self.task.keep):
            node = self.node_of_input[use.value] if use.maker < 0 else self.node_of_operation[use.maker]
            ends = tuple(
                (self.node_of_operation[k], r) if k < len(self.graph.operations) else (self.node_of_output[r], 0)
                for k, r in use.readers
            )
            key = (node, use.write, self.found.arrays[use.value].dtype, tuple(sorted({*ends})))
            groups[key].append(replace(use, nodes=ends))
        for (node, write, dtype, distinct), each in groups.items():
            self._flow(each, node, write, dtype, distinct)

    def _flow(self, each_use: list[Use], node: int, write: int, dtype: str, ends: Sequence[tuple[int, int]]) -> None:
        known = self.task.moves.conversions(
            tuple(option.outs[write] for option in self.options[node]),
            tuple(tuple(option.ins[r] for option in self.options[end]) for end, r in ends),
            dtype,
            self.deadline,
        )
        readers = tuple(Reader(end, needed) for (end, _), needed in zip(ends, known.needed, strict=True))
        sizes = [self._size(form, dtype) for form in known.forms]
        held = tuple(self.charges.held(each_use, end, sizes) for end in ends)
        self.charges.made(each_use, node, [sizes[form] for form in known.made])
        name, count = each_use[0].value, sum(map(self._times, each_use))
        self.flows.append(Flow(name, node, known.made, readers, known.prices, known.local, count, held))
        self.forms.append(known.forms)
        self.values.append(each_use)

    def _times(self, use: Use) -> int:
        """How often a value is converted in a call: as often as the operation runs that reads it most often."""
        return max((self.task.times[k] for k, _ in use.readers if k < len(self.graph.operations)), default=1)

    # ------------------------------------------------------------------------------------------ back

    def chosen(self, choice: Sequence[int]) -> Decisions:
        """The decisions of a choice."""
        made = self.decided.copy()
        for k, node in enumerate(self.node_of_operation):
            for axis, cut in self.options[node][choice[node]].cuts:
                if isinstance(cut, str):
                    made.found.cuts[k][axis] = cut
                elif isinstance(cut, int):
                    made.found.carries[k][axis] = cut
        for own, node in (
            *((made.ins[name], node) for name, node in self.node_of_input.items()),
            *zip(made.outs, self.node_of_output, strict=True),
        ):
            own.update((a, dim) for a, dim in self.options[node][choice[node]].cuts if isinstance(dim, int))
        return made

    def choice_of(self, decided: Decisions) -> tuple[int, ...]:
        """The choice that makes decisions."""
        choice = [0] * len(self.options)
        found = decided.found
        ends: list[tuple[int, Mapping[str, Cut]]] = []
        ends += [(self.node_of_operation[k], {**found.cuts[k], **found.carries[k]}) for k in range(len(found.cuts))]
        ends += [(node, {**decided.ins[name]}) for name, node in self.node_of_input.items()]
        ends += [(node, {**cuts}) for node, cuts in zip(self.node_of_output, decided.outs, strict=True)]
        for node, cuts in ends:
            for k, option in enumerate(self.options[node]):
                if all(cuts.get(axis) == cut for axis, cut in option.cuts):
                    choice[node] = k
        return tuple(choice)

    def sources(self, choice: Sequence[int]) -> dict[tuple[str, DistType], DistType]:
        """For values as they are needed the type to move them from, where that is not the one they were made in."""
        known: dict[tuple[str, DistType], DistType] = {}
        for flow, forms, each in zip(self.problem.flows, self.forms, self.values, strict=True):
            made = flow.forms[choice[flow.node]]
            _, how = flow.converted(made, [reader.forms[choice[reader.node]] for reader in flow.readers])
            for target, source in how.items():
                if source != made:
                    known.update(((use.value, forms[target]), forms[source]) for use in each)
        return known


def dim_of(form: DistType, axis: str) -> int | None:
    """The dimension that an axis cuts."""
    return next((k for k, dim in enumerate(form.dims) if axis in dim.axes), None)
