"""The latency-bandwidth model: what a step takes in seconds.

A collective takes a latency that depends on its kind and group size, the bytes its busiest device receives over the
bandwidth of the links they cross, and the local copies around it over the bandwidth of memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import floordiv
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from redistrib.errors import PartialTypeError, ProfileError
from redistrib.lang.mesh import Mesh
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.synthesis.cost import CostModel, Outline
from redistrib.theory.semantics import Int64, number_of
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace, nested

FORMAT = "redistrib-profile"
VERSION = 1
KINDS = ("allgather", "alltoall", "allpermute")


@dataclass(frozen=True)
class Latency:
    """Seconds before the first byte: `launch + member * (group size - 1)`."""

    launch: float
    member: float = 0.0

    def seconds(self, members: int) -> float:
        """Latency of a collective over `members` devices."""
        return self.launch + self.member * (members - 1)


@lru_cache(maxsize=1 << 10)
def _calls_at_least(latency: Latency, product: int) -> float:
    """What no number of collectives whose group sizes multiply to at least `product` goes below."""
    least = latency.seconds(product)
    for calls in range(2, product.bit_length()):
        # A sum of equal sizes is least, by the inequality of arithmetic and geometric means.
        least = min(least, calls * (latency.launch + latency.member * (product ** (1 / calls) - 1)))
    return least


@dataclass(frozen=True)
class LatencyBandwidth(CostModel):
    """Seconds by latency, links and local copies.

    Attributes:
        name: recorded in plans.
        latency: per kind ("allgather", "alltoall", "allpermute"; a round of an exchange is an "allpermute").
        bandwidth: bytes per second a device receives over the fast links.
        memory_bandwidth: bytes per second of a local copy (read and written once).
        slow_bandwidth: bytes per second a device receives over links between hosts; None where there are none.
        devices_per_host: consecutive device numbers that share fast links.
        axis_bandwidth: bytes per second per mesh axis, for meshes whose axes have links of different speed; an
            axis not named has `bandwidth`. Takes the place of `devices_per_host`; bound to a mesh by `on`.
        one_call: whether the backend carries a whole exchange in one call, as MPI's Alltoallw and the ragged
            all-to-all of TPUs and GPUs do, and not in rounds; exchanges are then planned as `"ragged"`.
        source: where the figures come from.
    """

    name: str
    latency: Mapping[str, Latency]
    bandwidth: float
    memory_bandwidth: float
    slow_bandwidth: float | None = None
    devices_per_host: int | None = None
    axis_bandwidth: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    one_call: bool = False
    source: str = ""
    _coordinates: Int64 | None = field(default=None, repr=False, compare=False)
    _axis_speed: tuple[float, ...] = field(default=(), repr=False, compare=False)
    _itemsize: int = field(default=1, repr=False, compare=False)

    unit: ClassVar[str] = "seconds"
    normal_forms_suffice: ClassVar[bool] = False

    def __post_init__(self) -> None:
        missing = [kind for kind in KINDS if kind not in self.latency]
        if missing:
            raise ProfileError(
                f"profile {self.name!r} has no latency for {missing[0]!r}; it needs one for each of {KINDS}"
            )
        speeds = [self.bandwidth, self.memory_bandwidth, *self.axis_bandwidth.values()]
        if self.slow_bandwidth is not None:
            speeds.append(self.slow_bandwidth)
        if any(not (s > 0 and math.isfinite(s)) for s in speeds):
            raise ProfileError(
                f"profile {self.name!r} has a bandwidth that is not a positive number of bytes per second"
            )

    def on(self, mesh: Mesh) -> LatencyBandwidth:
        """This model with its axis bandwidths read on a mesh."""
        if not any(axis.name in self.axis_bandwidth for axis in mesh.axes):
            return self
        speed = tuple(float(self.axis_bandwidth.get(axis.name, self.bandwidth)) for axis in mesh.axes)
        return replace(self, _coordinates=mesh.coordinates, _axis_speed=speed)

    def hosts(self, devices: int) -> Int64 | None:
        """`[devices]` numbers of the groups that fast links join; None where all links are alike."""
        if self._coordinates is not None:
            slowest = min(self._axis_speed)
            slow = [k for k, speed in enumerate(self._axis_speed) if speed == slowest]
            if len(slow) == len(self._axis_speed):
                return None
            sizes = tuple(int(self._coordinates[:, k].max()) + 1 for k in slow)
            return number_of(self._coordinates[:, slow], sizes)
        if self.slow_bandwidth is None or self.devices_per_host is None or devices <= self.devices_per_host:
            return None
        return np.arange(devices, dtype=np.int64) // self.devices_per_host

    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        after = space.local_size(edge.target)
        if edge.kind == "dynslice":
            return self._copy(after * self._itemsize)
        share, copies = after * self._itemsize / edge.factor, 1 if edge.kind == "allgather" else 2
        near = edge.factor // edge.slow
        # What the step will be priced at where its groups cross hosts no more than the edge says.
        return float(
            self.latency[edge.kind].seconds(edge.factor)
            + (near - 1) * share / self._fastest
            + (edge.factor - near) * share / self._slowest
            + self._copy(copies * after * self._itemsize)
        )

    def reseat(self, space: WeakSpace, grid: Grid) -> float:
        return self._permute(space.local_size(grid), self._slowest)

    def for_items(self, itemsize: int) -> LatencyBandwidth:
        return self if itemsize == self._itemsize else replace(self, _itemsize=itemsize)

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        return self._permute(min(space.local_size(grid) for grid in grids), self._fastest)

    def _permute(self, elements: int, speed: float) -> float:
        """A permute of tiles of so many elements over links of one speed."""
        size = elements * self._itemsize
        return self.latency["allpermute"].seconds(2) + size / speed + self._copy(size)

    def rest_at_least(self, space: WeakSpace, grid: Grid, target: Grid) -> float:
        # Every dimension to be cut less needs collectives of its own. The last one writes a whole tile, and where no
        # replica could be sliced first, the first one copies its tile twice or gathers twice as much.
        gather, shuffle = self.latency["allgather"], self.latency["alltoall"]
        seconds = 0.0
        for g, t in zip(grid, target, strict=True):
            if t % g:
                less = g // math.gcd(g, t)
                seconds += min(_calls_at_least(gather, less), _calls_at_least(shuffle, less))
        size = copied = space.local_size(target)
        if not seconds:  # slices do it
            return 0.0 if grid == target else self._copy(size * self._itemsize)
        if math.prod(grid) == space.devices:
            copied = max(size, 2 * space.local_size(grid))
        moved: int = size - math.prod(map(floordiv, space.shape, map(max, grid, target)))
        return seconds + moved * self._itemsize / self._fastest + self._copy(copied * self._itemsize)

    def outline_at_least(self, space: WeakSpace, outline: Outline) -> float:
        part = space.local_size(outline.part) * self._itemsize
        seconds = 0.0
        if outline.before != outline.cut:
            seconds += self._copy(space.local_size(outline.cut) * self._itemsize)
        if outline.cut != outline.part or outline.way != "any":
            moved = part - outline.held(space) * self._itemsize
            seconds += moved / self._fastest + self._exchange_at_least(outline, part, moved, space)
        if outline.part != outline.after:
            factor = math.prod(outline.part) // math.prod(outline.after)
            seconds += self.edge(WeakEdge("allgather", outline.part, outline.after, 0, 0, factor), space)
        return seconds

    def _exchange_at_least(self, outline: Outline, size: int, moved: int, space: WeakSpace) -> float:
        """Latency and copies of an exchange to tiles of `size` bytes, of which every device receives `moved`."""
        dense, permute = self.latency["alltoall"].seconds(outline.chunks), self.latency["allpermute"].seconds(2)
        rounds = max(1, outline.chunks - 1) * permute
        in_rounds = (min(rounds, dense) if self.one_call else rounds) + self._copy(size + 2 * moved)
        if outline.way == "rounds":
            return in_rounds
        if outline.way == "permute":
            whole = min(size, space.local_size(outline.cut) * self._itemsize)
            return dense + permute + whole / self._fastest + self._copy(2 * size + whole)
        if outline.chunks == 1:
            return self._copy(size)  # a slice may do
        ways = [in_rounds]
        if nested(outline.cut, outline.part):
            ways.append(dense + self._copy(2 * size))
            ways.append(self.latency["allgather"].seconds(outline.chunks) + self._copy(size))  # each may cut its part
        return min(ways)

    @cached_property
    def _fastest(self) -> float:
        return max((self.bandwidth, *self._axis_speed))

    @cached_property
    def _slowest(self) -> float:
        return min((self.bandwidth, *self._axis_speed, *([] if self.slow_bandwidth is None else [self.slow_bandwidth])))

    def step(self, step: Step, itemsize: int) -> float:
        match step:
            case DynSlice():
                return self._copy(step.after.tile_size * itemsize)
            case AllGather():
                share = step.before.tile_size * itemsize
                return self._grouped(step.groups, "allgather", share) + self._copy(step.after.tile_size * itemsize)
            case AllToAll():
                share = math.prod(step.share) * itemsize
                copied = share * step.group_size + step.after.tile_size * itemsize
                return self._grouped(step.groups, "alltoall", share) + self._copy(copied)
            case AllPermute():
                size = step.before.tile_size * itemsize
                return self._paired(step.pairs, size) + self._copy(size)
            case Exchange():
                return self._rounds(step, itemsize)
            case _:
                raise PartialTypeError(f"the cost model {self.name}", f"a {step.kind}")

    def _rounds(self, step: Exchange, itemsize: int) -> float:
        seconds = self._copy(step.after.tile_size * itemsize)
        if not len(step.shares):
            return seconds
        sizes = step.round_sizes()
        # Each shape of a round is cut out and written on its own.
        shapes = step.shares.shapes()
        seconds += self._copy(2 * sum(size * count for size, count in zip(sizes, shapes, strict=True)) * itemsize)
        if self._uniform_links(None):
            seconds += len(sizes) * self.latency["allpermute"].seconds(2) + sum(sizes) * itemsize / self.bandwidth
        else:
            order = np.argsort(step.shares.round, kind="stable")
            stops = np.flatnonzero(np.diff(step.shares.round[order])) + 1
            for rows, size in zip(np.split(order, stops), sizes, strict=True):
                seconds += self._paired(
                    np.stack([step.shares.src[rows], step.shares.dst[rows]], axis=1), size * itemsize
                )
        if step.realisation == "ragged":
            seconds -= self.latency["allpermute"].seconds(2) * step.shares.rounds
            seconds += self.latency["alltoall"].seconds(step.shares.rounds + 1)
        return seconds

    def _copy(self, size: int) -> float:
        return float(size / self.memory_bandwidth)

    def _grouped(self, groups: Int64, kind: str, share: int) -> float:
        """A collective in which every member receives `share` bytes from every other."""
        members = groups.shape[1]
        seconds = self.latency[kind].seconds(members)
        if self._uniform_links(int(groups.size)):
            return float(seconds + (members - 1) * share / self.bandwidth)
        worst = 0.0
        for k in range(members):
            per_byte = self._seconds_per_byte(groups, np.broadcast_to(groups[:, k : k + 1], groups.shape))
            worst = max(worst, float(per_byte.sum(axis=1).max()))
        return seconds + share * worst

    def _paired(self, pairs: Int64, size: int) -> float:
        seconds = self.latency["allpermute"].seconds(2)
        if not len(pairs):
            return 0.0
        if self._uniform_links(None):
            return seconds + size / self.bandwidth
        return seconds + size * float(self._seconds_per_byte(pairs[:, 0], pairs[:, 1]).max())

    def _uniform_links(self, devices: int | None) -> bool:
        if self._coordinates is not None:
            return len(set(self._axis_speed)) == 1 and self._axis_speed[0] == self.bandwidth
        if self.slow_bandwidth is None or self.devices_per_host is None:
            return True
        return devices is not None and devices <= self.devices_per_host

    def _seconds_per_byte(self, sender: Int64, receiver: Int64) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Inverse bandwidth of the slowest link between two devices; zero from a device to itself."""
        slowest = np.zeros(np.broadcast(sender, receiver).shape)
        if self._coordinates is not None:
            for k, speed in enumerate(self._axis_speed):
                crosses = self._coordinates[sender, k] != self._coordinates[receiver, k]
                slowest = np.where(crosses, np.maximum(slowest, 1 / speed), slowest)
            return slowest
        assert self.slow_bandwidth is not None and self.devices_per_host is not None
        away = sender // self.devices_per_host != receiver // self.devices_per_host
        return np.where(away, 1 / self.slow_bandwidth, np.where(sender == receiver, 0.0, 1 / self.bandwidth))

    def to_json(self) -> str:
        """The profile as JSON text; `from_json` reads it back."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "name": self.name,
                "latency": {kind: [lat.launch, lat.member] for kind, lat in self.latency.items()},
                "bandwidth": self.bandwidth,
                "memory_bandwidth": self.memory_bandwidth,
                "slow_bandwidth": self.slow_bandwidth,
                "devices_per_host": self.devices_per_host,
                "axis_bandwidth": dict(self.axis_bandwidth),
                "one_call": self.one_call,
                "source": self.source,
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> LatencyBandwidth:
        """A profile from JSON text.

        Raises:
            ProfileError: if the text is no profile of this version.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ProfileError(f"a profile must be JSON, but {error}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
            raise ProfileError(f"this is no {FORMAT} of version {VERSION}; write one with `redistrib calibrate`")
        try:
            return cls(
                name=str(data["name"]),
                latency={kind: Latency(float(a), float(b)) for kind, (a, b) in data["latency"].items()},
                bandwidth=float(data["bandwidth"]),
                memory_bandwidth=float(data["memory_bandwidth"]),
                slow_bandwidth=None if data["slow_bandwidth"] is None else float(data["slow_bandwidth"]),
                devices_per_host=None if data["devices_per_host"] is None else int(data["devices_per_host"]),
                axis_bandwidth={str(k): float(v) for k, v in data["axis_bandwidth"].items()},
                one_call=bool(data.get("one_call", False)),
                source=str(data["source"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProfileError(f"the profile is malformed: {error!r}; write one with `redistrib calibrate`") from None
