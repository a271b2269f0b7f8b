"""Dynamic programming over a choice graph: one node after another is decided for all options of those around it.

A node leaves a table over its neighbours; the next node is the one that leaves the smallest table. On
chains and trees tables are of two nodes. Where they would grow too large, some nodes are decided given the others.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from redistrib.programs.search.choices import ChoiceGraph, Floats, ReshardEdge
from redistrib.programs.search.constants import LARGEST, MOST_NODES, WHOLE
from redistrib.programs.search.deadline import NEVER, Deadline


class CostFactor(NamedTuple):
    """A table of prices over some nodes, in ascending order."""

    nodes: tuple[int, ...]
    prices: Floats


class Elimination:
    """A choice graph as tables.

    Args:
        choices: the choice graph.
        deadline: after which a solution is given up.
    """

    def __init__(self, choices: ChoiceGraph, deadline: Deadline = NEVER) -> None:
        self.choices, self.deadline = choices, deadline
        self.sizes = [len(node.prices) for node in choices.nodes]
        self.touching: dict[int, list[int]] = defaultdict(list)
        for k, edge in enumerate(choices.edges):
            for node in edge.nodes:
                self.touching[node].append(k)
        self._factors: dict[int, Floats] = {}

    @cached_property
    def neighbours(self) -> list[set[int]]:
        """For every node those that it shares an edge with."""
        adjacent: list[set[int]] = [set() for _ in self.sizes]
        for edge in self.choices.edges:
            for node in edge.nodes:
                adjacent[node].update(edge.nodes)
        for node, near in enumerate(adjacent):
            near.discard(node)
        return adjacent

    def solve(
        self, options: Mapping[int, Sequence[int]], choice: Sequence[int], largest: int = LARGEST
    ) -> dict[int, int] | None:
        """The best options of some nodes, the others being as they are; None where a table would grow too large.

        Args:
            options: for nodes that are free, those that they may take.
            choice: an option for each node.
            largest: entries of a table.

        Raises:
            OutOfTime: after the deadline.
        """
        single, choice = (
            {n: kept_options[0] for n, kept_options in options.items() if len(kept_options) == 1},
            list(choice),
        )
        for node, taken in single.items():
            choice[node] = taken
        touched = sorted({k for node in options for k in self.touching[node]})
        options = {node: kept_options for node, kept_options in options.items() if len(kept_options) > 1}
        order = self._order(options, largest)
        if order is None:
            return None
        factors = [CostFactor((n,), self._node(n, kept_options)) for n, kept_options in options.items()]
        factors += [self._restricted(k, options, choice) for k in touched]
        at: dict[int, list[CostFactor]] = defaultdict(list)
        place = {node: k for k, node in enumerate(order)}
        for factor in factors:
            if factor.nodes:
                at[min(factor.nodes, key=place.__getitem__)].append(factor)
        decided: list[tuple[int, tuple[int, ...], np.ndarray]] = []
        for node in order:
            self.deadline.check()
            scope, table = _sum(at[node])
            axis = scope.index(node)
            rest = tuple(n for n in scope if n != node)
            decided.append((node, rest, table.argmin(axis)))
            if rest:
                at[min(rest, key=place.__getitem__)].append(CostFactor(rest, table.min(axis)))
        taken_options: dict[int, int] = {}
        for node, rest, best in reversed(decided):
            taken_options[node] = int(best[tuple(taken_options[n] for n in rest)])
        return single | {node: options[node][taken] for node, taken in taken_options.items()}

    def around(self, nodes: Iterable[int], choice: Sequence[int]) -> float:
        """The price of some nodes and of all edges that touch them."""
        listed = list(nodes)
        total = sum(self.choices.nodes[node].prices[choice[node]] for node in listed)
        return total + sum(self.edge(k, choice) for k in {k for node in listed for k in self.touching[node]})

    def surroundings(self, nodes: Sequence[int], choice: Sequence[int]) -> tuple[object, ...]:
        """The same for nodes that cost the same with the same options, where those around them are as they are."""
        place, (node_kinds, edge_kinds) = {node: k for k, node in enumerate(nodes)}, self._kinds
        edges = dict.fromkeys(k for node in nodes for k in self.touching[node])
        ends = (
            (
                edge_kinds[k],
                *[place[node] if node in place else -1 - choice[node] for node in self.choices.edges[k].nodes],
            )
            for k in edges
        )
        return (*[(node_kinds[node], choice[node]) for node in nodes], *ends)

    @cached_property
    def _kinds(self) -> tuple[list[int], list[int]]:
        """For every node and edge a number, the same for those with equal prices."""
        numbers: dict[object, int] = {}
        nodes = [numbers.setdefault(node.prices, len(numbers)) for node in self.choices.nodes]
        return nodes, [numbers.setdefault(edge.alike, len(numbers)) for edge in self.choices.edges]

    def edge(self, number: int, choice: Sequence[int]) -> float:
        """The price of one edge."""
        edge = self.choices.edges[number]
        if number in self._factors:
            return float(self._factors[number][tuple(choice[node] for node in edge.nodes)])
        return edge.price(choice)

    def _order(self, options: Mapping[int, Sequence[int]], largest: int) -> list[int] | None:
        around = {node: self.neighbours[node] & options.keys() for node in options}
        size = {node: len(entries) for node, entries in options.items()}
        weight = {node: size[node] * math.prod(size[n] for n in around[node]) for node in around}
        heap = [(entries, node) for node, entries in weight.items()]
        heapq.heapify(heap)
        order: list[int] = []
        while len(order) < len(size):
            entries, node = heapq.heappop(heap)
            if weight.get(node) != entries:
                continue  # it was put in again, with another weight
            if entries > largest or len(around[node]) >= MOST_NODES:
                return None
            self.deadline.check()
            del weight[node]
            order.append(node)
            near = around.pop(node)
            for other in near:
                around[other] = (around[other] | near) - {node, other}
            for other in near:
                weight[other] = size[other] * math.prod(size[n] for n in around[other])
                heapq.heappush(heap, (weight[other], other))
        return order

    def _node(self, node: int, options: Sequence[int]) -> Floats:
        prices = self.choices.nodes[node].prices
        return np.array(prices if options == range(len(prices)) else [prices[option] for option in options])

    def _restricted(self, number: int, options: Mapping[int, Sequence[int]], choice: Sequence[int]) -> CostFactor:
        """The table of an edge for the options that are free, all others as they are."""
        edge = self.choices.edges[number]
        nodes = tuple([node for node in edge.nodes if node in options])
        if number not in self._factors:
            self.deadline.check()
            if len(edge.nodes) > MOST_NODES or math.prod(self.sizes[node] for node in edge.nodes) > WHOLE:
                return CostFactor(nodes, edge.table(options, choice))
            self._factors[number] = self.choices.table(edge)
        prices = self._factors[number][tuple([slice(None) if node in options else choice[node] for node in edge.nodes])]
        for axis, node in enumerate(nodes):
            if options[node] != range(self.sizes[node]):
                prices = prices.take(options[node], axis)
        return CostFactor(nodes, prices)


def _sum(factors: Sequence[CostFactor]) -> CostFactor:
    """Tables added up, over all their nodes."""
    scope = tuple(sorted({node for factor in factors for node in factor.nodes}))
    total: Floats = np.zeros(())
    for nodes, prices in factors:
        spread = prices if nodes == scope else prices[tuple([slice(None) if n in nodes else None for n in scope])]
        total = total + spread
    return CostFactor(scope, total)


@dataclass
class Shrunk:
    """A choice graph without the nodes that few others depend on: each is decided by what these take.

    Args:
        choices: the choice graph.
        largest: entries of a table that an edge is; the nodes of larger ones all stay.
        merged: entries of a table that a node which is left out leaves over those around it.
        deadline: after which it is given up.

    Attributes:
        tables: over the nodes that stay, at most one for the same nodes.
        edges: those that are no table.
    """

    choices: ChoiceGraph
    largest: int
    merged: int
    deadline: Deadline = NEVER
    tables: dict[tuple[int, ...], Floats] = field(default_factory=dict)
    edges: list[ReshardEdge] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes = [len(node.prices) for node in self.choices.nodes]
        self._touching: list[set[tuple[int, ...]]] = [set() for _ in self._sizes]
        self._decided: list[tuple[int, tuple[int, ...], np.ndarray]] = []
        for number, node in enumerate(self.choices.nodes):
            self._add(CostFactor((number,), np.array(node.prices)))
        for edge in self.choices.edges:
            if math.prod(self._sizes[node] for node in edge.nodes) <= self.largest:
                self._add(CostFactor(edge.nodes, self.choices.table(edge)))
            else:
                self.edges.append(edge)
        held = {node for edge in self.edges for node in edge.nodes}
        waiting = dict.fromkeys(node for node in range(len(self._sizes)) if node not in held)
        while waiting:
            self.deadline.check()
            node = next(iter(waiting))
            del waiting[node]
            waiting |= dict.fromkeys(n for n in self._left_out(node) if n not in held)

    @property
    def nodes(self) -> list[int]:
        """The nodes that stay."""
        gone = {node for node, _, _ in self._decided}
        return [node for node in range(len(self._sizes)) if node not in gone]

    def _add(self, factor: CostFactor) -> None:
        nodes, prices = factor
        self.tables[nodes] = self.tables[nodes] + prices if nodes in self.tables else prices
        for node in nodes:
            self._touching[node].add(nodes)

    def _left_out(self, node: int) -> tuple[int, ...]:
        """Leave a node out, if it leaves a small table; those around it."""
        around = {other for nodes in self._touching[node] for other in nodes} - {node}
        if len(around) >= MOST_NODES or math.prod(self._sizes[other] for other in around) > self.merged:
            return ()
        scope, table = _sum([CostFactor(nodes, self.tables.pop(nodes)) for nodes in sorted(self._touching[node])])
        for other in around:
            self._touching[other] -= self._touching[node]
        axis, rest = scope.index(node), tuple(sorted(around))
        self._decided.append((node, rest, table.argmin(axis)))
        self._touching[node] = set()
        self._add(CostFactor(rest, table.min(axis)))
        return rest

    def completed(self, taken: dict[int, int]) -> dict[int, int]:
        """An option for every node, from one for each that stays."""
        for node, rest, best in reversed(self._decided):
            taken[node] = int(best[tuple(taken[n] for n in rest)])
        return taken


def neighbourhood(elimination: Elimination, centre: int, count: int) -> list[int]:
    """The nodes nearest to one, itself first."""
    reached = dict.fromkeys([centre])
    frontier = [centre]
    while frontier and len(reached) < count:
        near: Iterable[int] = (n for node in frontier for n in sorted(elimination.neighbours[node]))
        frontier = [node for node in dict.fromkeys(near) if node not in reached]
        reached |= dict.fromkeys(frontier)
    return list(reached)[:count]
