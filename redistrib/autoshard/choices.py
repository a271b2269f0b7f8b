"""What is to be decided, as numbers: nodes with options, and flows of values between them.

A node is one decision: how the work of an operation is cut, or how an argument begins or a result ends. Each of its
options takes some seconds, makes values in some forms and needs others in some forms. Where a value is needed in a form
that it was not made in, it is converted: once for each form, whoever reads it. Operations that are alike are one node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    """Who needs a value.

    Attributes:
        node: the node.
        layouts: the form that it needs, for each of its options.
    """

    node: int
    layouts: tuple[int, ...]


@dataclass(frozen=True)
class ReshardEdge:
    """A value on its way from the node that makes it to those that read it.

    Attributes:
        name: of the value.
        node: that makes it.
        layouts: the form that it is made in, for each of the maker's options.
        readers: each once.
        prices: of converting it from one form to another; a pair that is missing cannot be. From a form to itself there
            is nothing to convert.
        local: pairs of forms of which the second is a part of the first, on every device, so that nothing travels.
        times: for how many values it stands.
        held: for every reader what it costs that it keeps the value waiting, by the forms made and needed; or nothing.
    """

    name: str
    node: int
    layouts: tuple[int, ...]
    readers: tuple[Reader, ...]
    prices: Mapping[tuple[int, int], float]
    local: frozenset[tuple[int, int]] = frozenset()
    times: int = 1
    held: tuple[Mapping[tuple[int, int], float], ...] = ()

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """The forms that some option of a reader needs, in order."""
        return tuple(dict.fromkeys(layout for reader in self.readers for layout in reader.layouts))

    def converted(self, made: int, needed: Sequence[int]) -> tuple[float, dict[int, int]]:
        """The least price of a value in all the forms needed, and for each the form that it is converted from.

        A form is converted from what was made, or cut out of another one that is needed as well.
        """
        wanted = [layout for layout in dict.fromkeys(needed) if layout != made]
        total, how = 0.0, {}
        for layout in wanted:
            ways = [(self.prices.get((made, layout), math.inf), made)]
            ways += [(self.prices[hub, layout], hub) for hub in wanted if (hub, layout) in self.local]
            price, how[layout] = min(ways, key=lambda way: way[0])
            total += price
        return total, how

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The maker and the readers, each once, in ascending order."""
        return tuple(sorted({self.node, *(reader.node for reader in self.readers)}))

    def price(self, choice: Sequence[int]) -> float:
        """What a choice of options of all nodes takes; infinite where the value cannot be had as it is needed."""
        made = self.layouts[choice[self.node]]
        needed = [reader.layouts[choice[reader.node]] for reader in self.readers]
        total = self.times * self.converted(made, needed)[0]
        return total + sum(own[made, layout] for own, layout in zip(self.held, needed, strict=False) if own)

    def table(self, free: Mapping[int, Sequence[int]], choice: Sequence[int] = ()) -> Floats:
        """The price for several options of some nodes, a dimension for each of the flow's nodes that is free, in order.

        Args:
            free: for nodes, of which some may have nothing to do with the flow, the options.
            choice: an option for each node, of which those that are not free are taken.
        """
        kept = [node for node in self.nodes if node in free]

        def forms_of(node: int, layouts: Sequence[int]) -> Any:
            if node not in free:
                return np.array(layouts[choice[node]])
            own = np.array([layouts[option] for option in free[node]])
            return own.reshape([-1 if other == node else 1 for other in kept])

        made = forms_of(self.node, self.layouts)
        sides = [forms_of(reader.node, reader.layouts) for reader in self.readers]
        total = np.zeros([len(free[node]) for node in kept])
        is_needed = {layout: _any(side == layout for side in sides) for layout in self.needed}
        count = 1 + max(*self.layouts, *self.needed)
        for layout in self.needed:
            if not np.any(is_needed[layout]):
                continue
            direct = np.array([self.prices.get((source, layout), math.inf) for source in range(count)])
            direct[layout] = 0.0
            price = direct[made]
            for hub in self.needed:
                if (hub, layout) in self.local:
                    cut = is_needed[hub] & (made != hub)
                    price = np.where(cut, np.minimum(price, self.prices[hub, layout]), price)
            total += np.where(is_needed[layout], price, 0.0)
        total *= self.times
        for own, side in zip(self.held, sides, strict=False):
            if own:
                rates = np.array([[own[m, n] for n in range(count)] for m in range(count)])
                total = total + rates[made, side]
        return total


@dataclass(frozen=True)
class ChoiceGraph:
    """Nodes, and the flows between them."""

    nodes: tuple[Node, ...]
    edges: tuple[ReshardEdge, ...]

    def price(self, choice: Sequence[int]) -> float:
        """What a choice of options takes in all; infinite where a value cannot be had as it is needed."""
        total = sum(node.prices[taken] for node, taken in zip(self.nodes, choice, strict=True))
        return total + sum(edge.price(choice) for edge in self.edges)

    @cached_property
    def least(self) -> float:
        """A price that no choice goes below, conversions left out."""
        return sum(min(node.prices) for node in self.nodes)


def _any(masks: Iterable[Any]) -> Any:
    return reduce(or_, masks)
