"""What travels over which link of a mesh or torus of devices, under dimension-ordered routing.

A message is cut evenly over all orders of the dimensions; each part goes along one dimension after the other, the
shorter way round where a dimension is a ring, and by halves where both ways are as long. What one device sends to
several goes along the tree of those routes, over each link once; sums come back the same way. So no link is loaded
more or less because dimensions are numbered, or run, the other way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from redistrib.arith import Int64

Loads: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]  # integers, exact below 2^53


@dataclass(frozen=True)
class Torus:
    """Devices on the nodes of a grid, each linked with its neighbours, one link in each direction.

    Attributes:
        shape: nodes along each dimension.
        wraps: of each dimension, whether its last node is linked with its first.
        coords: of each device, the node that it is on.
        slices: of each device, which of several such grids it is on, that no link joins; empty where there is one.

    >>> ring, line = (Torus((4,), (wraps,), ((0,), (1,), (2,), (3,))) for wraps in (True, False))
    >>> one = np.array([0]), np.array([3])
    >>> ring.most_sent(*one), line.most_sent(*one)
    (1.0, 1.0)
    >>> everyone = np.array([[0, 1, 2, 3]])
    >>> [(torus.most_gathered(everyone), torus.most_exchanged(everyone)) for torus in (ring, line)]
    [(1.5, 2.0), (3.0, 4.0)]
    """

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    coords: tuple[tuple[int, ...], ...]
    slices: tuple[int, ...] = ()

    @cached_property
    def links_in(self) -> tuple[int, int]:
        """Links over which a device takes in what it receives: at least, and at most."""
        sizes, ends = np.array(self.shape, dtype=np.int64), self.coordinates
        ring = np.where(sizes > 1, np.array(self.wraps, dtype=np.int64), 0)
        inside = np.where(ring, 2, (ends > 0).astype(np.int64) + (ends < sizes - 1)).sum(axis=1)
        return int(inside.min(initial=0)), int(inside.max(initial=0))

    @cached_property
    def crowded(self) -> bool:
        """Whether some devices share a node, and so pass no link between them."""
        where = self.coords if not self.slices else list(zip(self.slices, self.coords, strict=True))
        return len(set(where)) < len(self.coords)

    def hops(self, sender: Int64, receiver: Int64) -> Int64:
        """Links from devices to others, by arrays that broadcast; from slice to slice, more than within any."""
        away = np.abs(self.coordinates[sender] - self.coordinates[receiver])
        sizes = np.array(self.shape, dtype=np.int64)
        links: Int64 = np.where(self.wraps, np.minimum(away, sizes - away), away).sum(axis=-1)
        return np.where(self._slice[sender] == self._slice[receiver], links, sizes.sum()) if self.slices else links

    def most_sent(self, sender: Int64, receiver: Int64, size: Loads | float = 1.0) -> float:
        """What the busiest link carries where pairs of devices send messages, in units of their size.

        Args:
            sender, receiver: `[messages]` device numbers.
            size: of all messages, or `[messages]` of each.
        """
        return float(self.sent(sender, receiver, size).max(initial=0.0)) / self.unit

    def most_exchanged(self, groups: Int64) -> float:
        """The same where each member of a group, `[groups, members]`, sends a message to each other one."""
        members = groups.shape[1]
        return self.most_sent(np.repeat(groups, members, axis=1).reshape(-1), np.tile(groups, (1, members)).reshape(-1))

    def most_gathered(self, groups: Int64) -> float:
        """The same where each member of a group sends one message to all others, or all others add theirs up for it."""
        return float(self.gathered(groups).max(initial=0.0)) / self.unit

    def sent(self, sender: Int64, receiver: Int64, size: Loads | float = 1.0) -> Loads:
        """`[links]` what each link carries of messages between pairs of devices, in parts of which `unit` make one
        unit of their size; integers where sizes are."""
        weight = np.broadcast_to(np.asarray(size, dtype=np.float64), len(sender))
        if self.slices:
            inside = self._slice[sender] == self._slice[receiver]
            sender, receiver, weight = sender[inside], receiver[inside], weight[inside]
        loads = []
        for axis in self._axes:
            cell = axis.leaving[:, sender] + axis.entering[:, receiver]
            several = np.broadcast_to(axis.share[:, None] * weight, cell.shape)
            count = np.bincount(cell.reshape(-1), several.reshape(-1), axis.lines * axis.size**2)
            loads.append((count.reshape(axis.lines, -1) @ axis.route.reshape(axis.size**2, -1)).reshape(-1))
        return np.concatenate(loads) if loads else np.zeros(0)

    def gathered(self, groups: Int64) -> Loads:
        """`[links]` what each link carries where each member of a group, `[groups, members]`, sends one message to all
        others, in the same parts."""
        members = groups.shape[1]
        sender, receiver = np.repeat(groups, members, axis=1).reshape(-1), np.tile(groups, (1, members)).reshape(-1)
        if self.slices:
            inside = self._slice[sender] == self._slice[receiver]
            sender, receiver = sender[inside], receiver[inside]
        loads = []
        for axis in self._axes:
            total = np.zeros(axis.lines * 2 * axis.size)
            for leaving, entering, share in zip(axis.leaving, axis.entering, axis.share.tolist(), strict=True):
                # The branches of each sender's tree that run along this dimension, one for each line that it uses.
                cell = leaving[sender] + entering[receiver]
                branch, at = np.divmod(cell, axis.size)
                key, which = np.unique(sender * (axis.lines * axis.size) + branch, return_inverse=True)
                reached = np.zeros((len(key), axis.size), dtype=bool)
                reached[which.reshape(-1), at] = True
                line, start = np.divmod(key % (axis.lines * axis.size), axis.size)
                carried = np.zeros((len(key), 2 * axis.size))
                for onto in range(axis.size):
                    np.maximum(carried, axis.route[start, onto] * reached[:, onto, None], out=carried)
                link = line[:, None] * (2 * axis.size) + np.arange(2 * axis.size)
                total += share * np.bincount(link.reshape(-1), carried.reshape(-1), len(total))
            loads.append(total)
        return np.concatenate(loads) if loads else np.zeros(0)

    @cached_property
    def unit(self) -> int:
        """Parts that a message is cut into: two halves of each order of the dimensions."""
        return 2 * math.factorial(len(self._long))

    def of(self, devices: list[int]) -> Torus:
        """Some of the devices, numbered on their own."""
        slices = tuple(self.slices[d] for d in devices) if self.slices else ()
        return Torus(self.shape, self.wraps, tuple(self.coords[d] for d in devices), slices)

    def __str__(self) -> str:
        """Its shape.

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
        """`[devices, rank]` the node that each device is on."""
        return np.array(self.coords, dtype=np.int64).reshape(-1, len(self.shape))

    @cached_property
    def _slice(self) -> Int64:
        return np.array(self.slices, dtype=np.int64)

    @cached_property
    def _long(self) -> tuple[int, ...]:
        """The dimensions that have links."""
        return tuple(k for k, size in enumerate(self.shape) if size > 1)

    @cached_property
    def _axes(self) -> tuple[_Axis, ...]:
        return tuple(self._axis(k) for k in self._long)

    def _axis(self, along: int) -> _Axis:
        others = [k for k in self._long if k != along]
        size, devices = self.shape[along], len(self.coords)
        lines = math.prod(self.shape[k] for k in others)
        place = np.zeros(devices, dtype=np.int64) if not self.slices else self._slice * lines
        total = lines * (int(self._slice.max(initial=0)) + 1 if self.slices else 1)
        leaving, entering, share = [], [], []
        for first in (set(some) for count in range(len(others) + 1) for some in combinations(others, count)):
            # Dimensions before this one are where they should be by now; those after it are still where they were.
            left, entered, stride = place * size**2, np.zeros(devices, dtype=np.int64), size**2
            for k in others[::-1]:
                if k in first:
                    entered = entered + self.coordinates[:, k] * stride
                else:
                    left = left + self.coordinates[:, k] * stride
                stride *= self.shape[k]
            leaving.append(left + self.coordinates[:, along] * size)
            entering.append(entered + self.coordinates[:, along])
            share.append(math.factorial(len(first)) * math.factorial(len(others) - len(first)))
        route = _routes(size, self.wraps[along])
        return _Axis(size, total, np.stack(leaving), np.stack(entering), np.array(share, dtype=np.float64), route)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The links along one dimension, by the sets of dimensions that a message may have gone along before it.

    Attributes:
        size: nodes along it.
        lines: rows of nodes along it.
        leaving, entering: `[sets, devices]` what sender and receiver add to the number of (line, start, end).
        share: `[sets]` orders of the dimensions that begin with each set.
        route: `[size, size, 2 * size]` halves of a message from one node to another that pass each link, up first.
    """

    size: int
    lines: int
    leaving: Int64
    entering: Int64
    share: Loads
    route: Loads


@lru_cache(maxsize=64)
def _routes(size: int, wraps: bool) -> Loads:
    """`[size, size, 2 * size]` halves of a message from one node of a line or ring to another that pass each link.

    Link k leads from node k up to the next, link `size + k` from node k down.
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
