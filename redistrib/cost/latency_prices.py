"""The prices of a latency-bandwidth model, and their lower bounds for the search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import floordiv, itemgetter
from typing import Any, TypeAlias

import numpy as np

from redistrib.cost.collective import calls_at_least
from redistrib.cost.figures import Figures
from redistrib.cost.model import PhaseGrids, Prices
from redistrib.errors import PlanFormError
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
from redistrib.plans.transfers import Transfers
from redistrib.theory.placement import Int64
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace, nested

MOST_ROUTED = 1 << 17  # pairs of devices in groups, up to which routes on a torus are computed

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]  # integers beyond 64 bits are rounded


class LatencyPrices(Prices):
    """The prices of a latency-bandwidth model, and lower bounds on them."""

    model: Figures

    def __init__(self, model: Figures, itemsize: int, topology: Topology) -> None:
        super().__init__(model, itemsize, topology)
        self._latency = model.latency
        self._axis_speed = {name: float(model.axis_bandwidth.get(name, model.bandwidth)) for name, _ in topology.axes}
        between_hosts = topology.hosts is not None and not self._axis_speed and model.slow_bandwidth is not None
        slow = [model.slow_bandwidth] if between_hosts and model.slow_bandwidth is not None else []
        self._torus = None if self._axis_speed or model.link_bandwidth is None else topology.torus
        self._link = model.link_bandwidth or model.bandwidth
        least, most = (0, 0) if self._torus is None else self._torus.links_in
        self._inside = most * self._link if most else model.bandwidth  # no device takes in more
        speeds = [self._inside, *self._axis_speed.values()]
        self._fastest, self._slowest = max(speeds), min([*speeds, *slow])
        # The bandwidth of the device with the fewest links, where all devices receive equally much.
        corner = self._torus is not None and least and topology.hosts is None and not self._torus.shares_nodes
        self._everywhere = least * self._link if corner else self._fastest
        self._shares_links = topology.hosts is not None and not self._axis_speed and model.host_bandwidth is not None
        self._is_uniform = (
            set(self._axis_speed.values()) <= {model.bandwidth} and not between_hosts and self._torus is None
        )

    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        after = space.local_size(edge.target)
        if edge.kind == "dynslice":
            return self._copy(after * self.itemsize)
        share, copies = after * self.itemsize / edge.factor, 1 if edge.kind == "allgather" else 2
        near = edge.factor // edge.slow
        # The price of the step where its groups cross hosts no more than the edge does.
        return float(
            self._latency[edge.kind].seconds(edge.factor)
            + (near - 1) * share / self._everywhere
            + (edge.factor - near) * share / self._slowest
            + self._copy(copies * after * self.itemsize)
        )

    def cross_host_permute(self, space: WeakSpace, grid: Grid) -> float:
        return self._permute(space.local_size(grid), self._slowest)

    def rounds_at_least(self, receiver: Int64, volumes: Sequence[int]) -> float:
        if self.model.fused_exchange:
            return 0.0
        # By Koenig's theorem shares of one size need at least as many rounds as one device receives of them.
        size, kind = np.unique(np.array(volumes, dtype=np.float64) * self.itemsize, return_inverse=True)
        busiest = np.zeros(len(size), dtype=np.int64)
        pairs, count = np.unique(np.stack([kind.reshape(-1), receiver]), axis=1, return_counts=True)
        np.maximum.at(busiest, pairs[0], count)
        received = np.bincount(receiver, weights=size[kind.reshape(-1)])
        return float(
            busiest.sum() * self._latency["allpermute"].seconds(2)
            + (busiest @ size if self._is_uniform else received.max(initial=0.0)) / self._fastest
            + self._copy(2 * int(busiest @ size))
        )

    def links_busy(self, crossing: int) -> float:
        hosts, alone = self.topology.hosts, self.model.slow_bandwidth
        if hosts is None or alone is None or self._axis_speed:
            return 0.0
        shared = self.model.host_bandwidth
        links = alone * len(hosts) if shared is None else shared * len(np.unique(hosts))
        return crossing * self.itemsize / links

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        return self._permute(min(space.local_size(grid) for grid in grids), self._fastest)

    def _permute(self, elements: int, speed: float) -> float:
        """Seconds of a permute of tiles of `elements` over links of one speed."""
        size = elements * self.itemsize
        return self._latency["allpermute"].seconds(2) + size / speed + self._copy(size)

    def remaining_at_least(self, space: WeakSpace, grid: Grid, target: Grid) -> float:
        # Every dimension to be cut less needs separate collectives. The last collective writes a whole tile. Where no
        # replica can be sliced first, the first collective copies its tile twice or gathers twice as much.
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
        received: int = size - math.prod(map(floordiv, space.shape, map(max, grid, target)))
        return seconds + received * self.itemsize / self._everywhere + self._copy(copied * self.itemsize)

    def phases_at_least(self, space: WeakSpace, phases: PhaseGrids) -> float:
        part = space.local_size(phases.part) * self.itemsize
        seconds = 0.0
        if phases.before != phases.cut:
            seconds += self._copy(space.local_size(phases.cut) * self.itemsize)
        if phases.cut != phases.part or phases.way != "any":
            moved = part - phases.held(space) * self.itemsize
            seconds += moved / self._everywhere + self._exchange_at_least(phases, part, moved, space)
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
            ways.append(self._latency["allgather"].seconds(phases.chunks) + self._copy(size))  # after a slice
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
                kind = "alltoall" if step.implementation == "alltoall" else self._scatter
                return self._scattered(step.groups, kind, step.before.tile_size)
            case AllReduce():
                part = -(-step.before.tile_size // step.group_size)  # a reduce-scatter, and a gather of the parts
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
        raise PlanFormError(f"models of latency and bandwidth have no price for a step {step.kind}")

    @property
    def _scatter(self) -> str:
        return "reduce_scatter" if "reduce_scatter" in self._latency else "alltoall"

    def _scattered(self, groups: Int64, kind: str, tile: int) -> float:
        """Seconds of an all-to-all of `tile` elements of each device, packed and unpacked, and of adding the parts."""
        size = tile * self.itemsize
        return self._grouped(groups, kind, size // groups.shape[1]) + self._copy(2 * size + size)

    def _rounds(self, step: Exchange | ReduceExchange) -> float:
        seconds = self._copy(step.after.tile_size * self.itemsize)
        if not len(step.shares):
            return seconds
        sizes = step.round_sizes()
        # Each shape of a round is a separate copy.
        shapes = step.shares.shapes()
        seconds += self._copy(2 * sum(size * count for size, count in zip(sizes, shapes, strict=True)) * self.itemsize)
        if self._is_uniform:
            seconds += (
                len(sizes) * self._latency["allpermute"].seconds(2) + sum(sizes) * self.itemsize / self.model.bandwidth
            )
        else:
            seconds += self._in_turn(step.shares, [size * self.itemsize for size in sizes])
        if step.implementation == "ragged":
            seconds -= self._latency["allpermute"].seconds(2) * step.shares.rounds
            seconds += self._latency["alltoall"].seconds(step.shares.rounds + 1)
        return seconds

    def _in_turn(self, shares: Transfers, sizes: Sequence[int]) -> float:
        """Seconds of rounds one after the other.

        A device starts its next round after its sends and receives of this round; other devices may be rounds behind.
        On a torus all pairs share links, so all devices wait for the slowest.

        Args:
            shares: of the exchange.
            sizes: bytes of the largest share of each round.
        """
        volumes = np.array(shares.box.volumes(), dtype=np.float64) * self.itemsize
        order = np.argsort(shares.round, kind="stable")
        stops = np.flatnonzero(np.diff(shares.round[order])) + 1
        clock, waits = np.zeros(self.topology.devices), self._torus is not None
        for rows, size in zip(np.split(order, stops), sizes, strict=True):
            pairs = np.stack([shares.sender[rows], shares.receiver[rows]], axis=1)
            if waits:
                clock += self._sent(pairs, size, volumes[rows]).max()
                continue
            ended = clock[pairs].max(axis=1) + self._sent(pairs, size, volumes[rows])
            clock[pairs] = 0
            np.maximum.at(clock, pairs, ended[:, None])
        return len(sizes) * self._latency["allpermute"].seconds(2) + float(clock.max())

    def _copy(self, size: int) -> float:
        return float(size / self.model.memory_bandwidth)

    def _grouped(self, groups: Int64, kind: str, share: int) -> float:
        """Seconds of a collective in which every member receives `share` bytes from every other member."""
        members = groups.shape[1]
        seconds = self._latency[kind].seconds(members)
        if self._is_uniform:
            return float(seconds + (members - 1) * share / self.model.bandwidth)
        alone = share * self._worst_member(groups)
        alone = max(alone, self._through_links(kind, groups, share))
        if members == 2:
            alone = max(alone, share * float(self._swapped(np.concatenate([groups, groups[:, ::-1]])).max()))
        hosts = self.topology.hosts
        if hosts is None or not self._shares_links:
            return float(seconds + alone)
        near, size = range(1, members), share
        if kind == "allgather":  # around a ring of hosts: every member receives all shares from its predecessor
            groups = np.take_along_axis(groups, np.argsort(hosts[groups], axis=1, kind="stable"), axis=1)
            near, size = range(1, 2), share * (members - 1)
        sent = np.concatenate([np.stack([groups, np.roll(groups, -k, axis=1)], axis=2).reshape(-1, 2) for k in near])
        return float(seconds + max(alone, self._through_hosts(sent, np.full(len(sent), np.float64(size))).max()))

    def _worst_member(self, groups: Int64) -> float:
        """Most seconds of a member to receive a byte from every other member, by the links of that member alone."""
        members, hosts = groups.shape[1], self.topology.hosts
        if hosts is None and not self._axis_speed:
            everyone = groups.size == self.topology.devices
            return float((members - 1) / (self._everywhere if everyone else self._inside))
        # Links that separate devices, the slowest first: two devices are joined by the first that tells them apart.
        along = self.topology.coordinates
        links = [(1 / self._axis_speed[name], along[name]) for name in along]
        if not self._axis_speed and hosts is not None:
            links = [(1 / self._inside, np.arange(self.topology.devices)), (1 / self._slowest, hosts)]
        part = np.broadcast_to(np.arange(len(groups))[:, None], groups.shape)
        near, seconds = np.full(groups.shape, members), np.zeros(groups.shape)
        for per_byte, label in sorted(links, key=itemgetter(0), reverse=True):
            numbers = part * (int(label.max()) + 1) + label[groups]
            _, part, count = np.unique(numbers, return_inverse=True, return_counts=True)
            part = part.reshape(groups.shape)
            seconds += (near - count[part]) * per_byte
            near = count[part]
        return float(seconds.max())

    def _paired(self, pairs: Int64, size: int) -> float:
        """Seconds of a permute of tiles of `size` bytes."""
        if not len(pairs):
            return 0.0
        sent = size / self.model.bandwidth if self._is_uniform else float(self._sent(pairs, size, size).max())
        return self._latency["allpermute"].seconds(2) + sent

    def _sent(self, pairs: Int64, size: int, sizes: Bytes | int) -> Bytes:
        """`[pairs]` seconds of each pair of a permute; pair k sends `sizes[k]` bytes, and the largest pair `size`."""
        sent: Bytes = size * self._seconds_per_byte(pairs[:, 0], pairs[:, 1])
        volume = np.broadcast_to(np.float64(sizes), len(pairs))
        if self._torus is not None:
            sent = np.maximum(sent, self._torus.most_sent(pairs[:, 0], pairs[:, 1], volume) / self._link)
        sent = np.maximum(sent, self._through_hosts(pairs, volume))
        return np.maximum(sent, size * self._swapped(pairs))

    def _through_links(self, kind: str, groups: Int64, share: int) -> float:
        """Seconds of the busiest link of a torus in a collective whose members receive `share` bytes from each other.

        Zero for groups above `MOST_ROUTED`, whose routes are not computed.
        """
        if self._torus is None or groups.shape[1] * groups.size > MOST_ROUTED:
            return 0.0
        most = self._torus.most_exchanged if kind == "alltoall" else self._torus.most_gathered
        return share * most(groups) / self._link

    def _through_hosts(self, pairs: Int64, size: Bytes) -> Bytes:
        """`[pairs]` seconds of the links of both hosts of a pair, where devices of a host share a link; else zeros."""
        hosts, speed = self.topology.hosts, self.model.host_bandwidth
        if hosts is None or speed is None or not self._shares_links:
            return np.zeros(len(pairs))
        ends = hosts[pairs].T
        away = ends[0] != ends[1]
        through = [np.bincount(end, size * away)[end] for end in ends]
        return np.where(away, np.maximum(*through), 0.0) / speed

    def _swapped(self, pairs: Int64) -> Bytes:
        """`[pairs]` seconds per byte of two devices of different hosts that send to one another; else zeros.

        Zero as well where both hosts have other swaps meanwhile, or where one has a device that can relay the tile.
        """
        hosts, speed = self.topology.hosts, self.model.swap_bandwidth
        if hosts is None or speed is None or self._axis_speed:
            return np.zeros(len(pairs))
        devices, places = self.topology.devices, int(hosts.max()) + 1
        ends = hosts[pairs]
        swaps = (ends[:, 0] != ends[:, 1]) & np.isin(pairs @ [devices, 1], pairs @ [1, devices])
        receivers = pairs[pairs[:, 0] != pairs[:, 1], 1]
        free = np.bincount(hosts, minlength=places) > np.bincount(hosts[receivers], minlength=places)
        lone = np.bincount(ends[swaps, 0], minlength=places) == 1
        return np.where(swaps & lone[ends].any(axis=1) & ~free[ends].any(axis=1), 1 / speed, 0.0)

    def _seconds_per_byte(self, sender: Int64, receiver: Int64) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Inverse bandwidth of the slowest link between two devices; zero from a device to itself."""
        slowest = np.zeros(np.broadcast(sender, receiver).shape)
        for name, along in self.topology.coordinates.items():
            crosses = along[sender] != along[receiver]
            slowest = np.where(crosses, np.maximum(slowest, 1 / self._axis_speed[name]), slowest)
        if self._axis_speed:
            return slowest
        inside = np.where(sender == receiver, 0.0, 1 / self._inside)
        hosts = self.topology.hosts
        return inside if hosts is None else np.where(hosts[sender] != hosts[receiver], 1 / self._slowest, inside)
