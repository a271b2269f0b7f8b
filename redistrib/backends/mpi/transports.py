"""A stage through MPI by datatypes: one neighbourhood collective on strided memory, without staging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from redistrib.backends.mpi.datatypes import Placed, TypeOwner
from redistrib.backends.ranks.protocols import RankMemory
from redistrib.backends.ranks.runners import Runner
from redistrib.backends.stages import Stage, by_device
from redistrib.plans.strided import Bytes


class TypedNeighbours(TypeOwner, Runner):
    """One neighbourhood collective on datatypes of the boxes."""

    name = "datatypes"

    def __init__(self, stage: Stage, memory: RankMemory, graph: MPI.Distgraphcomm) -> None:
        TypeOwner.__init__(self)
        Runner.__init__(self, stage, memory)
        self.graph = graph
        self.send = [self._placed(boxes, stage.source, stage.itemsize) for _, boxes in by_device(stage.sends)]
        self.receive = [self._placed(boxes, stage.target(), stage.itemsize) for _, boxes in by_device(stage.receives)]

    def run(self, source: Bytes, target: Bytes, staging: Bytes) -> tuple[()]:
        exchange(self.graph, source, self.send, target, self.receive)
        self.copy_locally(source, target)
        return ()


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
