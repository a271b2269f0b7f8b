"""The integer program of a choice graph, for HiGHS: one option of each node, and conversions that serve all readers.

To every reader of a value there is a flow from each layout of the maker to each layout of the reader. The flows sum to
the options of the maker and of the reader, so that the relaxation of a chain is integral. A conversion is as large as
the largest flow that needs it. A local cut out of another available layout may replace it.

Where there are few combinations of the options of a value's maker and readers, every combination is a variable instead:
the relaxation is then as tight as it can be for the value, and has fewer rows. Nodes between few others are left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redistrib.programs.search.choices import ChoiceGraph, Floats, ReshardEdge
from redistrib.programs.search.constants import COMBINATIONS, GAP, MERGED
from redistrib.programs.search.deadline import NEVER, Deadline, OutOfTime
from redistrib.programs.search.elimination import Elimination, Shrunk


@dataclass(frozen=True)
class Solution:
    """The solution.

    Attributes:
        choice: an option for each node; None where there is none, or none was found in time.
        bound: a price that no choice goes below.
        feasible: whether there may be a choice at all.
        optimal: whether the choice is within `GAP` of the bound.
    """

    choice: tuple[int, ...] | None
    bound: float
    feasible: bool
    optimal: bool


def solve(choices: ChoiceGraph, deadline: Deadline = NEVER) -> Solution:
    """The best choice, or the best that was found in time.

    Raises:
        OutOfTime: if there was no time to write the program down.
    """
    return _Model.of(choices, deadline).solve(deadline)


def relaxed(choices: ChoiceGraph, deadline: Deadline = NEVER) -> tuple[float, list[list[float]]]:
    """A price that no choice goes below, and how much of each option the relaxation of the integer program takes.

    Where there is no choice the price is infinite, and no option is taken. The price is valid for any result of the
    tolerances are: it is the Lagrangian dual at the solver's multipliers, which bounds the program from below at any.

    Raises:
        OutOfTime: if it took too long.
    """
    from scipy.optimize import linprog  # slow to import; a search alone needs it

    model = _Model.of(choices, deadline)
    if math.isinf(model.constant):
        return math.inf, []
    if not model.option:
        return model.constant, model.shares(np.zeros(0))
    costs, scale = model.scaled()
    matrix, equal, highs = model.matrix(), np.equal(model.lows, model.highs), np.array(model.highs)
    optimum = linprog(
        costs,
        A_ub=matrix[~equal],
        b_ub=highs[~equal],
        A_eq=matrix[equal],
        b_eq=highs[equal],
        bounds=(0.0, None),  # a term of a sum of options that is 1 is at most 1
        method="highs-ds",
        options={"presolve": False, **_time_limit(deadline)},
    )
    if optimum.status == 2:
        return math.inf, []
    if optimum.status != 0:
        raise OutOfTime
    multipliers = np.zeros(len(highs))
    multipliers[equal], multipliers[~equal] = optimum.eqlin.marginals, np.minimum(optimum.ineqlin.marginals, 0.0)
    reduced = costs - matrix.T @ multipliers
    dual = float(highs @ multipliers + np.minimum(reduced, 0.0).sum())  # every variable is between 0 and 1
    return model.constant + dual * scale, model.shares(optimum.x)


def _time_limit(deadline: Deadline) -> dict[str, float]:
    deadline.check()
    return {"time_limit": max(deadline.left, 0.01)} if math.isfinite(deadline.at) else {}


@dataclass
class _Model:
    choices: ChoiceGraph
    shrunk: Shrunk
    costs: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    constant: float = 0.0

    def __post_init__(self) -> None:
        self.option: dict[int, range] = {}
        for node in sorted(nodes[0] for nodes in self.shrunk.tables if len(nodes) == 1):
            prices = self.shrunk.tables[node,]
            least = float(prices.min())
            self.constant += least
            self.option[node] = options = range(len(self.costs), len(self.costs) + len(prices))
            self.row(dict.fromkeys(options, 1.0), 1.0, 1.0)
            for option, price in zip(options, prices.tolist(), strict=True):
                self.costs.append(price - least if math.isfinite(price) else 0.0)
                if math.isinf(price):
                    self.row({option: 1.0}, 0.0, 0.0)
        self.binaries = len(self.costs)

    def variable(self, cost: float = 0.0) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def row(self, entries: dict[int, float], low: float, high: float) -> None:
        self.rows += [len(self.lows)] * len(entries)
        self.columns += entries.keys()
        self.values += entries.values()
        self.lows.append(low)
        self.highs.append(high)

    @classmethod
    def of(cls, choices: ChoiceGraph, deadline: Deadline) -> _Model:
        """The program of a choice graph."""
        shrunk, edges = Elimination(choices, deadline).shrunk(COMBINATIONS, MERGED)
        model = cls(choices, shrunk)
        for nodes, table in shrunk.tables.items():
            deadline.check()
            if not nodes:
                model.constant += float(table)
            elif len(nodes) > 1:
                model._combinations(nodes, table)
        for edge in edges:
            deadline.check()
            model._paths(edge)
        return model

    def shares(self, taken: Floats) -> list[list[float]]:
        """How much of each option of every node is taken; of a node that was left out, all options a part, the best of
        those that the others take most of wholly."""
        of_node = {node: [float(taken[k]) for k in options] for node, options in self.option.items()}
        most = self.shrunk.completed({node: int(np.argmax(each)) for node, each in of_node.items()})
        sizes = (len(node.prices) for node in self.choices.nodes)
        return [
            of_node.get(node) or [1.0 if option == most[node] else 0.5 for option in range(size)]
            for node, size in enumerate(sizes)
        ]

    # ------------------------------------------------------------------------------------------ flows

    def _combinations(self, nodes: tuple[int, ...], table: Floats) -> None:
        """One variable for every possible combination of options, and for every option the sum of its variables."""
        can_be = np.isfinite(table)
        prices, taken = table[can_be], np.nonzero(can_be)
        least = float(prices.min()) if prices.size else math.inf
        self.constant += least
        variables = np.arange(len(self.costs), len(self.costs) + prices.size)
        self.costs += (prices - least).tolist()
        for node, option_numbers in zip(nodes, taken, strict=True):
            options, first = self.option[node], len(self.lows)
            self.rows += [*(option_numbers + first).tolist(), *range(first, first + len(options))]
            self.columns += [*variables.tolist(), *options]
            self.values += [1.0] * prices.size + [-1.0] * len(options)
            self.lows += [0.0] * len(options)
            self.highs += [0.0] * len(options)

    def _paths(self, edge: ReshardEdge) -> None:
        sources = self._grouped(edge.node, edge.layouts)
        paths = []
        for reader, memory_prices in zip(edge.readers, edge.memory_prices or ({},) * len(edge.readers), strict=True):
            needed = self._grouped(reader.node, reader.layouts)
            path: dict[tuple[int, int], int] = {}
            for source in sources:
                for target in needed:
                    if source == target or (source, target) in edge.prices:
                        path[source, target] = self.variable(memory_prices.get((source, target), 0.0))
            self._marginals(path, sources, needed)
            paths.append(path)
        pairs = dict.fromkeys(pair for path in paths for pair in path if pair[0] != pair[1])
        if len(edge.readers) == 1:
            for pair in pairs:
                self.costs[paths[0][pair]] += edge.times * edge.prices[pair]
            return
        converted = {pair: self.variable(edge.times * edge.prices[pair]) for pair in pairs if edge.prices[pair] > 0}
        hubs = self._hubs(edge, converted, paths)
        for path in paths:
            for pair, variable in path.items():
                if pair in converted:
                    entries = {variable: 1.0, converted[pair]: -1.0} | dict.fromkeys(hubs.get(pair, ()), -1.0)
                    self.row(entries, -np.inf, 0.0)

    def _marginals(self, path: dict[tuple[int, int], int], sources: _ByLayout, needed: _ByLayout) -> None:
        for side, layouts in ((0, sources), (1, needed)):
            for layout, options in layouts.items():
                entries = {variable: 1.0 for pair, variable in path.items() if pair[side] == layout}
                self.row(entries | dict.fromkeys(options, -1.0), 0.0, 0.0)

    def _hubs(
        self, edge: ReshardEdge, converted: dict[tuple[int, int], int], paths: list[dict[tuple[int, int], int]]
    ) -> dict[tuple[int, int], list[int]]:
        """For every conversion the variables of local cuts out of another layout, which some reader must need."""
        hubs: dict[tuple[int, int], list[int]] = defaultdict(list)
        used = set()
        for source, target in converted:
            for hub, other in sorted(edge.local):
                is_way = other == target and (source, hub) in converted
                if not is_way or edge.prices[hub, target] >= edge.prices[source, target]:
                    continue
                cut = self.variable(edge.times * edge.prices[hub, target])
                self.row({cut: 1.0, converted[source, hub]: -1.0}, -np.inf, 0.0)
                hubs[source, target].append(cut)
                used.add((source, hub))
        for pair in sorted(used):
            needed = {path[pair]: -1.0 for path in paths if pair in path}
            self.row({converted[pair]: 1.0} | needed, -np.inf, 0.0)
        return hubs

    def _grouped(self, node: int, layouts: tuple[int, ...]) -> _ByLayout:
        by_layout: dict[int, list[int]] = defaultdict(list)
        for variable, layout in zip(self.option[node], layouts, strict=True):
            by_layout[layout].append(variable)
        return by_layout

    # ------------------------------------------------------------------------------------------ the end

    def scaled(self) -> tuple[Floats, float]:
        """The costs as HiGHS likes them, and their divisor."""
        costs = np.array(self.costs)
        scale = float(costs.max(initial=0.0)) or 1.0
        return costs / scale, scale

    def matrix(self) -> Any:
        """The rows over all variables."""
        from scipy.sparse import csr_matrix

        return csr_matrix((self.values, (self.rows, self.columns)), shape=(len(self.lows), len(self.costs)))

    def run(self, costs: Floats, options: dict[str, float]) -> Any:
        """HiGHS on the model, the options of nodes being whole."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        return milp(
            costs,
            integrality=np.arange(len(costs)) < self.binaries,
            bounds=Bounds(0.0, 1.0),
            constraints=LinearConstraint(self.matrix(), self.lows, self.highs),
            options=options,
        )

    def solve(self, deadline: Deadline) -> Solution:
        if math.isinf(self.constant):
            return Solution(None, math.inf, False, False)
        if not self.option:
            return self._solution({}, self.constant, True)
        costs, scale = self.scaled()
        optimum = self.run(costs, {"mip_rel_gap": GAP, **_time_limit(deadline)})
        bound = self.constant
        if optimum.mip_dual_bound is not None and np.isfinite(optimum.mip_dual_bound):
            bound += max(0.0, float(optimum.mip_dual_bound)) * scale
        if optimum.x is None:
            return Solution(None, bound, optimum.status != 2, False)
        taken = {node: int(np.argmax(optimum.x[each.start : each.stop])) for node, each in self.option.items()}
        return self._solution(taken, bound, optimum.status == 0)

    def _solution(self, taken: dict[int, int], bound: float, optimal: bool) -> Solution:
        choice = self.shrunk.completed(taken)
        return Solution(tuple(choice[node] for node in range(len(choice))), bound, True, optimal)


_ByLayout = dict[int, list[int]]
