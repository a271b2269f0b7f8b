"""Moves without a plan: from a root to many ranks, from many ranks to a root, and boxes between any ranks.

From a root an array takes at most two calls: a scatter of different tiles to one rank each, and broadcasts to the
replicas. To a root, partial sums are reduced on one rank for each tile, and these ranks' tiles are gathered. Any other
move is one neighbourhood collective of boxes between the ranks that send to one another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi.arrays import dtype_of, flat
from redistrib.backends.mpi.datatypes import TypeOwner, run_type, strided_type
from redistrib.backends.mpi.groups import Groups
from redistrib.backends.mpi.reductions import operation_of
from redistrib.backends.mpi.transports import exchange
from redistrib.backends.stages import by_device
from redistrib.lang.notation import Reduction
from redistrib.plans.dtypes import default_accumulation
from redistrib.plans.reduction import Accumulator, identity, view
from redistrib.plans.strided import Bytes, copy, runs_in, runs_in_both
from redistrib.programs.ir.direct import direct_transfers, gathering, scattering
from redistrib.programs.ir.program import Value
from redistrib.theory.boxes import Box

Tile: TypeAlias = npt.NDArray[Any]

_NO_BYTES: Bytes = np.empty(0, np.uint8)


class DirectMove(TypeOwner, ABC):
    """A move, created on all ranks together and run on the ranks that take part.

    Attributes:
        calls: the MPI calls on this rank, in order.
    """

    def __init__(self, value: Value, groups: Groups) -> None:
        super().__init__()
        self.value = value
        self.dtype = dtype_of(value.dtype)
        self.rank = groups.comm.rank
        self.calls: tuple[str, ...] = ()

    @abstractmethod
    def run(self, tile: Tile | None) -> Tile | None:
        """The tile of this rank after the move, from its tile before; None for no tile."""

    def _block(self) -> MPI.Datatype:
        """The datatype of a contiguous tile."""
        return self._typed(run_type(math.prod(self.value.tile) * self.dtype.itemsize))

    def _tiles(self) -> MPI.Datatype:
        """The datatype of a tile inside the whole array, at a displacement in elements."""
        tile, whole = (Box((0,) * len(shape), shape) for shape in (self.value.tile, self.value.shape))
        inner = strided_type([runs_in(tile, whole, self.dtype.itemsize)])
        resized = self._typed(inner.Create_resized(0, self.dtype.itemsize).Commit())
        inner.Free()
        return resized

    def _offset(self, start: tuple[int, ...]) -> int:
        """Elements before the first element of a box in the whole array."""
        return int(np.ravel_multi_index(start, self.value.shape)) if start else 0


class Scatter(DirectMove):
    """A whole array on one rank becomes the tiles of a value; all partial sums but the first are identity elements."""

    def __init__(self, value: Value, root: int, groups: Groups) -> None:
        super().__init__(value, groups)
        self.root = root
        devices, scatter = value.place.devices, scattering(value, root)
        self._box: dict[int, Box] = dict(zip(devices, value.boxes.rows(), strict=True))
        self._label = dict(zip(devices, value.placement.label.tolist(), strict=True)).get(self.rank)
        self._members = scatter.members
        self._scattering = groups.among([scatter.members]) if scatter.members else None
        self._broadcasting = groups.among(scatter.groups) if scatter.groups else None
        self.calls = (*["Scatterv"] * (self._scattering is not None), *["Bcast"] * (self._broadcasting is not None))
        self._block_type = self._block()
        if self._scattering is not None and self.rank == root:
            self._sent_type = self._block_type if value.windows else self._tiles()

    def run(self, tile: Tile | None) -> Tile | None:
        result = self._new()
        if self._scattering is not None:
            is_sent = self._label == 0 and result is not None
            into = [flat(cast(Tile, result)), 1, self._block_type] if is_sent else [_NO_BYTES, 0, MPI.BYTE]
            self._scattering.Scatterv(self._sent(tile), into, 0)
        elif self.rank == self.root and self._label == 0 and result is not None and tile is not None:
            np.copyto(result, tile)
        if self._broadcasting is not None:
            shown = cast(Tile, result if self._members or self.rank != self.root else tile)
            self._broadcasting.Bcast([flat(shown), 1, self._block_type], 0)
        return result

    def _new(self) -> Tile | None:
        if self._label is None:
            return None
        result = np.empty(self.value.tile, self.dtype)
        if self._label:
            result[...] = identity(self.value.placement.reduction or "sum", self.dtype)
        return result

    def _sent(self, whole: Tile | None) -> list[Any] | None:
        if whole is None or self.rank != self.root:
            return None
        present = [device for device in self._members if device in self._box]
        counts = [int(device in self._box) for device in self._members]
        if self.value.windows:  # MPI reads no element of a scatter twice
            apart = np.stack([view(whole, self._box[device].start, self._box[device].size) for device in present])
            places = np.cumsum([0, *counts[:-1]]).tolist()
            return [flat(apart), (counts, places), self._sent_type]
        places = [self._offset(self._box[device].start) if device in self._box else 0 for device in self._members]
        return [flat(whole), (counts, places), self._sent_type]


class Gather(DirectMove):
    """The tiles of a value become a whole array on one rank; partial sums are reduced first."""

    def __init__(self, value: Value, root: int, groups: Groups) -> None:
        super().__init__(value, groups)
        self.root = root
        gather = gathering(value, root)
        start = dict(zip(value.place.devices, (box.start for box in value.boxes.rows()), strict=True))
        self._kind: Reduction | None = value.placement.reduction
        self._team = groups.among(gather.teams) if self._kind is not None and gather.teams else None
        ends = zip(gather.teams, gather.senders, strict=True)
        self._reducer = next((team.index(sender) for team, sender in ends if self.rank in team), 0)
        self._sends = self.rank in gather.senders
        self._members = gather.members
        self._gathering = groups.among([gather.members]) if gather.members else None
        self._places = [self._offset(start[device]) if device in gather.senders else 0 for device in gather.members]
        self._counts = [int(device in gather.senders) for device in gather.members]
        self.calls = (*["Reduce"] * (self._team is not None), *["Gatherv"] * (self._gathering is not None))
        self._block_type = self._block()
        if self._gathering is not None and self.rank == root:
            self._received_type = self._tiles()

    def run(self, tile: Tile | None) -> Tile | None:
        if self._team is not None and tile is not None:
            tile = self._reduced(tile, self._team)
        whole = np.empty(self.value.shape, self.dtype) if self.rank == self.root else None
        if self._gathering is not None:
            out = [flat(cast(Tile, tile)), 1, self._block_type] if self._sends else [_NO_BYTES, 0, MPI.BYTE]
            into = None if whole is None else [flat(whole), (self._counts, self._places), self._received_type]
            self._gathering.Gatherv(out, into, 0)
        elif whole is not None and tile is not None and whole.size:
            np.copyto(whole, tile)
        return whole

    def _reduced(self, tile: Tile, team: MPI.Intracomm) -> Tile | None:
        """The reduced tile of a team, on the rank that sends it to the root."""
        kind = self._kind or "sum"
        wide = default_accumulation(kind, self.dtype.name)
        operation = operation_of(kind, self.dtype) if wide is None else None
        is_reducer = team.rank == self._reducer
        if operation is not None:
            total = np.empty_like(tile) if is_reducer else None
            team.Reduce(tile, total, operation, self._reducer)
            return total
        summands = np.empty((team.size, *tile.shape), tile.dtype) if is_reducer else None
        into = None if summands is None else [flat(summands), 1, self._block_type]
        team.Gather([flat(tile), 1, self._block_type], into, self._reducer)
        if summands is None:
            return None
        added = Accumulator(tile.shape, tile.dtype, kind, wide)
        for summand in summands:
            added.add([0] * tile.ndim, summand)
        return added.result()


class BoxExchange(DirectMove):
    """Every rank receives its missing boxes from ranks that hold them."""

    def __init__(self, value: Value, out: Value, groups: Groups) -> None:
        super().__init__(out, groups)
        members = sorted({*value.place.devices, *out.place.devices})
        number = {device: k for k, device in enumerate(members)}
        table = direct_transfers(value, out)
        sends = [(number[device], box) for device, box in table.travelling.sends(self.rank)]
        receives = [(number[device], box) for device, box in table.travelling.receives(self.rank)]
        before, after = (self._box(end) for end in (value, out))
        self._receives = after is not None
        self._graph: MPI.Distgraphcomm | None = None
        size = self.dtype.itemsize
        if before is not None and after is not None:
            self._local_copies = [runs_in_both(box, before, after, size) for box in table.staying(self.rank)]
        else:
            self._local_copies = []
        comm = groups.among([members]) if len(table.travelling) else None
        self._send, self._receive = (
            [self._placed(boxes, tile, size) for _, boxes in by_device(moves)] if tile is not None else []
            for moves, tile in ((sends, before), (receives, after))
        )
        if comm is not None:
            sources, destinations = ([device for device, _ in by_device(moves)] for moves in (receives, sends))
            self._graph = comm.Create_dist_graph_adjacent(sources, destinations)
            self.calls = ("Neighbor_alltoallw",)

    def _box(self, value: Value) -> Box | None:
        devices = value.place.devices
        return Box(tuple(value.corner[devices.index(self.rank)].tolist()), value.tile) if self.rank in devices else None

    def run(self, tile: Tile | None) -> Tile | None:
        make = np.zeros if self.value.has_halos else np.empty
        result = make(self.value.tile, self.dtype) if self._receives else None
        source, target = (_NO_BYTES if array is None else flat(array) for array in (tile, result))
        if self._graph is not None:
            exchange(self._graph, source, self._send, target, self._receive)
        for of, to in self._local_copies:
            copy(target, to, source, of)
        return result

    def free(self) -> None:
        super().free()
        if self._graph is not None:
            self._graph.Free()
            self._graph = None


def direct(value: Value, out: Value, groups: Groups) -> DirectMove:
    """The move of a value between places; collective."""
    if out.has_halos:
        return BoxExchange(value, out, groups)
    if len(value.place.devices) == 1:
        return Scatter(out, value.place.devices[0], groups)
    if len(out.place.devices) == 1:
        return Gather(value, out.place.devices[0], groups)
    return BoxExchange(value, out, groups)
