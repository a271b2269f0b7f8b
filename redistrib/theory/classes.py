"""Weak types where links differ: of the tiles along a dimension, how many lie on different hosts.

Renaming devices leaves the price of a collective unchanged only within a class of equally fast links. So where links
between hosts are slower, a node of the weak graph is a grid and the part of it that cuts across hosts, and an edge
moves a factor of which a part crosses. With one host this is the paper's graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from redistrib.arith import divisors
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology
from redistrib.theory.weak import EdgeKind, Grid, WeakEdge, WeakSpace, divided, edges, scaled

Node: TypeAlias = tuple[Grid, Grid]  # tiles per dimension, and of these the factor that cuts across hosts


@dataclass(frozen=True)
class LinkClasses:
    """Devices in two classes of links: `hosts` groups of `each` devices that fast links join.

    >>> LinkClasses.of(Topology(8))
    LinkClasses(hosts=1, each=8)
    >>> LinkClasses.of(Topology.consecutive(8, 2))
    LinkClasses(hosts=4, each=2)
    """

    hosts: int
    each: int

    @classmethod
    def of(cls, topology: Topology) -> LinkClasses:
        """The classes of a topology; one class where hosts are of different size."""
        if topology.hosts is not None:
            _, sizes = np.unique(topology.hosts, return_counts=True)
            if (sizes == sizes[0]).all():
                return cls(len(sizes), int(sizes[0]))
        return cls(1, topology.devices)


def node_of(placement: Placement, topology: Topology) -> Node | None:
    """The node of a placement; None where no mesh axes within and between hosts cut it so.

    Every host of eight devices may hold three tiles, yet no axis of three lies within it.

    >>> index = np.stack([np.arange(8) // 4, np.arange(8) % 4], axis=1)
    >>> node_of(Placement((8, 8), (2, 4), index), Topology.consecutive(8, 2))
    ((2, 4), (2, 2))
    """
    hosts = topology.hosts
    if hosts is None:
        return placement.grid, (1,) * placement.rank
    slow = []
    for column, count in zip(placement.index.T, placement.grid, strict=True):
        held = np.unique(hosts * count + column)  # (host, tile) pairs
        inside = np.unique(held // count, return_counts=True)[1]
        if (inside != inside[0]).any() or count % int(inside[0]):
            return None
        slow.append(count // int(inside[0]))
    classes, across = LinkClasses.of(topology), math.prod(slow)
    if classes.hosts % across or classes.each % (placement.tiles // across):
        return None
    return placement.grid, tuple(slow)


def split_edges(
    space: WeakSpace, classes: LinkClasses, node: Node, kinds: tuple[EdgeKind, ...], dims: Sequence[int] | None = None
) -> Iterator[tuple[WeakEdge, Node]]:
    """Every weak collective that leaves a node, once for each way to split its factor between the classes.

    >>> space = WeakSpace((8, 8), 4, 64)
    >>> found = split_edges(space, LinkClasses(2, 2), ((4, 1), (2, 1)), ("allgather",))
    >>> [(edge.factor, edge.slow, onto) for edge, onto in found]
    [(2, 1, ((2, 1), (2, 1))), (2, 2, ((2, 1), (1, 1))), (4, 2, ((1, 1), (1, 1)))]
    """
    grid, slow = node
    free_slow = classes.hosts // math.prod(slow)
    free_fast = classes.each * math.prod(slow) // math.prod(grid)
    for edge in edges(space, grid, kinds, dims):
        if edge.kind == "dynslice":
            most_slow, most_fast = free_slow, free_fast
        else:
            most_slow, most_fast = slow[edge.dim], grid[edge.dim] // slow[edge.dim]
        for part in divisors(math.gcd(edge.factor, most_slow)):
            if most_fast % (edge.factor // part):
                continue
            after = slow if edge.kind == "dynslice" else divided(slow, edge.dim, part)
            if edge.kind != "allgather":
                after = scaled(after, edge.to, part)
            yield (edge if part == 1 else edge._replace(slow=part)), (edge.target, after)
