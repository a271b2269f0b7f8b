"""Steps as MPI messages: packed collectives, collectives over datatypes, and point to point.

Every runner is made once, on every rank of the communicator at the same time, and then runs any number of times on
flat byte buffers. What a device keeps is copied by NumPy; only what travels is handed to MPI.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi.datatypes import TypeOwner, placed_type, run_type, strided_type
from redistrib.backends.mpi.stage import Stage
from redistrib.plans.steps import AllGather, AllPermute, AllToAll
from redistrib.plans.strided import Bytes, Strided, consecutive, copy, inside, pair
from redistrib.theory.boxes import Box

TAG = 7


class Runner(TypeOwner, ABC):
    """One stage, ready to run.

    Attributes:
        name: what the report calls it.
        scratch: bytes of staging memory it needs; `bind` provides them.
        beside: bytes of memory that it has, or makes while it runs, besides.
    """

    name: ClassVar[str]
    scratch: int = 0
    beside: int = 0

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.keeps = stage.keeps()

    def bind(self, scratch: Bytes) -> None:
        """Take staging memory of at least `scratch` bytes."""

    @abstractmethod
    def run(self, source: Bytes, target: Bytes) -> None:
        """Carry out the stage from one flat buffer into another (the same one where it works in place)."""

    def start(self, source: Bytes, target: Bytes) -> Callable[[], None]:
        """Begin to, and go on at once; what is returned waits until it is done. Begun in one order on all ranks."""
        self.run(source, target)
        return lambda: None

    def _keep(self, source: Bytes, target: Bytes) -> None:
        for of, to in self.keeps:
            copy(target, to, source, of)


class _Side:
    """One side of a packed message: boxes of a tile laid end to end, in place where they already are."""

    def __init__(self, boxes: Sequence[Box], tile: Box, itemsize: int) -> None:
        self.nbytes = sum(box.volume for box in boxes) * itemsize
        self.copies: list[tuple[Strided, Strided]] = []  # (in the tile, in the staging memory)
        at = 0
        for box in boxes:
            self.copies.append(pair(box, tile, box, itemsize, 0, at))
            at += box.volume * itemsize
        self.direct = consecutive([inside(box, tile, itemsize) for box in boxes])
        self.staged = self.direct is None and self.nbytes > 0
        self.scratch = self.nbytes if self.staged else 0
        self.memory: Bytes = np.empty(0, np.uint8)

    def window(self, tile: Bytes) -> Bytes:
        """The bytes that MPI reads or writes."""
        if self.staged:
            return self.memory
        start = self.direct or 0
        return tile[start : start + self.nbytes]

    def pack(self, tile: Bytes) -> None:
        if self.staged:
            for in_tile, in_stage in self.copies:
                copy(self.memory, in_stage, tile, in_tile)

    def unpack(self, tile: Bytes) -> None:
        if self.staged:
            for in_tile, in_stage in self.copies:
                copy(tile, in_tile, self.memory, in_stage)


class Packed(Runner):
    """Boxes packed end to end, one collective over contiguous memory, and boxes laid out again."""

    name = "packed"

    def __init__(self, stage: Stage, out: Sequence[Box], into: Sequence[Box]) -> None:
        super().__init__(stage)
        self.out = _Side(out, stage.source, stage.itemsize)
        self.into = _Side(into, stage.target(), stage.itemsize)
        self.scratch = self.out.scratch + self.into.scratch

    def bind(self, scratch: Bytes) -> None:
        self.out.memory = scratch[: self.out.scratch]
        self.into.memory = scratch[self.out.scratch : self.scratch]

    @abstractmethod
    def _send(self, out: Bytes, into: Bytes) -> None: ...

    def _begin(self, out: Bytes, into: Bytes) -> list[MPI.Request]:
        """As `_send`, without waiting where that can be."""
        self._send(out, into)
        return []

    def run(self, source: Bytes, target: Bytes) -> None:
        self.out.pack(source)
        self._send(self.out.window(source), self.into.window(target))
        self._keep(source, target)
        self.into.unpack(target)

    def start(self, source: Bytes, target: Bytes) -> Callable[[], None]:
        self.out.pack(source)
        requests = self._begin(self.out.window(source), self.into.window(target))

        def done() -> None:
            self._keep(source, target)
            MPI.Request.Waitall(requests)
            self.into.unpack(target)

        return done


class PackedGather(Packed):
    """`Allgather` of whole tiles, in place where the gathered tile is their concatenation."""

    def __init__(self, stage: Stage, step: AllGather, group: MPI.Intracomm) -> None:
        self.group = group
        order = step.group_of(stage.device)
        own = stage.kept
        boxes = dict(stage.receives)
        super().__init__(stage, own, [boxes.get(m, own[0]) for m in order] if own else [])
        self.block = self._typed(run_type(self.out.nbytes))
        self.in_place = stage.reads == stage.writes and not self.into.staged
        self.keeps = []  # the collective delivers the own tile too
        if self.in_place:
            self.scratch = 0
            self.out.staged = False

    def _send(self, out: Bytes, into: Bytes) -> None:
        mine = MPI.IN_PLACE if self.in_place else [out, 1, self.block]
        self.group.Allgather(mine, [into, 1, self.block])

    def _begin(self, out: Bytes, into: Bytes) -> list[MPI.Request]:
        mine = MPI.IN_PLACE if self.in_place else [out, 1, self.block]
        return [self.group.Iallgather(mine, [into, 1, self.block])]


class PackedAllToAll(Packed):
    """`Alltoall` of equal shares, the own one included."""

    def __init__(self, stage: Stage, step: AllToAll, group: MPI.Intracomm) -> None:
        self.group = group
        order = step.group_of(stage.device)
        own = stage.kept
        sends, receives = dict(stage.sends), dict(stage.receives)
        super().__init__(
            stage,
            [sends.get(m, own[0]) for m in order] if own else [],
            [receives.get(m, own[0]) for m in order] if own else [],
        )
        self.block = self._typed(run_type(self.out.nbytes // max(1, len(order))))
        self.keeps = []  # the collective delivers the own share too

    def _send(self, out: Bytes, into: Bytes) -> None:
        self.group.Alltoall([out, 1, self.block], [into, 1, self.block])

    def _begin(self, out: Bytes, into: Bytes) -> list[MPI.Request]:
        return [self.group.Ialltoall([out, 1, self.block], [into, 1, self.block])]


class PackedNeighbours(Packed):
    """One neighbourhood collective over exactly the devices that share data, on packed shares."""

    def __init__(self, stage: Stage, graph: MPI.Distgraphcomm) -> None:
        self.graph = graph
        out, into = by_device(stage.sends), by_device(stage.receives)
        super().__init__(stage, [b for _, boxes in out for b in boxes], [b for _, boxes in into for b in boxes])
        self.send = self._blocks(out)
        self.receive = self._blocks(into)

    def _blocks(self, peers: list[tuple[int, list[Box]]]) -> tuple[list[int], list[int], list[MPI.Datatype]]:
        sizes = [sum(box.volume for box in boxes) * self.stage.itemsize for _, boxes in peers]
        starts = [sum(sizes[:k]) for k in range(len(sizes))]
        return [1] * len(sizes), starts, [self._typed(run_type(size)) for size in sizes]

    def _send(self, out: Bytes, into: Bytes) -> None:
        self.graph.Neighbor_alltoallw([out, *self.send], [into, *self.receive])

    def _begin(self, out: Bytes, into: Bytes) -> list[MPI.Request]:
        return [self.graph.Ineighbor_alltoallw([out, *self.send], [into, *self.receive])]


class PackedPermute(Packed):
    """Whole tiles from point to point; straight out of and into place where they are contiguous there."""

    def __init__(self, stage: Stage, comm: MPI.Intracomm) -> None:
        self.comm = comm
        sends, receives = stage.sends, stage.receives
        super().__init__(stage, [box for _, box in sends], [box for _, box in receives])
        self.to = [device for device, _ in sends]
        self.of = [device for device, _ in receives]
        self.block = self._typed(run_type(max(self.out.nbytes, self.into.nbytes)))

    def _send(self, out: Bytes, into: Bytes) -> None:
        MPI.Request.Waitall(self._begin(out, into))

    def _begin(self, out: Bytes, into: Bytes) -> list[MPI.Request]:
        requests = [self.comm.Irecv([into, 1, self.block], device, TAG) for device in self.of]
        return requests + [self.comm.Isend([out, 1, self.block], device, TAG) for device in self.to]


class Typed(Runner):
    """Boxes described to MPI by datatypes: no staging memory on our side."""

    name = "datatypes"

    def _type(self, boxes: Sequence[Box], tile: Box) -> MPI.Datatype:
        return self._typed(strided_type([inside(box, tile, self.stage.itemsize) for box in boxes]))

    def _placed(self, boxes: Sequence[Box], tile: Box) -> tuple[int, MPI.Datatype]:
        at, datatype = placed_type([inside(box, tile, self.stage.itemsize) for box in boxes])
        return at, self._typed(datatype)


class TypedMove(Typed):
    """Boxes that only change places."""

    @abstractmethod
    def _begin(self, source: Bytes, target: Bytes) -> list[MPI.Request]:
        """As `run`, but for what stays on the device, without waiting."""

    def start(self, source: Bytes, target: Bytes) -> Callable[[], None]:
        requests = self._begin(source, target)

        def done() -> None:
            self._keep(source, target)
            MPI.Request.Waitall(requests)

        return done


class TypedGroup(TypedMove):
    """One `Alltoallw` over the group of a gather or an all-to-all."""

    def __init__(self, stage: Stage, step: AllGather | AllToAll, group: MPI.Intracomm) -> None:
        super().__init__(stage)
        self.group = group
        order = step.group_of(stage.device)
        self.send = self._columns(order, dict(stage.sends), stage.source)
        self.receive = self._columns(order, dict(stage.receives), stage.target())

    def _columns(
        self, order: list[int], boxes: dict[int, Box], tile: Box
    ) -> tuple[tuple[list[int], list[int]], list[MPI.Datatype]]:
        placed = [self._placed([boxes[m]], tile) if m in boxes else (0, MPI.BYTE) for m in order]
        return ([int(m in boxes) for m in order], [at for at, _ in placed]), [datatype for _, datatype in placed]

    def run(self, source: Bytes, target: Bytes) -> None:
        self.group.Alltoallw([source, *self.send], [target, *self.receive])
        self._keep(source, target)

    def _begin(self, source: Bytes, target: Bytes) -> list[MPI.Request]:
        return [self.group.Ialltoallw([source, *self.send], [target, *self.receive])]


class TypedNeighbours(TypedMove):
    """One `Neighbor_alltoallw` over exactly the devices that share data: an exchange as it is."""

    def __init__(self, stage: Stage, graph: MPI.Distgraphcomm) -> None:
        super().__init__(stage)
        self.graph = graph
        self.send = [self._placed(boxes, stage.source) for _, boxes in by_device(stage.sends)]
        self.receive = [self._placed(boxes, stage.target()) for _, boxes in by_device(stage.receives)]

    def run(self, source: Bytes, target: Bytes) -> None:
        self.graph.Neighbor_alltoallw(message(source, self.send), message(target, self.receive))
        self._keep(source, target)

    def _begin(self, source: Bytes, target: Bytes) -> list[MPI.Request]:
        return [self.graph.Ineighbor_alltoallw(message(source, self.send), message(target, self.receive))]


class TypedPermute(TypedMove):
    """Tiles from point to point between boxes of larger tiles."""

    def __init__(self, stage: Stage, comm: MPI.Intracomm) -> None:
        super().__init__(stage)
        self.comm = comm
        self.send = [(device, self._type([box], stage.source)) for device, box in stage.sends]
        self.receive = [(device, self._type([box], stage.target())) for device, box in stage.receives]

    def run(self, source: Bytes, target: Bytes) -> None:
        self.start(source, target)()

    def _begin(self, source: Bytes, target: Bytes) -> list[MPI.Request]:
        requests = [self.comm.Irecv([target, 1, datatype], device, TAG) for device, datatype in self.receive]
        return requests + [self.comm.Isend([source, 1, datatype], device, TAG) for device, datatype in self.send]


def message(memory: Bytes, placed: Sequence[tuple[int, MPI.Datatype]]) -> list[Any]:
    """One side of a neighbourhood collective: for each neighbour a datatype and where it lies."""
    return [memory, [1] * len(placed), [at for at, _ in placed], [datatype for _, datatype in placed]]


def neighbours(stage: Stage) -> tuple[list[int], list[int]]:
    """Ranks (received from, sent to) of an exchange, in the order that its neighbourhood collectives use."""
    return [d for d, _ in by_device(stage.receives)], [d for d, _ in by_device(stage.sends)]


def by_device(moves: Sequence[tuple[int, Box]]) -> list[tuple[int, list[Box]]]:
    """Boxes by the device that they come from or go to, ascending."""
    grouped: dict[int, list[Box]] = {}
    for device, box in moves:
        grouped.setdefault(device, []).append(box)
    return sorted(grouped.items())


def packed(stage: Stage, comm: MPI.Intracomm, group: Callable[[], MPI.Intracomm]) -> Runner:
    """The packed transport of a stage; `group` gives the communicator of its group or neighbourhood."""
    if isinstance(stage.step, AllGather):
        return PackedGather(stage, stage.step, group())
    if isinstance(stage.step, AllToAll):
        return PackedAllToAll(stage, stage.step, group())
    if isinstance(stage.step, AllPermute):
        return PackedPermute(stage, comm)
    return PackedNeighbours(stage, cast(MPI.Distgraphcomm, group()))


def typed(stage: Stage, comm: MPI.Intracomm, group: Callable[[], MPI.Intracomm]) -> Runner:
    """The transport of a stage by datatypes; `group` gives the communicator of its group or neighbourhood."""
    if isinstance(stage.step, AllGather | AllToAll):
        return TypedGroup(stage, stage.step, group())
    if isinstance(stage.step, AllPermute):
        return TypedPermute(stage, comm)
    return TypedNeighbours(stage, cast(MPI.Distgraphcomm, group()))
