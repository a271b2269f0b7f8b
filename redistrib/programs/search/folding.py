"""Repeated layers decided once: a graph without most of the layers that repeat others.

The operations of an unrolled stack of layers repeat with a period: one run of repetitions goes forward, one backward,
one updates the parameters. Folding takes out the same layers of all runs, all but the first, one that stands for those
taken out, and the last. A reader of a removed layer's result reads that of the nearest remaining layer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import NamedTuple

import numpy as np

from redistrib.arith import Int64
from redistrib.programs.ir.graph import Graph, Operation
from redistrib.programs.schedule.graph_cuts import End
from redistrib.programs.search.constants import AFTER, AGREED, LAYERS_KEPT, SLACK, SWEEPS, WIDEST
from redistrib.programs.search.isomorphism import operation_keys
from redistrib.programs.search.repetitions import Repetition, repetitions, turnings


@dataclass(frozen=True)
class Folded:
    """A graph, and the whole one that it stands for.

    Attributes:
        graph: with few layers.
        times: for every operation of the graph how many of the whole it stands for.
        cells: for every operation of the graph its run, and its number in a layer; None outside of runs. Operations of
            one cell share a decision.
        operations: for every operation of the whole graph the number of the one that stands for it.
        inputs: for every input of the whole graph the name of the one that stands for it.
        outputs: for every output of the whole graph the number of the one that stands for it.
        input_times: for inputs of the graph, by name, for how many they stand.
        kept: for every operation of the graph its number in the whole one.
    """

    graph: Graph
    times: tuple[int, ...]
    cells: tuple[tuple[int, int] | None, ...]
    operations: tuple[int, ...]
    inputs: Mapping[str, str]
    outputs: tuple[int, ...]
    input_times: Mapping[str, int]
    kept: tuple[int, ...]

    def end(self, end: End) -> End:
        """The input or output that stands for one of the whole graph."""
        return self.inputs[end] if isinstance(end, str) else self.outputs[end]

    @cached_property
    def runs(self) -> tuple[int | None, ...]:
        """For every operation of a layer that stands for others its run."""
        pairs = zip(self.cells, self.times, strict=True)
        return tuple(cell[0] if cell is not None and times > 1 else None for cell, times in pairs)

    @cached_property
    def spans(self) -> dict[int, tuple[int, int]]:
        """For runs the first and the last operation of the layer that stands for others."""
        spans: dict[int, tuple[int, int]] = {}
        for k, run in enumerate(self.runs):
            if run is not None:
                spans[run] = (spans.get(run, (k, k))[0], k)
        return spans


def unfolded(graph: Graph) -> Folded:
    """A graph that stands for itself."""
    count = len(graph.operations)
    names = [array.name for array in graph.inputs]
    return Folded(
        graph, (1,) * count, (None,) * count, tuple(range(count)), dict(zip(names, names, strict=True)),
        tuple(range(len(graph.outputs))), dict.fromkeys(names, 1), tuple(range(count)),
    )  # fmt: skip


def folded(graph: Graph, marks: Mapping[Hashable, Hashable] = {}, tied: Mapping[int, str] = {}) -> Folded:
    """The graph with its repeated layers taken out; the graph itself where there are none, or they do not go together.

    Args:
        graph: the whole graph.
        marks: labels that separate operations (by number), inputs (by name) and outputs (`("out", number)`).
        tied: outputs, by number, that become an input, by name, when the program runs again.
    """
    arrays = graph.arrays
    number: dict[Hashable, int] = {}

    def coded(key: Hashable) -> int:
        return number.setdefault(key, len(number))

    ends = {name: marks.get(("out", k)) for k, name in enumerate(graph.outputs)}
    keys = (
        (
            key,
            marks.get(k),
            tuple([marks.get(name) for name in op.ins]),
            tuple([ends.get(array.name) for array in op.outs]),
        )
        for k, (op, key) in enumerate(zip(graph.operations, operation_keys(graph.operations, arrays), strict=True))
    )
    codes = np.array([coded(key) for key in keys], dtype=np.int64)
    runs = [run for repeated in repetitions(codes) if (run := next(turnings(graph, repeated), None)) is not None]
    if not runs:
        return unfolded(graph)
    links = _links(graph, runs)
    runs = _aligned(graph, runs, links)
    removed = _removed(runs, links)
    if not removed:
        return unfolded(graph)
    return _Folding(graph, runs, removed, marks, tied).result() or unfolded(graph)


class Gone(NamedTuple):
    """Layers of a run that are taken out.

    Attributes:
        layers: in the order of the run.
        standing: the layer that stands for them.
    """

    layers: range
    standing: int


def _links(graph: Graph, runs: Sequence[Repetition]) -> dict[tuple[int, int], Int64]:
    """For two runs, `[pairs, 2]` operations with an array in common: one reads it from the other, or both read it."""
    of_run = {run.start + k: number for number, run in enumerate(runs) for k in range(run.period * run.layers)}
    links: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    makers = graph.makers
    for name, reads in graph.readers.items():
        ends = [k for k, _ in reads if k in of_run]
        if name in makers and makers[name][0] in of_run:
            ends.append(makers[name][0])
        if len(ends) <= WIDEST and len({of_run[k] for k in ends}) > 1:
            for first, second in permutations(ends, 2):
                if of_run[first] != of_run[second]:
                    links[of_run[first], of_run[second]].add((first, second))
    return {runs_: np.array(sorted(pairs)) for runs_, pairs in links.items()}


def _agreement(run: Repetition, other: Repetition, pairs: Int64) -> tuple[float, int, int]:
    """How many of all pairs agree on which layers go together, the direction, and the shift.

    Layer `i` of the first run goes with layer `sign * i + shift` of the other.
    """
    first, second = (pairs[:, 0] - run.start) // run.period, (pairs[:, 1] - other.start) // other.period
    inside = (first >= 0) & (first < run.layers) & (second >= 0) & (second < other.layers)
    best = (0.0, 1, 0)
    for sign in (1, -1):
        shifts = (second - sign * first)[inside]
        if len(shifts):
            least = int(shifts.min())
            counts = np.bincount(shifts - least)
            shift = int(counts.argmax())
            best = max(best, (float(counts[shift]) / len(shifts), sign, shift + least))
    return best


def _aligned(graph: Graph, runs: Sequence[Repetition], links: Mapping[tuple[int, int], Int64]) -> list[Repetition]:
    """The runs, each begun where its repetitions are layers: where the same layers have their arrays in common."""
    aligned = list(runs)
    for _ in range(SWEEPS):
        for number, run in enumerate(runs):
            linked = {other: pairs for (first, other), pairs in links.items() if first == number}
            if not linked:
                continue
            ways = []
            for turned in turnings(graph, run):
                shares = [_agreement(turned, aligned[other], pairs)[0] for other, pairs in linked.items()]
                ways.append((sum(shares), -turned.start, turned))
            aligned[number] = max(ways)[2]
    return aligned


def _removed(runs: Sequence[Repetition], links: Mapping[tuple[int, int], Int64]) -> dict[int, Gone]:
    """For every run the layers that are taken out, the same of all; empty where runs do not go together."""
    placed: dict[int, tuple[int, int]] = {0: (1, 0)}  # the layer of repetition j is sign * j + shift
    pending = [0]
    while pending:
        number = pending.pop()
        for (start, second), pairs in links.items():
            if start != number or second in placed:
                continue
            share, sign, shift = _agreement(runs[number], runs[second], pairs)
            if share < AGREED:
                return {}
            # Repetition j = sign * i + shift is the layer of i, which is s0 * i + c0.
            s0, c0 = placed[number]
            placed[second] = (s0 * sign, c0 - s0 * sign * shift)
            pending.append(second)
    low, high = -(10**9), 10**9
    for number, (sign, shift) in placed.items():
        first_layer, last_layer = shift, sign * (runs[number].layers - 1) + shift
        low, high = max(low, min(first_layer, last_layer)), min(high, max(first_layer, last_layer))
    first, last = low + LAYERS_KEPT, high - AFTER
    if last - first < 1:
        return {}
    removed = {}
    for number, (sign, shift) in placed.items():
        bounds = sign * (first - shift), sign * (last - shift)
        removed[number] = Gone(range(min(bounds), max(bounds) + 1), sign * (first - 1 - shift))
    return removed


class _Folding:
    """A graph in which layers are taken out of runs."""

    def __init__(
        self,
        graph: Graph,
        runs: Sequence[Repetition],
        removed: Mapping[int, Gone],
        marks: Mapping[Hashable, Hashable],
        tied: Mapping[int, str],
    ) -> None:
        self.graph, self.runs, self.removed, self.marks, self.tied = graph, runs, removed, marks, tied
        self.place: dict[int, tuple[int, int, int]] = {}  # of operations: run, layer, and number in the layer
        self.gone: set[int] = set()  # operations that are taken out
        for number, run in enumerate(runs):
            if number in removed:
                for k in range(run.period * run.layers):
                    self.place[run.start + k] = (number, k // run.period, k % run.period)
                layers = removed[number].layers
                self.gone.update(range(run.start + layers.start * run.period, run.start + layers.stop * run.period))

    def operation_at(self, run: int, layer: int, offset: int) -> int:
        return self.runs[run].start + layer * self.runs[run].period + offset

    def nearest(self, operation: int) -> int | None:
        """The remaining operation nearest to a removed one; None where that lies in the middle of the removed ones."""
        run, layer, offset = self.place[operation]
        gone = self.removed[run].layers
        if layer - gone.start < SLACK:
            other = layer + len(gone)
            if other >= self.runs[run].layers:
                other = gone.start - 1
        elif gone.stop - 1 - layer < SLACK:
            other = layer - len(gone)
        else:
            return None
        return self.operation_at(run, other, offset) if 0 <= other < self.runs[run].layers else None

    def result(self) -> Folded | None:
        graph, makers = self.graph, self.graph.makers
        remaining = [k for k in range(len(graph.operations)) if k not in self.gone]
        if len(remaining) == len(graph.operations):
            return None
        arrays = graph.arrays
        operations: list[Operation] = []
        place = {k: n for n, k in enumerate(remaining)}
        for k in remaining:
            op = graph.operations[k]
            ins = []
            for read, name in enumerate(op.ins):
                new = self._source(name, makers)
                if new is None or (arrays[new].shape, arrays[new].dtype) != (arrays[name].shape, arrays[name].dtype):
                    return None
                if new in makers and makers[new][0] not in place:
                    return None
                is_at_end = read == 1 and op.edge.carries  # of a step
                if new in makers and makers[new][0] >= k and not is_at_end:
                    return None
                ins.append(new)
            operations.append(op if tuple(ins) == op.ins else replace(op, ins=tuple(ins)))
        stands = self._stand_ins(place)
        if stands is None:
            return None
        times = [0] * len(remaining)
        for stand_in in stands:
            times[stand_in] += 1
        inputs = self._inputs(stands, operations)
        outputs = self._outputs(stands, inputs, operations)
        if inputs is None or outputs is None:
            return None
        names, numbers = outputs
        left = {*inputs.values()}
        counted = Counter(inputs.values())
        arguments = tuple(array for array in graph.inputs if array.name in left)
        result = Graph(arguments, tuple(operations), names, graph.bodies_of(remaining))
        cells = tuple((self.place[k][0], self.place[k][2]) if k in self.place else None for k in remaining)
        return Folded(result, tuple(times), cells, stands, inputs, numbers, counted, tuple(remaining))

    def _source(self, name: str, makers: Mapping[str, tuple[int, int]]) -> str | None:
        """The operand of a remaining operation for a value; None where no remaining value stands for it."""
        if name not in makers:
            return self._argument(name)
        if makers[name][0] not in self.gone:
            return name
        k, write = makers[name]
        other = self.nearest(k)
        return None if other is None else self.graph.operations[other].outs[write].name

    def _argument(self, name: str) -> str:
        """An argument of a removed layer becomes that of the layer that stands for it; arguments of all layers stay."""
        seen = {name}
        while True:
            gone = next(((k, read) for k, read in self.graph.readers.get(name, ()) if k in self.gone), None)
            if gone is None:
                return name
            run, _, offset = self.place[gone[0]]
            other = self.operation_at(run, self.removed[run].standing, offset)
            name = self.graph.operations[other].ins[gone[1]]
            if name in seen:
                return name
            seen.add(name)

    def _stand_ins(self, place: Mapping[int, int]) -> tuple[int, ...] | None:
        """For every operation the number of the remaining one that stands for it."""
        numbers = []
        for k in range(len(self.graph.operations)):
            stand_in = k
            if k in self.gone:
                run, _, offset = self.place[k]
                stand_in = self.operation_at(run, self.removed[run].standing, offset)
                if stand_in not in place:
                    return None
            numbers.append(place[stand_in])
        return tuple(numbers)

    def _inputs(self, stands: Sequence[int], operations: Sequence[Operation]) -> dict[str, str]:
        """For every input the one that stands for it."""
        arrays = self.graph.arrays
        kept = {name for op in operations for name in op.ins} | {*self.graph.outputs}
        stand_ins: dict[str, str] = {}
        for name in (array.name for array in self.graph.inputs):
            stand_in = name
            if name not in kept and name in self.graph.readers:
                k, read = self.graph.readers[name][0]
                stand_in = operations[stands[k]].ins[read]
            is_like = stand_in not in self.graph.makers and arrays[stand_in].shape == arrays[name].shape
            stand_ins[name] = stand_in if is_like else name
        return stand_ins

    def _outputs(
        self, stands: Sequence[int], inputs: Mapping[str, str] | None, operations: Sequence[Operation]
    ) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
        """The names of the outputs that are left, and for every output the number of the one that stands for it."""
        makers = self.graph.makers
        numbers: dict[Hashable, int] = {}
        names: list[str] = []
        places: list[int] = []
        for number, name in enumerate(self.graph.outputs):
            stand_in = name
            if name in makers and makers[name][0] in self.gone:
                stand_in = operations[stands[makers[name][0]]].outs[makers[name][1]].name
            elif name not in makers and inputs is not None:
                stand_in = inputs[name]
            tie = self.tied.get(number)
            tie = inputs[tie] if tie is not None and inputs is not None else tie
            key = (stand_in, self.marks.get(("out", number)), tie)
            if key not in numbers:
                numbers[key] = len(names)
                names.append(stand_in)
            places.append(numbers[key])
        return tuple(names), tuple(places)
