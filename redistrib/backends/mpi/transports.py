"""The two transports of a stage through MPI: packed into contiguous memory, or by datatypes.

A runner is created once, on all ranks of the communicator together, and then runs any number of times on flat byte
buffers. NumPy copies the boxes that stay on a device; MPI sends only the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi.datatypes import Placed, TypeOwner, run_type
from redistrib.backends.stages import Stage, by_device
from redistrib.plans.steps import AllGather, AllToAll
from redistrib.plans.strided import Bytes, Strided, copy, runs_in, runs_in_both, start_if_contiguous
from redistrib.theory.boxes import Box

TAG = 7


class Runner(TypeOwner, ABC):
    """One stage, ready to run.

    Attributes:
        name: of the transport, in reports.
        scratch: bytes of staging memory that it needs; `bind` provides them.
        beside: bytes of memory that it allocates itself.
    """

    name: ClassVar[str]
    scratch: int = 0
    beside: int = 0

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.local_copies = stage.local_copies()

    def bind(self, scratch: Bytes) -> None:
        """Take staging memory of at least `scratch` bytes."""

    @abstractmethod
    def run(self, source: Bytes, target: Bytes) -> None:
        """Run the stage from one flat buffer into another, or in one buffer for a stage in place."""

    def _copy_locally(self, source: Bytes, target: Bytes) -> None:
        for of, to in self.local_copies:
            copy(target, to, source, of)


class _Side:
    """One side of a packed collective: boxes of a tile laid end to end, or the tile itself where they lie so."""

    def __init__(self, boxes: Sequence[Box], tile: Box, itemsize: int) -> None:
        self.nbytes = sum(box.volume for box in boxes) * itemsize
        self.copies: list[tuple[Strided, Strided]] = []  # (in the tile, in the staging memory)
        at = 0
        for box in boxes:
            self.copies.append(runs_in_both(box, tile, box, itemsize, 0, at))
            at += box.volume * itemsize
        self.direct = start_if_contiguous([runs_in(box, tile, itemsize) for box in boxes])
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
    """Boxes packed end to end, one collective over contiguous memory, and boxes unpacked."""

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

    def run(self, source: Bytes, target: Bytes) -> None:
        self.out.pack(source)
        self._send(self.out.window(source), self.into.window(target))
        self._copy_locally(source, target)
        self.into.unpack(target)


class PackedGroup(Packed):
    """`Allgather` or `Alltoall` of a group: equal blocks, one of them from the member to itself."""

    def __init__(self, stage: Stage, step: AllGather | AllToAll, group: MPI.Intracomm) -> None:
        self.group = group
        order, retained = step.group_of(stage.device), stage.retained
        sends, receives = dict(stage.sends), dict(stage.receives)
        self.gathers = isinstance(step, AllGather)
        out = retained if self.gathers else [sends.get(member, retained[0]) for member in order] if retained else []
        super().__init__(stage, out, [receives.get(member, retained[0]) for member in order] if retained else [])
        self.block = self._typed(run_type(self.into.nbytes // max(1, len(order))))
        self.local_copies = []  # the collective delivers the retained box too
        self.in_place = self.gathers and stage.reads == stage.writes and not self.into.staged
        if self.in_place:
            self.scratch = 0
            self.out.staged = False

    def _send(self, out: Bytes, into: Bytes) -> None:
        sent = MPI.IN_PLACE if self.in_place else [out, 1, self.block]
        call = self.group.Allgather if self.gathers else self.group.Alltoall
        call(sent, [into, 1, self.block])


class PackedNeighbours(Packed):
    """One neighbourhood collective of packed boxes, between the devices that send to one another."""

    def __init__(self, stage: Stage, graph: MPI.Distgraphcomm) -> None:
        self.graph = graph
        out, into = by_device(stage.sends), by_device(stage.receives)
        super().__init__(stage, [b for _, boxes in out for b in boxes], [b for _, boxes in into for b in boxes])
        self.send, self.receive = self._blocks(out), self._blocks(into)

    def _blocks(self, peers: list[tuple[int, list[Box]]]) -> list[Placed]:
        sizes = [sum(box.volume for box in boxes) * self.stage.itemsize for _, boxes in peers]
        return [(sum(sizes[:k]), self._typed(run_type(size))) for k, size in enumerate(sizes)]

    def _send(self, out: Bytes, into: Bytes) -> None:
        exchange(self.graph, out, self.send, into, self.receive)


class TypedNeighbours(Runner):
    """One neighbourhood collective on datatypes of the boxes, without staging memory."""

    name = "datatypes"

    def __init__(self, stage: Stage, graph: MPI.Distgraphcomm) -> None:
        super().__init__(stage)
        self.graph = graph
        self.send = [self._placed(boxes, stage.source, stage.itemsize) for _, boxes in by_device(stage.sends)]
        self.receive = [self._placed(boxes, stage.target(), stage.itemsize) for _, boxes in by_device(stage.receives)]

    def run(self, source: Bytes, target: Bytes) -> None:
        exchange(self.graph, source, self.send, target, self.receive)
        self._copy_locally(source, target)


def exchange(
    graph: MPI.Distgraphcomm, source: Bytes, send: Sequence[Placed], target: Bytes, receive: Sequence[Placed]
) -> None:
    """`Neighbor_alltoallw`: to and from each neighbour of a graph one datatype at a displacement in a buffer."""

    def side(memory: Bytes, placed: Sequence[Placed]) -> list[Any]:
        return [memory, [1] * len(placed), [at for at, _ in placed], [datatype for _, datatype in placed]]

    graph.Neighbor_alltoallw(side(source, send), side(target, receive))


def neighbours(stage: Stage) -> tuple[list[int], list[int]]:
    """The ranks that a stage receives from, and those it sends to, in the order of its neighbourhood collective."""
    return [d for d, _ in by_device(stage.receives)], [d for d, _ in by_device(stage.sends)]
