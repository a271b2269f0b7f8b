"""The choice graph of some mesh axes, with the cuts along all other axes given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from redistrib.lang.types import DistType
from redistrib.programs.schedule.graph_cuts import End, cuts_of
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.candidates import OperationCut, Option, of_array, of_operation
from redistrib.programs.search.choices import ChoiceGraph, Node, Reader, ReshardEdge
from redistrib.programs.search.deadline import NEVER, Deadline
from redistrib.programs.search.isomorphism import IsomorphismClasses
from redistrib.programs.search.memory import MemoryPrices, Use, uses
from redistrib.programs.search.moves import Conversions
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.time.machine import Machine


class AxesProblem:
    """The choices along some axes, and the way back from choices to decisions.

    Args:
        problem: the search problem.
        decisions: how other axes cut everything, and for how many operations a moved value is kept.
        axes: to be decided.
        classes: operations and inputs that share a decision.
        deadline: after which the problem is given up.
        idle: operations that the axes may leave uncut though only bytes count and they have much work.

    Attributes:
        choices: nodes and reshard edges.
        options: of each node.

    Raises:
        OutOfTime: if the deadline passes while the graph is built.
    """

    def __init__(
        self,
        problem: SearchProblem,
        decisions: Propagation,
        axes: Sequence[str],
        classes: IsomorphismClasses,
        deadline: Deadline = NEVER,
        idle: Collection[int] = (),
    ) -> None:
        self.idle = {classes.operations[number] for number in idle}
        self.problem, self.axes, self.classes, self.deadline = problem, tuple(axes), classes, deadline
        self.propagation = decisions.copy()
        self.propagation.clear(axes)
        self.graph = problem.graph
        self.options: list[list[Option]] = []
        self.names: list[str] = []
        self.times: list[int] = []
        self.node_of_operation: list[int] = []
        self.node_of_input: dict[str, int] = {}
        self.node_of_output: list[int] = []
        self._nodes()
        self.memory_prices = MemoryPrices(problem.weights.memory, len(self.options))
        self._edges()
        self._tie = problem.weights.ties * (problem.facts.floor or 1.0) / sum(self.times)
        self.choices = ChoiceGraph(tuple(map(self._priced, range(len(self.options)))), tuple(self.edges))

    # ------------------------------------------------------------------------------------------ nodes

    def _nodes(self) -> None:
        problem, graph, makers, given = self.problem, self.graph, self.propagation.maker, self.problem.given
        nodes: dict[tuple[object, ...], int] = {}
        machine = problem.machine if problem.moves.objective == "seconds" else None
        for number, colour in enumerate(self.classes.operations):
            if ("operation", colour) not in nodes:
                self.deadline.check()
                options = self._ways(number, machine)
                if machine is None and problem.facts.heavy[number] and colour not in self.idle:
                    options = [o for o in options if all(isinstance(cut, str) for _, cut in o.cuts)] or options
                nodes["operation", colour] = self._add(graph.operations[number].name, options)
            self.node_of_operation.append(nodes["operation", colour])
            self.times[self.node_of_operation[-1]] += problem.facts.times[number]
        for array, colour in zip(graph.inputs, self.classes.inputs, strict=True):
            if ("input", colour) not in nodes:
                nodes["input", colour] = self._add(array.name, self._layouts(array.name, array.name))
            self.node_of_input[array.name] = nodes["input", colour]
            self.times[self.node_of_input[array.name]] += 1
        for number, name in enumerate(graph.outputs):
            if number in given.tied:
                self.node_of_output.append(self.node_of_input[given.tied[number]])
                continue
            alone = name not in makers or number in given.types or number in given.pins
            end = ("output", number) if alone else ("output", self.node_of_operation[makers[name][0]], makers[name][1])
            if end not in nodes:
                nodes[end] = self._add(f"result {number}", self._layouts(number, name))
            self.times[nodes[end]] += 1
            self.node_of_output.append(nodes[end])

    def _ways(self, number: int, machine: Machine | None) -> list[Option]:
        """The options of an operation; those of operations that do the same are found once."""
        facts, weights, propagation = self.problem.facts, self.problem.weights.moves, self.propagation
        fixed = {axis: dim for axis, dim in self.problem.given.work.get(number, {}).items() if axis in self.axes}
        labels = (
            tuple(sorted(cuts.items())) for cuts in (fixed, propagation.cuts[number], propagation.carries[number])
        )
        key = (facts.kinds[number], self.axes, weights, *labels)
        if key not in facts.options:
            options = of_operation(propagation, number, self.axes, fixed, facts.sums, machine, facts.kernel(number))
            facts.options[key] = [facts.with_halos(number, option, weights) for option in options]
        return facts.options[key]

    def _add(self, name: str, options: list[Option]) -> int:
        self.options.append(options)
        self.names.append(name)
        self.times.append(0)
        return len(self.options) - 1

    def _layouts(self, end: End, name: str) -> list[Option]:
        """The layouts of an input, by name, or of an output, by number."""
        form = self.problem.given.types.get(end)
        if form is not None:
            share, at = form.local_size / max(1, form.global_size), cuts_of(form)
            cuts = tuple((axis, at.get(axis)) for axis in self.axes)
            return [Option(cuts, (form,), (form,), 0.0, share)]
        pinned = {axis: dim for axis, dim in self.problem.given.pins.get(end, {}).items() if axis in self.axes}
        return of_array(self.propagation, name, self.propagation.ends[end], self.axes, pinned)

    def _priced(self, number: int) -> Node:
        times = self.times[number]
        prices = [times * (option.seconds + self._tie * option.share) for option in self.options[number]]
        memory_prices = self.memory_prices.of_nodes[number] or [0.0] * len(prices)
        return Node(
            self.names[number],
            tuple(price + memory_price for price, memory_price in zip(prices, memory_prices, strict=True)),
        )

    def _size(self, form: DistType, dtype: str) -> int:
        return self.problem.machine.bytes_of(form.local_size, dtype)

    # ------------------------------------------------------------------------------------------ edges

    def _edges(self) -> None:
        """One edge for all values with the same maker and readers; where memory is short, one for each time that a
        value is moved again."""
        self.edges: list[ReshardEdge] = []
        self.layouts: list[tuple[DistType, ...]] = []
        self.values: list[list[Use]] = []
        self._found: dict[tuple[object, ...], Conversions] = {}
        groups: dict[tuple[int, int, str, tuple[tuple[int, int], ...]], list[Use]] = defaultdict(list)
        for use in uses(self.graph, self.propagation.keep):
            node = self.node_of_input[use.value] if use.maker < 0 else self.node_of_operation[use.maker]
            ends = tuple(
                (self.node_of_operation[k], r) if k < len(self.graph.operations) else (self.node_of_output[r], 0)
                for k, r in use.readers
            )
            key = (node, use.write, self.propagation.arrays[use.value].dtype, tuple(sorted({*ends})))
            groups[key].append(replace(use, nodes=ends))
        for (node, write, dtype, distinct), each in groups.items():
            self._edge(each, node, write, dtype, distinct)

    def _edge(self, each_use: list[Use], node: int, write: int, dtype: str, ends: Sequence[tuple[int, int]]) -> None:
        conversions = self._conversions(node, write, dtype, ends)
        weight = self.problem.weights.moves[each_use[0].value not in self.problem.facts.unhurried]
        prices = conversions.prices
        if weight != 1.0:
            prices = {pair: weight * price for pair, price in prices.items()}
        readers = tuple(Reader(end, needed) for (end, _), needed in zip(ends, conversions.needed, strict=True))
        memory_prices: tuple[dict[tuple[int, int], float], ...] = ()
        if self.memory_prices.multipliers:
            sizes = [self._size(form, dtype) for form in conversions.layouts]
            memory_prices = tuple(self.memory_prices.of_reader(each_use, end, sizes) for end in ends)
            self.memory_prices.charge_maker(each_use, node, [sizes[form] for form in conversions.made_in])
        name, count = each_use[0].value, sum(map(self._times, each_use))
        self.edges.append(
            ReshardEdge(name, node, conversions.made_in, readers, prices, conversions.local, count, memory_prices)
        )
        self.layouts.append(conversions.layouts)
        self.values.append(each_use)

    def _conversions(self, node: int, write: int, dtype: str, ends: Sequence[tuple[int, int]]) -> Conversions:
        """The prices of a value's moves; those between nodes with the same options are looked up once."""
        key = (id(self.options[node]), write, dtype, *[(id(self.options[end]), r) for end, r in ends])
        if key not in self._found:
            self._found[key] = self.problem.moves.conversions(
                tuple(option.outs[write] for option in self.options[node]),
                tuple(tuple(option.ins[r] for option in self.options[end]) for end, r in ends),
                dtype,
                self.deadline,
            )
        return self._found[key]

    def _times(self, use: Use) -> int:
        """Conversions of a value in a call: the largest number of layers that one of its readers stands for."""
        return self.problem.facts.moves_of(use.value, (k for k, _ in use.readers))

    # ------------------------------------------------------------------------------------------ back

    @property
    def _end_nodes(self) -> list[tuple[End, int]]:
        """The node of each input and output."""
        return [*self.node_of_input.items(), *enumerate(self.node_of_output)]

    def chosen(self, choice: Sequence[int]) -> Propagation:
        """The decisions of a choice."""
        decisions = self.propagation.copy()
        for k, node in enumerate(self.node_of_operation):
            for axis, cut in self.options[node][choice[node]].cuts:
                if isinstance(cut, str):
                    decisions.cuts[k][axis] = cut
                elif isinstance(cut, int):
                    decisions.carries[k][axis] = cut
        for end, node in self._end_nodes:
            cuts = self.options[node][choice[node]].cuts
            decisions.ends[end].update((axis, dim) for axis, dim in cuts if isinstance(dim, int))
        decisions.sources = self._sources(choice)
        return decisions

    def choice_of(self, decisions: Propagation) -> tuple[int, ...]:
        """The choice that makes decisions."""
        choice = [0] * len(self.options)
        ends: list[tuple[int, Mapping[str, OperationCut]]] = []
        ends += [
            (self.node_of_operation[k], {**decisions.cuts[k], **decisions.carries[k]})
            for k in range(len(decisions.cuts))
        ]
        ends += [(node, {**decisions.ends[end]}) for end, node in self._end_nodes]
        for node, cuts in ends:
            for k, option in enumerate(self.options[node]):
                if all(cuts.get(axis) == cut for axis, cut in option.cuts):
                    choice[node] = k
        return tuple(choice)

    def _sources(self, choice: Sequence[int]) -> dict[tuple[str, DistType], DistType]:
        """For a value and a needed type, the type to convert from, where that is not the maker's."""
        types: dict[tuple[str, DistType], DistType] = {}
        for edge, layouts, each in zip(self.choices.edges, self.layouts, self.values, strict=True):
            made_in = edge.layouts[choice[edge.node]]
            _, moved_from = edge.converted(made_in, [reader.layouts[choice[reader.node]] for reader in edge.readers])
            for target, source in moved_from.items():
                if source != made_in:
                    types.update(((use.value, layouts[target]), layouts[source]) for use in each)
        return types
