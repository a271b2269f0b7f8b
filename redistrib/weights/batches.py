"""Batches: the tensors that are read and moved together, and the pieces of them that each device reads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax.rows import AXIS
from redistrib.theory.boxes import Box, boxes_of
from redistrib.weights.headers import StoredTensor
from redistrib.weights.landing import landing
from redistrib.weights.layout import ReadingLayout, line_by_process, reading_layout
from redistrib.weights.reading import BoxPiece, PartsPiece, Piece
from redistrib.weights.targets import TargetTensor

BATCH_BYTES = 8 * 2**20  # of each device; while a batch moves the next one is read
SMALL_BYTES = 64 * 2**20  # of small tensors that every process gathers at a time
_ROUND = 4096  # a device's part of the small tensors is padded to a multiple of so many bytes


@dataclass(frozen=True)
class CutArray:
    """An array that is cut over the devices for reading: a tensor, or the bytes of small tensors end to end.

    Attributes:
        stored: the tensor, or the small ones in order.
        dtype: its element type; None for bytes of small tensors.
        layout: how it is cut.
    """

    stored: tuple[StoredTensor, ...]
    dtype: str | None
    layout: ReadingLayout

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(stored.nbytes for stored in self.stored)

    @property
    def logical(self) -> tuple[int, ...] | None:
        """The shape of the tensor if the array has zeros behind it; None for small tensors, whose zeros move too."""
        return None if self.dtype is None or self.stored[0].shape == self.layout.shape else self.stored[0].shape

    @cached_property
    def pieces(self) -> dict[Any, Piece]:
        """For each device of this process what it reads, which may be empty, in file order."""
        return self.pieces_of_devices(here=True)

    def pieces_of_devices(self, here: bool = False) -> dict[Any, Piece]:
        """For each device, or for each of this process, what it reads, which may be empty, in file order."""
        boxes = boxes_of(self.layout.sharding, self.layout.shape, here)
        return {device: self._piece(box) for device, box in sorted(boxes.items(), key=lambda item: item[1].start)}

    def _piece(self, box: Box) -> Piece:
        if self.dtype is not None:
            return BoxPiece(self.stored[0], box.cut_to(self.stored[0].shape), box.size)
        ((start, stop),) = box.edges
        parts, place = [], 0
        for tensor in self.stored:  # its bytes are those from `place` on
            first, last = max(place, start), min(place + tensor.nbytes, stop)
            if first < last:
                parts.append((tensor, first - place, last - first))
            place += tensor.nbytes
        return PartsPiece(tuple(parts), stop - start)


Batch: TypeAlias = tuple[CutArray, ...]  # read together, and then moved while the next batch is read


def pieces_of(batches: Iterable[Batch]) -> list[Piece]:
    """The pieces that this process reads, in order."""
    return [piece for batch in batches for array in batch for piece in array.pieces.values()]


def line_of_landing(tensors: Sequence[TargetTensor]) -> Mesh:
    """All devices on which tensors land, as a line."""
    return line_by_process(set[Any]().union(*(landing(tensor.sharding).device_set for tensor in tensors)))


def in_batches(tensors: Sequence[TargetTensor], line: Mesh, hosts: Mapping[Any, Hashable] | None = None) -> list[Batch]:
    """The tensors to load, each once, in batches: small tensors first, then those that are cut, in file order.

    Args:
        tensors: to load; a tensor may occur under several shardings.
        line: the devices on which tensors land, of all processes that take part.
        hosts: the host of each device; by default its process.
    """
    targets: dict[StoredTensor, list[Sharding]] = {}
    for tensor in tensors:
        targets.setdefault(tensor.stored, []).append(landing(tensor.sharding))
    cut: list[list[CutArray]] = [[]]
    small: list[list[StoredTensor]] = [[]]
    filled = filled_small = 0
    for stored in sorted(targets, key=lambda stored: (stored.file, stored.start)):
        layout = reading_layout(stored, line, targets[stored], hosts)
        if layout is None:
            if small[-1] and filled_small + stored.nbytes > SMALL_BYTES:
                small.append([])
                filled_small = 0
            small[-1].append(stored)
            filled_small += stored.nbytes
            continue
        if cut[-1] and filled + stored.nbytes > BATCH_BYTES * line.size:
            cut.append([])
            filled = 0
        cut[-1].append(CutArray((stored,), stored.dtype, layout))
        filled += stored.nbytes
    return [*((_small(group, line),) for group in small if group), *(tuple(group) for group in cut if group)]


def _small(stored: Sequence[StoredTensor], line: Mesh) -> CutArray:
    part = max(_ROUND, -(-sum(tensor.nbytes for tensor in stored) // (line.size * _ROUND)) * _ROUND)
    layout = ReadingLayout(NamedSharding(line, PartitionSpec(AXIS)), (part * line.size,))
    return CutArray(tuple(stored), None, layout)
