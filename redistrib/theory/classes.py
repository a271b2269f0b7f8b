"""The weak graph of a topology with fast links within hosts and slow links between hosts.

Renumbering devices changes the price of a collective unless it maps hosts to hosts. So a node of this graph is a pair
of grids: the number of tiles along each dimension, and the factor of it that cuts across hosts. An edge moves a factor,
and part of this factor may move across hosts. With one host this graph is the paper's.
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

Node: TypeAlias = tuple[Grid, Grid]  # tiles per dimension, and the factor of them that cuts across hosts


@dataclass(frozen=True)
class LinkClasses:
    """The size of a topology in both classes of links: fast within a host, slow between hosts.

    Attributes:
        hosts: number of hosts.
        devices_per_host: number of devices of every host.

    >>> LinkClasses.of(Topology(8))
    LinkClasses(hosts=1, devices_per_host=8)
    >>> LinkClasses.of(Topology.consecutive(8, 2))
    LinkClasses(hosts=4, devices_per_host=2)
    """

    hosts: int
    devices_per_host: int

    @classmethod
    def of(cls, topology: Topology) -> LinkClasses:
        """The classes of a topology; a single host if its hosts have different numbers of devices."""
        if topology.hosts is not None:
            _, sizes = np.unique(topology.hosts, return_counts=True)
            if (sizes == sizes[0]).all():
                return cls(len(sizes), int(sizes[0]))
        return cls(1, topology.devices)


def node_of(placement: Placement, topology: Topology) -> Node | None:
    """The node of a placement; None if no mesh with separate axes within and between hosts has such a placement.

    For example None if every host has eight devices and holds three tiles: no axis of size 3 lies within a host.

    >>> index = np.stack([np.arange(8) // 4, np.arange(8) % 4], axis=1)
    >>> node_of(Placement((8, 8), (2, 4), index), Topology.consecutive(8, 2))
    ((2, 4), (2, 2))
    """
    hosts = topology.hosts
    if hosts is None:
        return placement.grid, (1,) * placement.rank
    slow = []
    for column, count in zip(placement.index.T, placement.grid, strict=True):
        pairs = np.unique(hosts * count + column)  # of a host and a tile on it
        tiles_per_host = np.unique(pairs // count, return_counts=True)[1]
        if (tiles_per_host != tiles_per_host[0]).any() or count % int(tiles_per_host[0]):
            return None
        slow.append(count // int(tiles_per_host[0]))
    classes, across = LinkClasses.of(topology), math.prod(slow)
    if classes.hosts % across or classes.devices_per_host % (placement.tiles // across):
        return None
    return placement.grid, tuple(slow)


def split_edges(
    space: WeakSpace, classes: LinkClasses, node: Node, kinds: tuple[EdgeKind, ...], dims: Sequence[int] | None = None
) -> Iterator[tuple[WeakEdge, Node]]:
    """Every weak collective from a node and the node it leads to, for every split of its factor between the classes.

    >>> space = WeakSpace((8, 8), 4, 64)
    >>> leaving = split_edges(space, LinkClasses(2, 2), ((4, 1), (2, 1)), ("allgather",))
    >>> [(edge.factor, edge.slow, target) for edge, target in leaving]
    [(2, 1, ((2, 1), (2, 1))), (2, 2, ((2, 1), (1, 1))), (4, 2, ((1, 1), (1, 1)))]
    """
    grid, slow = node
    free_slow = classes.hosts // math.prod(slow)
    free_fast = classes.devices_per_host * math.prod(slow) // math.prod(grid)
    for edge in edges(space, grid, kinds, dims):
        if edge.kind == "dynslice":
            most_slow, most_fast = free_slow, free_fast
        else:
            most_slow, most_fast = slow[edge.dim], grid[edge.dim] // slow[edge.dim]
        for slow_factor in divisors(math.gcd(edge.factor, most_slow)):
            if most_fast % (edge.factor // slow_factor):
                continue
            slow_after = slow if edge.kind == "dynslice" else divided(slow, edge.dim, slow_factor)
            if edge.kind != "allgather":
                slow_after = scaled(slow_after, edge.to, slow_factor)
            yield (edge if slow_factor == 1 else edge._replace(slow=slow_factor)), (edge.target, slow_after)
