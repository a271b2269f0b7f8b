"""Dynamic programming over a choice graph: one node after another is decided for all options of those around it.

A node leaves a table over its neighbours; the next node is the one that leaves the smallest table. On
chains and trees tables are of two nodes. Where they would grow too large, some nodes are decided given the others.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from redistrib.programs.search.choices import ChoiceGraph, Floats, ReshardEdge
from redistrib.programs.search.constants import LARGEST, LARGEST_EDGE, MOST_NODES
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
        order = self._order({node: len(kept_options) for node, kept_options in options.items()}, options, largest)
        if len(order) < len(options):
            return None
        factors = [CostFactor((n,), self._node(n, kept_options)) for n, kept_options in options.items()]
        factors += [self._restricted(k, options, choice) for k in touched]
        taken_options = Shrunk.of(factors, order, self.deadline).completed({})
        return single | {node: options[node][taken] for node, taken in taken_options.items()}

    def shrunk(self, largest: int, merged: int) -> tuple[Shrunk, list[ReshardEdge]]:
        """The graph without nodes that few others depend on, and the edges that are not among its tables.

        Args:
            largest: entries of the table of an edge; the nodes of larger ones all stay.
            merged: entries of the table by which a node that is left out is decided.
        """
        small: list[ReshardEdge] = []
        wide: list[ReshardEdge] = []
        for edge in self.choices.edges:
            is_small = math.prod(self.sizes[node] for node in edge.nodes) <= largest
            (small if is_small else wide).append(edge)
        staying = {node for edge in wide for node in edge.nodes}
        sizes = dict(enumerate(self.sizes))
        order = self._order(sizes, sizes.keys() - staying, merged)
        factors = [CostFactor((n,), np.array(node.prices)) for n, node in enumerate(self.choices.nodes)]
        factors += [CostFactor(edge.nodes, self.choices.table(edge)) for edge in small]
        return Shrunk.of(factors, order, self.deadline), wide

    def around(self, nodes: Iterable[int], choice: Sequence[int]) -> float:
        """The price of some nodes and of all edges that touch them."""
        listed = list(nodes)
        total = sum(self.choices.nodes[node].prices[choice[node]] for node in listed)
        return total + sum(self.edge(k, choice) for k in {k for node in listed for k in self.touching[node]})

    def surroundings(self, nodes: Sequence[int], choice: Sequence[int]) -> tuple[object, ...]:
        """The same for nodes that cost the same with the same options, where those around them are as they are."""
        place, (node_kinds, edge_kinds) = {node: k for k, node in enumerate(nodes)}, self._kinds
        edges: list[tuple[int, ...]] = []
        for k in dict.fromkeys(k for node in nodes for k in self.touching[node]):
            ends = self.choices.edges[k].nodes
            edges.append((edge_kinds[k], *[place[node] if node in place else -1 - choice[node] for node in ends]))
        return (*[(node_kinds[node], choice[node]) for node in nodes], *edges)

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

    def _order(self, size: Mapping[int, int], free: Collection[int], largest: int) -> list[int]:
        """The order in which some nodes leave the smallest tables; it ends before one that would be too large.

        Args:
            size: options of all nodes that take part.
            free: those that may be left out.
            largest: entries of a table.
        """
        around = {node: self.neighbours[node] & size.keys() for node in size}
        weight = {node: size[node] * math.prod(size[n] for n in around[node]) for node in free}
        heap = [(entries, node) for node, entries in weight.items()]
        heapq.heapify(heap)
        order: list[int] = []
        while len(order) < len(free):
            entries, node = heapq.heappop(heap)
            if weight.get(node) != entries:
                continue  # it was put in again, with another weight
            if entries > largest or len(around[node]) >= MOST_NODES:
                break
            self.deadline.check()
            del weight[node]
            order.append(node)
            near = around.pop(node)
            for other in near:
                around[other] = (around[other] | near) - {node, other}
            for other in near & weight.keys():
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
            if len(edge.nodes) > MOST_NODES or math.prod(self.sizes[node] for node in edge.nodes) > LARGEST_EDGE:
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


class Shrunk(NamedTuple):
    """Tables over some nodes, and how others are decided, given these.

    Attributes:
        tables: over the nodes that stay, at most one for the same nodes.
        decided: nodes that were left out, in order: each with those around it, and its best option for all of theirs.
    """

    tables: dict[tuple[int, ...], Floats]
    decided: list[tuple[int, tuple[int, ...], np.ndarray]]

    @staticmethod
    def of(factors: Iterable[CostFactor], order: Sequence[int], deadline: Deadline) -> Shrunk:
        """The tables that are left of some, where nodes are left out in an order."""
        place = {node: k for k, node in enumerate(order)}
        at: dict[int, list[CostFactor]] = defaultdict(list)
        tables: dict[tuple[int, ...], Floats] = {}
        decided: list[tuple[int, tuple[int, ...], np.ndarray]] = []

        def add(factor: CostFactor) -> None:
            first = min((place[node] for node in factor.nodes if node in place), default=-1)
            if first >= 0:
                at[first].append(factor)
            else:
                tables[factor.nodes] = tables.get(factor.nodes, 0.0) + factor.prices

        for factor in factors:
            add(factor)
        for k, node in enumerate(order):
            deadline.check()
            scope, table = _sum(at.pop(k))
            axis, around = scope.index(node), tuple(n for n in scope if n != node)
            decided.append((node, around, table.argmin(axis)))
            add(CostFactor(around, table.min(axis)))
        return Shrunk(tables, decided)

    def completed(self, taken: dict[int, int]) -> dict[int, int]:
        """An option for every node, from one for each that stays."""
        for node, around, best in reversed(self.decided):
            taken[node] = int(best[tuple(taken[n] for n in around)])
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
