"""Batches: the tensors that are read and moved together, and the pieces of them that this process reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax.rows import AXIS
from redistrib.weights.headers import StoredTensor
from redistrib.weights.landing import landing
from redistrib.weights.layout import ReadingLayout, reading_layout
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
        pieces: for each device of this process what it reads, which may be empty.
    """

    stored: tuple[StoredTensor, ...]
    dtype: str | None
    layout: ReadingLayout
    pieces: dict[Any, Piece]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(stored.nbytes for stored in self.stored)


Batch: TypeAlias = tuple[CutArray, ...]  # read together, and then moved while the next batch is read


def pieces_of(batches: Iterable[Batch]) -> list[Piece]:
    """The pieces that this process reads, in order."""
    return [piece for batch in batches for array in batch for piece in array.pieces.values()]


def in_batches(tensors: Sequence[TargetTensor], line: Mesh) -> list[Batch]:
    """The tensors to load, each once, in batches: small tensors first, then those that are cut, in file order.

    Args:
        tensors: to load; a tensor may occur under several shardings.
        line: the devices on which tensors land, of all processes that take part.
    """
    targets: dict[StoredTensor, list[Sharding]] = {}
    for tensor in tensors:
        targets.setdefault(tensor.stored, []).append(landing(tensor.sharding))
    cut: list[list[CutArray]] = [[]]
    small: list[list[StoredTensor]] = [[]]
    filled = filled_small = 0
    for stored in sorted(targets, key=lambda stored: (stored.file, stored.start)):
        layout = reading_layout(stored, line, targets[stored])
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
        tile = layout.sharding.shard_shape(layout.shape)
        pieces: dict[Any, Piece] = {device: BoxPiece(stored, box, tile) for device, box in layout.boxes(stored).items()}
        cut[-1].append(CutArray((stored,), stored.dtype, layout, pieces))
        filled += stored.nbytes
    return [*((_small(group, line),) for group in small if group), *(tuple(group) for group in cut if group)]


def _small(stored: Sequence[StoredTensor], line: Mesh) -> CutArray:
    total = sum(tensor.nbytes for tensor in stored)
    part = max(_ROUND, -(-total // (line.size * _ROUND)) * _ROUND)
    pieces: dict[Any, Piece] = {}
    for k, device in enumerate(line.devices.flat):
        if device.process_index != jax.process_index():
            continue
        parts, place = [], 0
        for tensor in stored:  # its bytes are those from `place` on
            first, last = max(place, k * part), min(place + tensor.nbytes, (k + 1) * part)
            if first < last:
                parts.append((tensor, first - place, last - first))
            place += tensor.nbytes
        pieces[device] = PartsPiece(tuple(parts), part)
    layout = ReadingLayout(NamedSharding(line, PartitionSpec(AXIS)), (part * line.size,))
    return CutArray(tuple(stored), None, layout, pieces)
