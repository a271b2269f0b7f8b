"""Seconds of operations: computations by the rates of a device, moves by the cost model, step by step.

A move without a plan is priced as MPI runs it: from one device by a scatter and broadcasts, to one device by a gather,
and between several by sends. JAX copies tile by tile instead, so from one device to many it may take longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from redistrib.cost.model import CostModel, Prices
from redistrib.lang.mesh import Axis, Mesh
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, Exchange, Step
from redistrib.plans.transfers import Transfers
from redistrib.programs.ir.data import Compute, KernelPart, Move, Op, ProgramData
from redistrib.programs.ir.direct import direct_transfers, gathering, scattering
from redistrib.programs.ir.halos import halo_rounds
from redistrib.programs.ir.live import renames
from redistrib.programs.ir.value import Place, Value
from redistrib.programs.ir.work import work_of
from redistrib.programs.time.machine import Machine
from redistrib.report import bytes_text, seconds_text
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64, Placement
from redistrib.theory.topology import Topology


@dataclass(frozen=True)
class PricedStage:
    """A stretch of an operation.

    Attributes:
        name: the kind of the step, or the operation.
        seconds: how long it takes.
        tile: elements of the largest tile that a device holds of the value that moves; 0 in a computation.
        note: of a step of a plan its rounds or groups, the MB that a device receives at most, and microseconds.
        received: bytes that a device receives at most in a step of a plan.
        itemsize: bytes of an element that moves in a step of a plan.
        step, topology: the step of a plan, and the hosts of its devices; None for other stretches.
    """

    name: str
    seconds: float
    tile: int = 0
    note: str = ""
    received: int = 0
    itemsize: float = 0.0
    step: Step | None = field(default=None, compare=False, repr=False)
    topology: Topology | None = field(default=None, compare=False, repr=False)


MovePrices: TypeAlias = dict[tuple[object, ...], tuple[PricedStage, ...]]  # stages of moves, by plan or ends


def priced_stages(op: Op, program: ProgramData, machine: Machine, known: MovePrices) -> tuple[PricedStage, ...]:
    """The stages of an operation; none of a loop or a call. `known` has those of moves, and gets new ones."""
    if isinstance(op, Compute):
        return tuple(compute_stages(op, program, machine))
    if not isinstance(op, Move):
        return ()
    value = program.values[op.value]
    key: tuple[object, ...] = (id(op.plan), value.place)
    if op.plan is None:
        key = (value.type, value.windows, value.place, op.out.type, op.out.windows, op.out.place, op.out.dtype)
    if key not in known:
        known[key] = tuple(move_stages(op, program, machine))
    return known[key]


def height_of(op: Move, program: ProgramData, stages: Iterable[PricedStage]) -> int:
    """Elements of the largest tile of a value on its way."""
    ends = (program.values[op.value].tile, op.out.tile)
    return max(*map(math.prod, ends), *(stage.tile for stage in stages))


def compute_stages(op: Compute, program: ProgramData, machine: Machine) -> list[PricedStage]:
    """A computation, its arrays read and written once. Fused operations have no class of work."""
    if isinstance(op, KernelPart):
        return [PricedStage(op.name, op.seconds)]
    read = sum(program.values[name].tile_bytes for name in dict.fromkeys(name for _, name in op.ins))
    written = sum(value.tile_bytes for _, value in op.outs)
    dtypes = (program.values[name].dtype for _, name in op.ins)
    work = work_of(op.record, op.parts[0].nest) if machine.classes and len(op.parts) == 1 else ""
    seconds = machine.seconds_of(op.name, dtypes, read + written, op.flops, work=work)
    return [PricedStage(op.name, seconds)]


def move_stages(op: Move, program: ProgramData, machine: Machine) -> list[PricedStage]:
    """A move, step by step; without a plan, round by round."""
    value = program.values[op.value]
    if op.plan is not None:
        return plan_stages(op.plan, value.place, machine)
    if renames(op, program):
        return []
    return direct_stages(value, op.out, machine)


def plan_stages(plan: Plan, place: Place, machine: Machine) -> list[PricedStage]:
    """The steps of a plan between the devices of a place."""
    prices = prices_between(place, machine.itemsize_of(plan.dtype), machine)
    return [
        PricedStage(
            step.kind,
            seconds,
            max(step.before.tile_size, step.after.tile_size),
            _noted(step, size, seconds),
            size,
            prices.itemsize,
            step,
            prices.topology,
        )
        for step in plan.steps
        for seconds in (prices.step(step),)
        for size in (round(max(step.received(), default=0) * prices.itemsize),)
    ]


def _noted(step: Step, size: int, seconds: float) -> str:
    """The second line of a step in a picture; `size` is what a device receives at most, in bytes."""
    rounds = f"{step.shares.rounds} rounds, " if isinstance(step, Exchange) and step.shares.rounds > 1 else ""
    return f"{rounds}{bytes_text(size)}, {seconds_text(seconds)}"


def prices_between(place: Place, itemsize: float, machine: Machine) -> Prices:
    """The prices of steps between the devices of a place, with the links looked up once."""
    return machine.links.prices(cast(int, itemsize), topology_of(place, machine.links))  # models only multiply by it


def topology_of(place: Place, links: CostModel) -> Topology:
    """The links between the devices of a place, by their numbers in its mesh.

    Hosts follow from the numbers of devices in the machine; axes with different links are those of the mesh.
    """
    topology = links.topology(place.mesh)
    if topology.axes:
        return topology
    machine = links.topology(Mesh((Axis("device", max(place.devices) + 1),)))
    return Topology(len(place.devices), tuple(machine.host[device] for device in place.devices) if machine.host else ())


def _flat(size: int, devices: int) -> Placement:
    """Tiles of so many elements, of which only the size is looked at."""
    return Placement((size,), (1,), np.zeros((devices, 1), dtype=np.int64))


class _Round(NamedTuple):
    """Sends that go on at once, none of more than `size` elements."""

    size: int
    senders: set[int]
    receivers: set[int]
    pairs: list[tuple[int, int]]


def direct_stages(value: Value, out: Value, machine: Machine) -> list[PricedStage]:
    """The steps of a move without a plan: collectives from one device or to one, sends between several."""
    links = _Links(value, out, machine)
    if value.has_halos:
        return []
    if out.has_halos:
        devices, rounds = out.place.devices, halo_rounds(out.type, out.place.mesh, out.windows)
        return links.sends(
            (send_round.elements, devices[a], devices[b]) for send_round in rounds for a, b in send_round.pairs.tolist()
        )
    ends = value.place.devices, out.place.devices
    if len(ends[0]) == 1:
        how = scattering(out, *ends[0])
        size = math.prod(out.tile)
        root, *others = how.members or ends[0]
        stages = links.at_root("scatter", [(root, other) for other in others], size)
        return [*stages, *links.broadcast(how.groups, size)]
    if len(ends[1]) == 1:
        root, *others = gathering(value, *ends[1]).members or ends[1]
        return links.at_root("gather", [(other, root) for other in others], math.prod(value.tile))
    sent = direct_transfers(value, out).travelling
    return links.sends(zip(sent.box.volumes(), sent.sender.tolist(), sent.receiver.tolist(), strict=True))


class _Links:
    """Prices of messages between the devices of a value and those of the moved value.

    Devices are named by their numbers in the machine, sizes are in elements.
    """

    def __init__(self, value: Value, out: Value, machine: Machine) -> None:
        devices = tuple(sorted({*value.place.devices, *out.place.devices}))
        self.number = {device: k for k, device in enumerate(devices)}
        place = Place(Mesh((Axis("device", len(devices)),)), devices)
        self.prices = prices_between(place, machine.itemsize_of(out.dtype), machine)
        self.tile = max(math.prod(value.tile), math.prod(out.tile))
        hosts = self.prices.topology.hosts
        self.host = {device: 0 if hosts is None else int(hosts[k]) for device, k in self.number.items()}

    def send(self, pairs: Collection[tuple[int, int]], size: int) -> float:
        """Sends that go on at once."""
        tile = _flat(size, len(self.number))
        return self.prices.step(AllPermute(tile, tile, self._rows(pairs)))

    def sends(self, sent: Iterable[tuple[int, int, int]]) -> list[PricedStage]:
        """Rounds in which a device sends at most once and receives at most once, the largest boxes first.

        Args:
            sent: elements, sender and receiver of every box; the two differ.
        """
        rounds: list[_Round] = []
        for size, sender, receiver in sorted(sent, key=lambda each: -each[0]):
            free = (each for each in rounds if sender not in each.senders and receiver not in each.receivers)
            chosen = next(free, None)
            if chosen is None:
                chosen = _Round(size, set(), set(), [])
                rounds.append(chosen)
            chosen.senders.add(sender)
            chosen.receivers.add(receiver)
            chosen.pairs.append((sender, receiver))
        return [self._stage("send", self.send(each.pairs, each.size)) for each in rounds]

    def at_root(self, name: str, pairs: Sequence[tuple[int, int]], size: int) -> list[PricedStage]:
        """A scatter, or a gather: one send after the other, or all in one call, whichever is faster."""
        if len(pairs) < 2:
            return self.sends((size, *pair) for pair in pairs)
        rows, tile = self._rows(pairs), _flat(size, len(self.number))
        starts = np.zeros((len(rows), 1), dtype=np.int64)
        boxes = Boxes(starts, np.full_like(starts, size))
        shares = Transfers(rows[:, 0], rows[:, 1], boxes, np.arange(len(rows)))
        in_turn = sum(self.send([pair], size) for pair in pairs)
        return [self._stage(name, min(in_turn, self.prices.step(Exchange(tile, tile, shares, "ragged"))))]

    def broadcast(self, groups: Collection[Sequence[int]], size: int) -> list[PricedStage]:
        """Broadcasts at once in groups of equal size: down a tree, or by a scatter and an all-gather.

        These are the two between which MPI libraries choose by size. On several hosts tiles cross between them first.
        """
        if not groups:
            return []
        trees = [_tree([root, *sorted(rest, key=self._distance(root))]) for root, *rest in groups]
        levels = [list(chain(*level)) for level in zip(*trees, strict=True)]
        pairs = [[(edge.sender, edge.receiver) for edge in level] for level in levels]
        down = sum(self.send(level, size) for level in pairs)
        members = len(next(iter(groups)))
        if members == 2:
            return [self._stage("send", down)]
        part = -(-size // members)
        below = [max(edge.below for edge in level) for level in levels]
        scatter = sum(self.send(level, part * count) for level, count in zip(pairs, below, strict=True))
        number = np.array([[self.number[device] for device in group] for group in groups])
        before, after = (_flat(elements, len(self.number)) for elements in (part, size))
        return [self._stage("broadcast", min(down, scatter + self.prices.step(AllGather(before, after, number))))]

    def _distance(self, root: int) -> Callable[[int], tuple[bool, int, int]]:
        """A key that sorts the devices of the root's host first, those of each other host together."""
        return lambda device: (self.host[device] != self.host[root], self.host[device], device)

    def _rows(self, pairs: Collection[tuple[int, int]]) -> Int64:
        return np.array([[self.number[sender], self.number[receiver]] for sender, receiver in pairs])

    def _stage(self, name: str, seconds: float) -> PricedStage:
        return PricedStage(name, seconds, self.tile)


class _Edge(NamedTuple):
    """A send of a tree to a device that sends on; `below` counts it and the devices that it serves."""

    sender: int
    receiver: int
    below: int


def _tree(members: Sequence[int]) -> list[list[_Edge]]:
    """The levels of a binomial tree over devices, the first its root: in each, every device with a tile sends it once.

    >>> [[tuple(edge) for edge in level] for level in _tree([0, 1, 2, 3, 4])]
    [[(0, 3, 2)], [(0, 2, 1), (3, 4, 1)], [(0, 1, 1)]]
    """
    levels: list[list[_Edge]] = []
    runs = [members]
    while any(len(run) > 1 for run in runs):
        halves = [(run[: -(-len(run) // 2)], run[-(-len(run) // 2) :]) for run in runs]
        levels.append([_Edge(near[0], far[0], len(far)) for near, far in halves if far])
        runs = [half for both in halves for half in both if half]
    return levels
