"""The choices of a search as numbers: nodes with options, and reshard edges between them.

A node is one decision: the cuts of an operation, or the layout of an argument or a result. Each of its options takes
some seconds, writes values in some layouts and reads values in some layouts. An edge is a value. Where a reader needs
another layout than the maker's, the value is converted, once for each layout. Isomorphic operations are one node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Any, TypeAlias

import numpy as np

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Node:
    """A decision.

    Attributes:
        name: of the operation or array.
        prices: of each option, times how often the node stands for an operation.
    """

    name: str
    prices: tuple[float, ...]


@dataclass(frozen=True)
class Reader:
    """A reader of a value.

    Attributes:
        node: the node.
        layouts: the layout that it reads, for each of its options.
    """

    node: int
    layouts: tuple[int, ...]


@dataclass(frozen=True)
class ReshardEdge:
    """A value, between the node that makes it and its readers.

    Attributes:
        name: of the value.
        node: that makes it.
        layouts: the layout that it is made in, for each of the maker's options.
        readers: each once.
        prices: of a conversion, by its two layouts; there is no conversion of a missing pair. A layout needs none to
            itself.
        local: pairs of layouts of which the second is a part of the first, on every device, so that nothing travels.
        times: for how many values it stands.
        memory_prices: for every reader the price of the bytes that wait for it, by the layouts of maker and reader; or
            nothing.
    """

    name: str
    node: int
    layouts: tuple[int, ...]
    readers: tuple[Reader, ...]
    prices: Mapping[tuple[int, int], float]
    local: frozenset[tuple[int, int]] = frozenset()
    times: int = 1
    memory_prices: tuple[Mapping[tuple[int, int], float], ...] = ()

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """The layouts that some option of a reader needs, in order."""
        return tuple(dict.fromkeys(layout for reader in self.readers for layout in reader.layouts))

    def converted(self, made_in: int, needed: Sequence[int]) -> tuple[float, dict[int, int]]:
        """The least price of a value in all layouts that are needed, and the source of each conversion.

        A layout is converted from the maker's, or cut out of another layout that is also needed.
        """
        targets = [layout for layout in dict.fromkeys(needed) if layout != made_in]
        total, converted_from = 0.0, {}
        for layout in targets:
            ways = [(self.prices.get((made_in, layout), math.inf), made_in)]
            ways += [(self.prices[hub, layout], hub) for hub in targets if (hub, layout) in self.local]
            price, converted_from[layout] = min(ways, key=lambda way: way[0])
            total += price
        return total, converted_from

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The maker and the readers, each once, in ascending order."""
        return tuple(sorted({self.node, *(reader.node for reader in self.readers)}))

    @cached_property
    def alike(self) -> tuple[object, ...]:
        """The same for edges of one graph with equal tables, where they share their prices."""
        place = {node: k for k, node in enumerate(self.nodes)}
        readers = tuple((place[reader.node], reader.layouts) for reader in self.readers)
        waiting = tuple((k, id(prices)) for k, prices in enumerate(self.memory_prices) if prices)
        shared = (id(self.prices), id(self.local), *waiting)
        return (place[self.node], self.layouts, readers, self.times, *shared)

    def price(self, choice: Sequence[int]) -> float:
        """The price of a choice of options of all nodes; infinite where a conversion is impossible."""
        made_in = self.layouts[choice[self.node]]
        needed = [reader.layouts[choice[reader.node]] for reader in self.readers]
        total = self.times * self.converted(made_in, needed)[0]
        return total + sum(
            memory_price[made_in, layout]
            for memory_price, layout in zip(self.memory_prices, needed, strict=False)
            if memory_price
        )

    def table(self, free: Mapping[int, Sequence[int]], choice: Sequence[int] = ()) -> Floats:
        """The price for several options of some nodes, with a dimension for each free node of the edge, in order.

        Args:
            free: the options of free nodes, of this edge or of others.
            choice: an option for each node, of which those that are not free are taken.
        """
        dims = [node for node in self.nodes if node in free]

        def layouts_of(node: int, layouts: Sequence[int]) -> Any:
            if node not in free:
                return np.array(layouts[choice[node]])
            layout_numbers = np.array([layouts[option] for option in free[node]])
            return layout_numbers.reshape([-1 if other == node else 1 for other in dims])

        source_layouts = layouts_of(self.node, self.layouts)
        sides = [layouts_of(reader.node, reader.layouts) for reader in self.readers]
        total = np.zeros([len(free[node]) for node in dims])
        is_needed = {layout: _any(side == layout for side in sides) for layout in self.needed}
        count = 1 + max(*self.layouts, *self.needed)
        for layout in self.needed:
            if not np.any(is_needed[layout]):
                continue
            direct = np.array([self.prices.get((source, layout), math.inf) for source in range(count)])
            direct[layout] = 0.0
            price = direct[source_layouts]
            for hub in self.needed:
                if (hub, layout) in self.local:
                    cut = is_needed[hub] & (source_layouts != hub)
                    price = np.where(cut, np.minimum(price, self.prices[hub, layout]), price)
            total += np.where(is_needed[layout], price, 0.0)
        total *= self.times
        for memory_price, side in zip(self.memory_prices, sides, strict=False):
            if memory_price:
                memory_prices = np.array([[memory_price[m, n] for n in range(count)] for m in range(count)])
                total = total + memory_prices[source_layouts, side]
        return total


@dataclass(frozen=True)
class ChoiceGraph:
    """Nodes, and the reshard edges between them.

    Attributes:
        nodes: what is decided.
        edges: the moves that decisions cause.
        tables: those of edges with all options, by what edges have in common that share one.
    """

    nodes: tuple[Node, ...]
    edges: tuple[ReshardEdge, ...]
    tables: dict[tuple[object, ...], Floats] = field(default_factory=dict, compare=False)

    def table(self, edge: ReshardEdge) -> Floats:
        """The price of an edge for all options of its nodes, with a dimension for each node, in order."""
        if edge.alike not in self.tables:
            self.tables[edge.alike] = edge.table({node: range(len(self.nodes[node].prices)) for node in edge.nodes})
        return self.tables[edge.alike]

    def price(self, choice: Sequence[int]) -> float:
        """The price of a choice of options; infinite where a conversion is impossible."""
        total = sum(node.prices[taken] for node, taken in zip(self.nodes, choice, strict=True))
        return total + sum(edge.price(choice) for edge in self.edges)

    @cached_property
    def least(self) -> float:
        """A price that no choice goes below, conversions left out."""
        return sum(min(node.prices) for node in self.nodes)


def _any(masks: Iterable[Any]) -> Any:
    return reduce(or_, masks)
