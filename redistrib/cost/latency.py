"""The latency-bandwidth model: what a step takes in seconds.

A collective takes a latency that depends on its kind and group size, the bytes its busiest device receives over the
bandwidth of the links they cross, and the local copies around it over the bandwidth of memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import floordiv
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from redistrib.cost.collective import Latency as Latency
from redistrib.cost.collective import calls_at_least
from redistrib.cost.fields import figure, figures, typed
from redistrib.cost.model import CostModel, PhaseGrids, Prices
from redistrib.errors import ProfileError
from redistrib.errors.base import cut, shown
from redistrib.lang.mesh import Mesh
from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Step,
    Unreduce,
)
from redistrib.theory.placement import Int64
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace, nested

FORMAT = "redistrib-profile"
VERSION = 1
KINDS = ("allgather", "alltoall", "allpermute")
REDUCTIONS = ("reduce_scatter", "all_reduce")  # a profile may do without: then as an all-to-all, and a gather

_LARGEST = 1e30  # of a figure, and the inverse of the smallest bandwidth: sums and ratios stay finite
_MOST_DEVICES = 2**20  # of a mesh


@dataclass(frozen=True)
class LatencyBandwidth(CostModel):
    """Seconds by latency, links and local copies.

    Attributes:
        name: recorded in plans.
        latency: per kind ("allgather", "alltoall", "allpermute"; a round of an exchange is an "allpermute"). Those of
            "reduce_scatter" and "all_reduce" may be missing: then the one takes that of an all-to-all, the other that
            of a reduce-scatter and an all-gather.
        bandwidth: bytes per second a device receives over the fast links.
        memory_bandwidth: bytes per second of a local copy (read and written once).
        slow_bandwidth: bytes per second a device receives over links between hosts; None where there are none.
        devices_per_host: consecutive device numbers that share fast links, where nothing says where devices are.
        axis_bandwidth: bytes per second per mesh axis, for meshes whose axes have links of different speed; an
            axis not named has `bandwidth`. Takes the place of `devices_per_host`.
        fused_exchange: whether the backend carries a whole exchange in one call, as MPI's Alltoallw and the ragged
            all-to-all of TPUs and GPUs do, and not in rounds; exchanges are then planned as `"ragged"`.
        source: where the figures come from.
        transports: seconds a launch, a further member and a byte received, by name of each transport of a backend that
            has several and chooses by them; plans are not priced with these.
    """

    name: str
    latency: Mapping[str, Latency]
    bandwidth: float
    memory_bandwidth: float
    slow_bandwidth: float | None = None
    devices_per_host: int | None = None
    axis_bandwidth: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    fused_exchange: bool = False
    source: str = ""
    transports: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: MappingProxyType({}))

    unit: ClassVar[str] = "seconds"
    normal_forms_suffice: ClassVar[bool] = False

    def __post_init__(self) -> None:
        missing = [kind for kind in KINDS if kind not in self.latency]
        if missing:
            raise ProfileError(
                f"profile {shown(self.name)} has no latency for {missing[0]!r}; it needs one for each of {KINDS}"
            )
        speeds = [self.bandwidth, self.memory_bandwidth, *self.axis_bandwidth.values()]
        if self.slow_bandwidth is not None:
            speeds.append(self.slow_bandwidth)
        for speed in speeds:
            if not 1 / _LARGEST <= speed <= _LARGEST:
                raise ProfileError(
                    f"profile {shown(self.name)} has a bandwidth of {shown(speed)}; a bandwidth is a positive number "
                    f"of bytes per second, from {1 / _LARGEST:g} to {_LARGEST:g}"
                )
        for kind in (kind for kind in (*KINDS, *REDUCTIONS) if kind in self.latency):
            latency = self.latency[kind]
            if not (0 <= latency.launch <= _LARGEST and 0 <= latency.member <= _LARGEST):
                raise ProfileError(
                    f"profile {shown(self.name)} has for {kind!r} the latency {shown(latency)}; "
                    f"a latency is a number of seconds from 0 to {_LARGEST:g}"
                )
        for name, seconds in self.transports.items():
            if not all(0 <= figure <= _LARGEST for figure in seconds):
                raise ProfileError(
                    f"profile {shown(self.name)} has for transport {shown(name)} the figures {shown(seconds)}; "
                    f"each is a number of seconds from 0 to {_LARGEST:g}"
                )
        if self.devices_per_host is not None and not 1 <= self.devices_per_host <= _MOST_DEVICES:
            raise ProfileError(
                f"profile {shown(self.name)} has {shown(self.devices_per_host)} devices per host; "
                f"a host has from 1 to {_MOST_DEVICES}"
            )

    def __hash__(self) -> int:
        return hash((self.name, self.bandwidth, self.memory_bandwidth, self.slow_bandwidth, self.devices_per_host))

    def topology(self, mesh: Mesh, known: Topology | None = None) -> Topology:
        """The mesh axes where `axis_bandwidth` names one; otherwise, where links between hosts are slower, the hosts
        that are known, or else `devices_per_host` consecutive devices each."""
        speed = {axis.name: self.axis_bandwidth.get(axis.name, self.bandwidth) for axis in mesh.axes}
        if any(name in self.axis_bandwidth for name in speed):
            slowest = min(speed.values())
            return Topology.along(mesh, [name for name, bandwidth in speed.items() if bandwidth == slowest])
        if self.slow_bandwidth is None:
            return Topology(mesh.size)
        if known is not None:
            return known
        if self.devices_per_host is None:
            return Topology(mesh.size)
        return Topology.consecutive(mesh.size, self.devices_per_host)

    def topology_apart(self, devices: int, source: Collection[int], known: Topology | None = None) -> Topology:
        """As for a mesh. Where nothing else is known, `slow_bandwidth` without `devices_per_host` is that of links from
        the source's devices to others."""
        if self.slow_bandwidth is None:
            return Topology(devices)
        if known is not None:
            return known
        if self.devices_per_host is None:
            return Topology.apart(devices, source)
        return Topology.consecutive(devices, self.devices_per_host)

    def edge(self, edge: WeakEdge, space: WeakSpace, itemsize: int, topology: Topology) -> float:
        return self._prices(itemsize, topology).edge(edge, space)

    def step(self, step: Step, itemsize: int, topology: Topology) -> float:
        return self._prices(itemsize, topology).step(step)

    def _prices(self, itemsize: int, topology: Topology) -> LatencyPrices:
        return LatencyPrices(self, itemsize, topology)

    def to_json(self) -> str:
        """The profile as JSON text; `from_json` reads it back."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "latency": {kind: [lat.launch, lat.member] for kind, lat in self.latency.items()},
            "bandwidth": self.bandwidth,
            "memory_bandwidth": self.memory_bandwidth,
            "slow_bandwidth": self.slow_bandwidth,
            "devices_per_host": self.devices_per_host,
            "axis_bandwidth": dict(self.axis_bandwidth),
            "one_call": self.fused_exchange,
            "source": self.source,
        }
        if self.transports:
            data["transports"] = {name: list(figures) for name, figures in self.transports.items()}
        return json.dumps(data, indent=2)

    @classmethod
    def from_json(cls, text: str) -> LatencyBandwidth:
        """A profile from JSON text.

        Raises:
            ProfileError: if the text is no profile of this version.
        """
        try:
            data = json.loads(text)
        except (ValueError, TypeError) as error:
            raise ProfileError(f"a profile must be JSON, but {error}") from None
        except RecursionError:
            raise ProfileError(
                "a profile must be JSON that is 3 deep, but this is nested too deep to be read"
            ) from None
        if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
            raise ProfileError(f"this is no {FORMAT} of version {VERSION}; write one with `redistrib calibrate`")
        axes = typed(data, "axis_bandwidth", dict)
        transports = typed({"transports": {}} | data, "transports", dict)  # older profiles have none
        return cls(
            name=typed(data, "name", str),
            latency={
                kind: Latency(*figures(pair, f"the latency of {cut(kind)}"))
                for kind, pair in typed(data, "latency", dict).items()
            },
            bandwidth=typed(data, "bandwidth", int, float),
            memory_bandwidth=typed(data, "memory_bandwidth", int, float),
            slow_bandwidth=typed(data, "slow_bandwidth", int, float, type(None)),
            devices_per_host=typed(data, "devices_per_host", int, type(None)),
            axis_bandwidth={axis: figure(speed, f"the bandwidth of axis {cut(axis)}") for axis, speed in axes.items()},
            fused_exchange=typed(data, "one_call", bool, type(None)) or False,
            source=typed(data, "source", str),
            transports={
                name: tuple(figures(value, f"the seconds of transport {cut(name)}", 3))
                for name, value in transports.items()
            },
        )


class LatencyPrices(Prices):
    """The prices of a latency-bandwidth model, and bounds on them, with the speed of every link looked up once."""

    model: LatencyBandwidth

    def __init__(self, model: LatencyBandwidth, itemsize: int, topology: Topology) -> None:
        super().__init__(model, itemsize, topology)
        self._latency = model.latency
        self._axis_speed = {name: float(model.axis_bandwidth.get(name, model.bandwidth)) for name, _ in topology.axes}
        between_hosts = topology.hosts is not None and not self._axis_speed and model.slow_bandwidth is not None
        slow = [model.slow_bandwidth] if between_hosts and model.slow_bandwidth is not None else []
        speeds = [model.bandwidth, *self._axis_speed.values()]
        self._fastest, self._slowest = max(speeds), min([*speeds, *slow])
        self._is_uniform = set(self._axis_speed.values()) <= {model.bandwidth} and not between_hosts

    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        after = space.local_size(edge.target)
        if edge.kind == "dynslice":
            return self._copy(after * self.itemsize)
        share, copies = after * self.itemsize / edge.factor, 1 if edge.kind == "allgather" else 2
        near = edge.factor // edge.slow
        # What the step will be priced at where its groups cross hosts no more than the edge says.
        return float(
            self._latency[edge.kind].seconds(edge.factor)
            + (near - 1) * share / self._fastest
            + (edge.factor - near) * share / self._slowest
            + self._copy(copies * after * self.itemsize)
        )

    def cross_host_permute(self, space: WeakSpace, grid: Grid) -> float:
        return self._permute(space.local_size(grid), self._slowest)

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        return self._permute(min(space.local_size(grid) for grid in grids), self._fastest)

    def _permute(self, elements: int, speed: float) -> float:
        """A permute of tiles of so many elements over links of one speed."""
        size = elements * self.itemsize
        return self._latency["allpermute"].seconds(2) + size / speed + self._copy(size)

    def remaining_at_least(self, space: WeakSpace, grid: Grid, target: Grid) -> float:
        # Every dimension to be cut less needs collectives of its own. The last one writes a whole tile, and where no
        # replica could be sliced first, the first one copies its tile twice or gathers twice as much.
        gather, shuffle = self._latency["allgather"], self._latency["alltoall"]
        seconds = 0.0
        for g, t in zip(grid, target, strict=True):
            if t % g:
                less = g // math.gcd(g, t)
                seconds += min(calls_at_least(gather, less), calls_at_least(shuffle, less))
        size = copied = space.local_size(target)
        if not seconds:  # slices do it
            return 0.0 if grid == target else self._copy(size * self.itemsize)
        if math.prod(grid) == space.devices:
            copied = max(size, 2 * space.local_size(grid))
        moved: int = size - math.prod(map(floordiv, space.shape, map(max, grid, target)))
        return seconds + moved * self.itemsize / self._fastest + self._copy(copied * self.itemsize)

    def phases_at_least(self, space: WeakSpace, phases: PhaseGrids) -> float:
        part = space.local_size(phases.part) * self.itemsize
        seconds = 0.0
        if phases.before != phases.cut:
            seconds += self._copy(space.local_size(phases.cut) * self.itemsize)
        if phases.cut != phases.part or phases.way != "any":
            moved = part - phases.held(space) * self.itemsize
            seconds += moved / self._fastest + self._exchange_at_least(phases, part, moved, space)
        if phases.part != phases.after:
            factor = math.prod(phases.part) // math.prod(phases.after)
            seconds += self.edge(WeakEdge("allgather", phases.part, phases.after, 0, 0, factor), space)
        return seconds

    def _exchange_at_least(self, phases: PhaseGrids, size: int, moved: int, space: WeakSpace) -> float:
        """Latency and copies of an exchange to tiles of `size` bytes, of which every device receives `moved`."""
        dense, permute = (
            self._latency["alltoall"].seconds(phases.chunks),
            self._latency["allpermute"].seconds(2),
        )
        rounds = max(1, phases.chunks - 1) * permute
        in_rounds = (min(rounds, dense) if self.model.fused_exchange else rounds) + self._copy(size + 2 * moved)
        if phases.way == "rounds":
            return in_rounds
        if phases.way == "permute":
            whole = min(size, space.local_size(phases.cut) * self.itemsize)
            return dense + permute + whole / self._fastest + self._copy(2 * size + whole)
        if phases.chunks == 1:
            return self._copy(size)  # a slice may do
        ways = [in_rounds]
        if nested(phases.cut, phases.part):
            ways.append(dense + self._copy(2 * size))
            ways.append(self._latency["allgather"].seconds(phases.chunks) + self._copy(size))  # each may cut its part
        return min(ways)

    def step(self, step: Step) -> float:
        match step:
            case DynSlice():
                return self._copy(step.after.tile_size * self.itemsize)
            case AllGather():
                share = step.before.tile_size * self.itemsize
                return self._grouped(step.groups, "allgather", share) + self._copy(step.after.tile_size * self.itemsize)
            case AllToAll():
                share = math.prod(step.share) * self.itemsize
                copied = share * step.group_size + step.after.tile_size * self.itemsize
                return self._grouped(step.groups, "alltoall", share) + self._copy(copied)
            case AllPermute():
                size = step.before.tile_size * self.itemsize
                return self._paired(step.pairs, size) + self._copy(size)
            case Exchange():
                return self._rounds(step)
            case ReduceScatter():
                own = "alltoall" if step.implementation == "alltoall" else self._scatter
                return self._scattered(step.groups, own, step.before.tile_size)
            case AllReduce():
                part = -(-step.before.tile_size // step.group_size)  # as a reduce-scatter and a gather of the parts
                kind = "all_reduce" if "all_reduce" in self._latency else self._scatter
                seconds = self._scattered(step.groups, kind, part * step.group_size)
                seconds += self._grouped(step.groups, "allgather", part * self.itemsize)
                if kind == "all_reduce":
                    seconds -= self._latency["allgather"].seconds(step.group_size)
                return seconds + self._copy(step.after.tile_size * self.itemsize)
            case ReduceExchange():
                return self._rounds(step) + self._copy(sum(step.round_sizes()) * self.itemsize)  # each share is added
            case Unreduce():
                return self._copy(step.after.tile_size * self.itemsize)

    @property
    def _scatter(self) -> str:
        return "reduce_scatter" if "reduce_scatter" in self._latency else "alltoall"

    def _scattered(self, groups: Int64, kind: str, tile: int) -> float:
        """An all-to-all of so many elements of each device, packed and unpacked, and the parts received added up."""
        size = tile * self.itemsize
        return self._grouped(groups, kind, size // groups.shape[1]) + self._copy(2 * size + size)

    def _rounds(self, step: Exchange | ReduceExchange) -> float:
        seconds = self._copy(step.after.tile_size * self.itemsize)
        if not len(step.shares):
            return seconds
        sizes = step.round_sizes()
        # Each shape of a round is cut out and written on its own.
        shapes = step.shares.shapes()
        seconds += self._copy(2 * sum(size * count for size, count in zip(sizes, shapes, strict=True)) * self.itemsize)
        if self._is_uniform:
            seconds += (
                len(sizes) * self._latency["allpermute"].seconds(2) + sum(sizes) * self.itemsize / self.model.bandwidth
            )
        else:
            order = np.argsort(step.shares.round, kind="stable")
            stops = np.flatnonzero(np.diff(step.shares.round[order])) + 1
            for rows, size in zip(np.split(order, stops), sizes, strict=True):
                seconds += self._paired(
                    np.stack([step.shares.src[rows], step.shares.dst[rows]], axis=1), size * self.itemsize
                )
        if step.implementation == "ragged":
            seconds -= self._latency["allpermute"].seconds(2) * step.shares.rounds
            seconds += self._latency["alltoall"].seconds(step.shares.rounds + 1)
        return seconds

    def _copy(self, size: int) -> float:
        return float(size / self.model.memory_bandwidth)

    def _grouped(self, groups: Int64, kind: str, share: int) -> float:
        """A collective in which every member receives `share` bytes from every other."""
        members = groups.shape[1]
        seconds = self._latency[kind].seconds(members)
        if self._is_uniform:
            return float(seconds + (members - 1) * share / self.model.bandwidth)
        worst = 0.0
        for k in range(members):
            per_byte = self._seconds_per_byte(groups, np.broadcast_to(groups[:, k : k + 1], groups.shape))
            worst = max(worst, float(per_byte.sum(axis=1).max()))
        return seconds + share * worst

    def _paired(self, pairs: Int64, size: int) -> float:
        seconds = self._latency["allpermute"].seconds(2)
        if not len(pairs):
            return 0.0
        if self._is_uniform:
            return seconds + size / self.model.bandwidth
        return seconds + size * float(self._seconds_per_byte(pairs[:, 0], pairs[:, 1]).max())

    def _seconds_per_byte(self, sender: Int64, receiver: Int64) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Inverse bandwidth of the slowest link between two devices; zero from a device to itself."""
        slowest = np.zeros(np.broadcast(sender, receiver).shape)
        for name, along in self.topology.coordinates.items():
            crosses = along[sender] != along[receiver]
            slowest = np.where(crosses, np.maximum(slowest, 1 / self._axis_speed[name]), slowest)
        if self._axis_speed:
            return slowest
        hosts = self.topology.hosts
        assert hosts is not None  # or all links were alike
        away = hosts[sender] != hosts[receiver]
        return np.where(away, 1 / self._slowest, np.where(sender == receiver, 0.0, 1 / self.model.bandwidth))
