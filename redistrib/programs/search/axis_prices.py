"""Prices of moves on large meshes: collectives along mesh axes, in closed form, for any number of devices.

A plan names its groups device by device, so it takes longer to find and to price the more devices there are. Here a
move is a few collectives, each over all groups of some mesh axes at once: slice, reduce, all-to-all, permute, gather.
Each is the price that `LatencyPrices` gives the same step; where a synthesized plan is faster, the price is above that
plan's. Sizes are in bytes per device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from redistrib.arith import divisors
from redistrib.cost.figures import Figures
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.dtypes import packed_bytes
from redistrib.programs.schedule.graph_cuts import cuts_of


class Collective(NamedTuple):
    """One collective of a move.

    Attributes:
        kind: its name, as of the steps of plans.
        axes: of the mesh, whose devices form a group.
        before, after: bytes of a device's tile.
        received: bytes that a device takes in from others.
        buffers: bytes of a device's buffers beside these tiles, as `redistrib.plans.memory` counts them.
    """

    kind: str
    axes: tuple[str, ...]
    before: float
    after: float
    received: float
    buffers: float


class Level(NamedTuple):
    """Links of one speed in a group.

    Attributes:
        speed: bytes per second that a device receives over them.
        members: devices that they join.
    """

    speed: float
    members: int


def _per_byte(levels: tuple[Level, ...]) -> float:
    """Seconds in which a device receives a byte from every other member of a group, over the slowest link between."""
    total, inner = 0.0, math.prod(level.members for level in levels)
    for level in levels:
        inner //= level.members
        total += (level.members - 1) * inner / level.speed
    return total


def _in_turn(members: int, seconds: Callable[[int, int], float]) -> float:
    """The least seconds of collectives one after the other, the numbers of whose members multiply to `members`.

    Args:
        members: of all together.
        seconds: of one, by the product of the members of those before, and by its members.
    """
    least = {1: 0.0}
    for count in divisors(members)[1:]:
        least[count] = min(least[k] + seconds(k, count // k) for k in least if count % k == 0)
    return least[members]


@dataclass
class AxisPrices:
    """The prices of collectives along the axes of a mesh.

    Attributes:
        mesh: of all values.
        figures: of the links.
        bytes_of: bytes of so many elements of a type, those of the machine.
    """

    mesh: Mesh
    figures: Figures
    bytes_of: Callable[[int, str], int] = packed_bytes
    _levels: dict[tuple[str, ...], tuple[Level, ...]] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Devices along each axis."""
        return {axis.name: axis.size for axis in self.mesh.axes}

    @cached_property
    def strides(self) -> dict[str, int]:
        """Device numbers between neighbours along each axis."""
        by_axis, stride = {}, 1
        for axis in reversed(self.mesh.axes):
            by_axis[axis.name] = stride
            stride *= axis.size
        return by_axis

    # ------------------------------------------------------------------------------------------ links

    def members(self, axes: Collection[str]) -> int:
        """Devices of a group."""
        return math.prod(self.sizes[axis] for axis in axes)

    def levels(self, axes: tuple[str, ...]) -> tuple[Level, ...]:
        """The links of a group, the slowest first; axes, and parts of axes, of one speed are one level."""
        if axes not in self._levels:
            members_at: dict[float, int] = {}
            for axis in axes:
                for speed, members in self._parts(axis):
                    if members > 1:
                        members_at[speed] = members_at.get(speed, 1) * members
            self._levels[axes] = tuple(Level(speed, members_at[speed]) for speed in sorted(members_at))
        return self._levels[axes]

    def _parts(self, axis: str) -> list[tuple[float, int]]:
        """The speeds of an axis, each with the number of devices along it that links of this speed join."""
        figures, size = self.figures, self.sizes[axis]
        if any(name in figures.axis_bandwidth for name in self.sizes):
            return [(figures.axis_bandwidth.get(axis, figures.bandwidth), size)]
        host = figures.devices_per_host
        if figures.slow_bandwidth is None or host is None or self.mesh.size <= host:
            return [(figures.bandwidth, size)]
        stride = self.strides[axis]  # hosts have consecutive devices
        near = math.gcd(size, host // stride) if host % stride == 0 else 1
        return [(figures.slow_bandwidth, size // near), (figures.bandwidth, near)]

    # ------------------------------------------------------------------------------------------ collectives

    def seconds(self, collective: Collective) -> float:
        """Seconds of a collective, as in `LatencyPrices.step`: at once, level by level, or in turn, as is fastest."""
        levels = self.levels(collective.axes)
        match collective.kind:
            case "slice" | "unreduce":
                return collective.after / self.figures.memory_bandwidth
            case "allgather":
                return self._gathered(levels, collective.before)
            case "alltoall":
                return self._exchanged(levels, collective.before)
            case "allpermute":
                return self._permuted(levels, collective.before)
            case "reduce_scatter":
                return self._scattered("reduce_scatter", levels, collective.before)
            case _:
                return self._reduced(levels, collective.before)

    def _permuted(self, levels: tuple[Level, ...], size: float) -> float:
        """A permute of tiles, over the slowest links."""
        slowest = levels[0].speed if levels else self.figures.bandwidth
        latency = self.figures.latency["allpermute"].seconds(2)
        return latency + size / slowest + size / self.figures.memory_bandwidth

    def _exchanged(self, levels: tuple[Level, ...], size: float) -> float:
        """An all-to-all; over links of one speed several with a permute after them have shorter latencies."""
        latency, copied = self.figures.latency["alltoall"], 2 * size / self.figures.memory_bandwidth
        members = math.prod(level.members for level in levels)
        at_once = latency.seconds(members) + size / members * _per_byte(levels) + copied
        if len(levels) > 1:
            return at_once
        (speed, _), permuted = levels[0], self._permuted(levels, size)
        in_turn = _in_turn(members, lambda _, part: latency.seconds(part) + size / part * (part - 1) / speed + copied)
        return min(at_once, in_turn + permuted)

    def _gathered(self, levels: tuple[Level, ...], size: float) -> float:
        """An all-gather; level by level slow links carry small tiles. Over links of one speed several in turn have
        shorter latencies."""
        latency, copy = self.figures.latency["allgather"], 1 / self.figures.memory_bandwidth
        if len(levels) == 1:
            speed = levels[0].speed
            return _in_turn(
                levels[0].members,
                lambda before, part: latency.seconds(part) + size * before * ((part - 1) / speed + part * copy),
            )
        members = math.prod(level.members for level in levels)
        at_once = latency.seconds(members) + size * _per_byte(levels) + size * members * copy
        by_level = 0.0
        for level in levels:
            by_level += latency.seconds(level.members) + size * _per_byte((level,)) + size * level.members * copy
            size *= level.members
        return min(at_once, by_level)

    def _scattered(self, kind: str, levels: tuple[Level, ...], size: float) -> float:
        """A reduce-scatter; level by level the fast links come first."""
        latency, copy = self.figures.latency, 1 / self.figures.memory_bandwidth
        price = latency.get(kind, latency.get("reduce_scatter", latency["alltoall"]))
        members = math.prod(level.members for level in levels)
        at_once = price.seconds(members) + size / members * _per_byte(levels) + 3 * size * copy
        by_level = 0.0
        for level in reversed(levels):
            by_level += price.seconds(level.members) + size / level.members * _per_byte((level,)) + 3 * size * copy
            size /= level.members
        return min(at_once, by_level)

    def _reduced(self, levels: tuple[Level, ...], size: float) -> float:
        """An all-reduce: a reduce-scatter and an all-gather of the parts."""
        latency = self.figures.latency
        members = math.prod(level.members for level in levels)
        is_whole = "all_reduce" in latency
        seconds = self._scattered("all_reduce" if is_whole else "reduce_scatter", levels, size)
        seconds += self._gathered(levels, size / members)
        return seconds - (latency["allgather"].seconds(members) if is_whole else 0.0)

    # ------------------------------------------------------------------------------------------ moves

    def collectives(self, source: DistType, target: DistType, dtype: str) -> list[Collective]:
        """The collectives that convert one type to another, in order.

        Slices come first and gathers last, so that the others move the smallest tiles.
        """
        at, to = cuts_of(source), cuts_of(target)
        size = float(self.bytes_of(source.local_size, dtype))
        sequence: list[Collective] = []

        def add(kind: str, axes: list[str], factor: float = 1.0) -> None:
            nonlocal size
            axes = [axis for axis in axes if self.sizes[axis] > 1]
            if not axes:
                return
            members, group = self.members(axes), tuple(sorted(axes))
            after = size * (members if factor > 1 else 1 / members if factor < 1 else 1)
            part = size / members
            received = {
                "allgather": (members - 1) * size,
                "alltoall": (members - 1) * part,
                "reduce_scatter": (members - 1) * part,
                "all_reduce": 2 * (members - 1) * part,
                "allpermute": size,
            }.get(kind, 0.0)
            buffers = {
                "allgather": 0.0 if _leads({at[axis] for axis in axes if axis in at}, target) else after,
                "alltoall": 2 * size,
                "reduce_scatter": size,
                "all_reduce": size,
                "allpermute": size,
            }.get(kind, 0.0)
            sequence.append(Collective(kind, group, size, after, received, buffers))
            size = after

        summed = [axis for axis in source.partial if axis not in target.partial]
        add("slice", [axis for axis in to if axis not in at and axis not in source.partial], 0.5)
        add("reduce_scatter", [axis for axis in summed if axis in to], 0.5)
        add("all_reduce", [axis for axis in summed if axis not in to])
        moved = [axis for axis in at if axis in to and at[axis] != to[axis]]
        add("alltoall", moved)
        add("allpermute", self._misplaced(source, target))
        parts = [axis for axis in at if axis in target.partial]  # zeros take the place of the others' tiles
        add("allgather", [axis for axis in at if axis not in to and axis not in parts], 2.0)
        add("unreduce", parts, 2.0)
        add("unreduce", [axis for axis in target.partial if axis not in source.partial and axis not in at])
        return sequence

    def _misplaced(self, source: DistType, target: DistType) -> list[str]:
        """The axes of dimensions whose tiles lie in another order: not the most minor is sliced, or gathered."""
        misplaced: list[str] = []
        for before, after in zip(source.dims, target.dims, strict=True):
            common = [axis for axis in before.axes if axis in after.axes]
            is_prefix = list(before.axes[len(before.axes) - len(common) :]) == common
            if not is_prefix or list(after.axes[len(after.axes) - len(common) :]) != common:
                misplaced += [axis for axis in (*before.axes, *after.axes) if axis not in misplaced]
        return misplaced


def _leads(grown: set[int], target: DistType) -> bool:
    """Whether a gather joins whole tiles one after the other, and copies nothing into place."""
    return len(grown) == 1 and all(dim.tile == 1 for dim in target.dims[: min(grown)])
