"""The load of every link of a mesh or torus of devices under dimension-ordered routing.

A message is split evenly over all orders of the dimensions, and each part travels along one dimension after the other.
Along a ring it takes the shorter way; if both ways are equally long, one half takes each. A broadcast travels along the
tree of these routes and passes each link once; a reduction travels back along the same tree. So the loads do not depend
on the numbering or the direction of dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from redistrib.arith import Int64
from redistrib.cache import cached

Loads: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]  # integers, exact below 2^53


@dataclass(frozen=True)
class Torus:
    """Devices on the nodes of a grid, with one link in each direction between neighbours.

    Attributes:
        shape: number of nodes along each dimension.
        wraps: for each dimension, whether a link joins its last node and its first.
        coords: the node of each device.
        slices: the slice of each device; every slice is such a grid, and no link joins two slices. Empty for one slice.

    >>> ring, line = (Torus((4,), (wraps,), ((0,), (1,), (2,), (3,))) for wraps in (True, False))
    >>> sender, receiver = np.array([0]), np.array([3])
    >>> ring.most_sent(sender, receiver), line.most_sent(sender, receiver)
    (1.0, 1.0)
    >>> group = np.array([[0, 1, 2, 3]])
    >>> [(torus.most_gathered(group), torus.most_exchanged(group)) for torus in (ring, line)]
    [(1.5, 2.0), (3.0, 4.0)]
    """

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    coords: tuple[tuple[int, ...], ...]
    slices: tuple[int, ...] = ()

    @cached_property
    def links_in(self) -> tuple[int, int]:
        """The smallest and the largest number of links into a device."""
        sizes, node = np.array(self.shape, dtype=np.int64), self.coordinates
        ring = np.where(sizes > 1, np.array(self.wraps, dtype=np.int64), 0)
        links = np.where(ring, 2, (node > 0).astype(np.int64) + (node < sizes - 1)).sum(axis=1)
        return int(links.min(initial=0)), int(links.max(initial=0))

    @cached_property
    def shares_nodes(self) -> bool:
        """Whether two devices are on one node, so that no link is between them."""
        nodes = self.coords if not self.slices else list(zip(self.slices, self.coords, strict=True))
        return len(set(nodes)) < len(self.coords)

    def hops(self, sender: Int64, receiver: Int64) -> Int64:
        """Number of links from senders to receivers; between slices, a number larger than any within a slice.

        Args:
            sender, receiver: device numbers, in arrays that broadcast.
        """
        distance = np.abs(self.coordinates[sender] - self.coordinates[receiver])
        sizes = np.array(self.shape, dtype=np.int64)
        links: Int64 = np.where(self.wraps, np.minimum(distance, sizes - distance), distance).sum(axis=-1)
        return np.where(self._slice[sender] == self._slice[receiver], links, sizes.sum()) if self.slices else links

    def most_sent(self, sender: Int64, receiver: Int64, size: Loads | float = 1.0) -> float:
        """The load of the busiest link when pairs of devices send messages, in the unit of `size`.

        Args:
            sender, receiver: `[messages]` device numbers.
            size: one size for all messages, or `[messages]` sizes.
        """
        return float(self.sent(sender, receiver, size).max(initial=0.0)) / self.unit

    def most_exchanged(self, groups: Int64) -> float:
        """The load of the busiest link, in messages, when each member of a group sends a message to each other member.

        Args:
            groups: `[groups, members]` device numbers.
        """
        members = groups.shape[1]
        return self.most_sent(np.repeat(groups, members, axis=1).reshape(-1), np.tile(groups, (1, members)).reshape(-1))

    def most_gathered(self, groups: Int64) -> float:
        """The load of the busiest link, in messages, when each member of a group broadcasts a message to the others.

        A reduce-scatter, in which the others reduce their messages to each member, has the same load.

        Args:
            groups: `[groups, members]` device numbers.
        """
        return float(self.gathered(groups).max(initial=0.0)) / self.unit

    def sent(self, sender: Int64, receiver: Int64, size: Loads | float = 1.0) -> Loads:
        """`[links]` load of each link from messages between pairs of devices; divide by `unit` for the unit of `size`.

        The loads are integers if the sizes are. Arguments as in `most_sent`.
        """
        weight = np.broadcast_to(np.asarray(size, dtype=np.float64), len(sender))
        if self.slices:
            same_slice = self._slice[sender] == self._slice[receiver]
            sender, receiver, weight = sender[same_slice], receiver[same_slice], weight[same_slice]
        loads = []
        for axis in self._axes:
            segment = axis.leaving[:, sender] + axis.entering[:, receiver]  # number of (line, start, end)
            weights = np.broadcast_to(axis.share[:, None] * weight, segment.shape)
            count = np.bincount(segment.reshape(-1), weights.reshape(-1), axis.lines * axis.size**2)
            loads.append((count.reshape(axis.lines, -1) @ axis.route.reshape(axis.size**2, -1)).reshape(-1))
        return np.concatenate(loads) if loads else np.zeros(0)

    def gathered(self, groups: Int64) -> Loads:
        """`[links]` load of each link when each member of a group broadcasts a message; divide by `unit` for messages.

        Args:
            groups: `[groups, members]` device numbers.
        """
        members = groups.shape[1]
        sender, receiver = np.repeat(groups, members, axis=1).reshape(-1), np.tile(groups, (1, members)).reshape(-1)
        if self.slices:
            same_slice = self._slice[sender] == self._slice[receiver]
            sender, receiver = sender[same_slice], receiver[same_slice]
        loads = []
        for axis in self._axes:
            total = np.zeros(axis.lines * 2 * axis.size)
            for leaving, entering, share in zip(axis.leaving, axis.entering, axis.share.tolist(), strict=True):
                # The branches of each sender's tree along this dimension: one for each line of nodes it runs on.
                segment = leaving[sender] + entering[receiver]
                branch, end = np.divmod(segment, axis.size)
                key, row = np.unique(sender * (axis.lines * axis.size) + branch, return_inverse=True)
                reached = np.zeros((len(key), axis.size), dtype=bool)
                reached[row.reshape(-1), end] = True
                line, start = np.divmod(key % (axis.lines * axis.size), axis.size)
                carried = np.zeros((len(key), 2 * axis.size))
                for node in range(axis.size):
                    np.maximum(carried, axis.route[start, node] * reached[:, node, None], out=carried)
                link = line[:, None] * (2 * axis.size) + np.arange(2 * axis.size)
                total += share * np.bincount(link.reshape(-1), carried.reshape(-1), len(total))
            loads.append(total)
        return np.concatenate(loads) if loads else np.zeros(0)

    @cached_property
    def unit(self) -> int:
        """Number of parts of a message: two halves for each order of the dimensions."""
        return 2 * math.factorial(len(self._linked_dims))

    def subset(self, devices: list[int]) -> Torus:
        """The torus with some of the devices, renumbered from 0 in this order."""
        slices = tuple(self.slices[d] for d in devices) if self.slices else ()
        return Torus(self.shape, self.wraps, tuple(self.coords[d] for d in devices), slices)

    def __str__(self) -> str:
        """The shape, and the dimensions that are rings.

        >>> print(Torus((2, 4), (False, True), ((0, 0),)))
        2x4, 4 in a ring
        """
        rings = [str(size) for size, wraps in zip(self.shape, self.wraps, strict=True) if wraps]
        size = "x".join(map(str, self.shape))
        if len(rings) == len(self.shape):
            return f"{size} torus"
        return f"{size}, {' and '.join(rings)} in a ring" if rings else f"{size} mesh"

    @cached_property
    def coordinates(self) -> Int64:
        """`[devices, rank]` the node of each device."""
        return np.array(self.coords, dtype=np.int64).reshape(-1, len(self.shape))

    @cached_property
    def _slice(self) -> Int64:
        return np.array(self.slices, dtype=np.int64)

    @cached_property
    def _linked_dims(self) -> tuple[int, ...]:
        """The dimensions of more than one node, along which there are links."""
        return tuple(k for k, size in enumerate(self.shape) if size > 1)

    @cached_property
    def _axes(self) -> tuple[_Axis, ...]:
        return tuple(self._axis(k) for k in self._linked_dims)

    def _axis(self, dim: int) -> _Axis:
        others = [k for k in self._linked_dims if k != dim]
        size, devices = self.shape[dim], len(self.coords)
        lines = math.prod(self.shape[k] for k in others)
        first_line = np.zeros(devices, dtype=np.int64) if not self.slices else self._slice * lines
        total = lines * (int(self._slice.max(initial=0)) + 1 if self.slices else 1)
        leaving, entering, share = [], [], []
        for before in (set(dims) for count in range(len(others) + 1) for dims in combinations(others, count)):
            # A message on dimension `dim` has the receiver's coordinates on the dimensions before it, and the sender's
            # coordinates on those after it.
            of_sender, of_receiver, stride = first_line * size**2, np.zeros(devices, dtype=np.int64), size**2
            for k in others[::-1]:
                if k in before:
                    of_receiver = of_receiver + self.coordinates[:, k] * stride
                else:
                    of_sender = of_sender + self.coordinates[:, k] * stride
                stride *= self.shape[k]
            leaving.append(of_sender + self.coordinates[:, dim] * size)
            entering.append(of_receiver + self.coordinates[:, dim])
            share.append(math.factorial(len(before)) * math.factorial(len(others) - len(before)))
        route = _routes(size, self.wraps[dim])
        return _Axis(size, total, np.stack(leaving), np.stack(entering), np.array(share, dtype=np.float64), route)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The links along one dimension, and the routes over them for every set of dimensions that may come before it.

    A segment is the part of a route along this dimension: a line of nodes, and the start and end on it. Its number is
    the sum of a term of the sender and a term of the receiver.

    Attributes:
        size: number of nodes along the dimension.
        lines: number of lines of nodes along the dimension.
        leaving, entering: `[sets, devices]` terms of sender and receiver in the number of a segment.
        share: `[sets]` number of orders in which exactly the dimensions of the set come before this one.
        route: `[size, size, 2 * size]` halves of a message from start to end that pass each link; links up come first.
    """

    size: int
    lines: int
    leaving: Int64
    entering: Int64
    share: Loads
    route: Loads


@cached(64)
def _routes(size: int, wraps: bool) -> Loads:
    """`[size, size, 2 * size]` halves of a message, from a start to an end on a line or ring, that pass each link.

    Link k leads from node k up to the next node, link `size + k` leads from node k down.
    """
    route = np.zeros((size, size, 2 * size))
    for start in range(size):
        for end in range(size):
            up, down = ((end - start) % size, (start - end) % size) if wraps else (end - start, start - end)
            halves = (2, 0) if up > 0 and (down < 0 or up < down) else (0, 2) if up != down else (1, 1)
            for k in range(up if halves[0] else 0):
                route[start, end, (start + k) % size] = halves[0]
            for k in range(down if halves[1] else 0):
                route[start, end, size + (start - k) % size] = halves[1]
    return route
