"""Batches: the tensors that are read and moved together, and the pieces of them that this process reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
class CutTensor:
    """A tensor that is cut over the devices for reading.

    Attributes:
        stored: the tensor.
        layout: how it is cut.
        pieces: for each device of this process the box that it reads, which may be empty.
    """

    stored: StoredTensor
    layout: ReadingLayout
    pieces: dict[Any, BoxPiece]


@dataclass(frozen=True)
class SmallTensors:
    """Small tensors that are read together, as one sequence of bytes.

    Attributes:
        stored: the tensors, in order.
        sharding: of the bytes, over all devices that take part.
        part: bytes of each device.
        pieces: for each device of this process the bytes that it reads.
    """

    stored: tuple[StoredTensor, ...]
    sharding: NamedSharding
    part: int
    pieces: dict[Any, PartsPiece]


@dataclass(frozen=True)
class Batch:
    """Tensors that are read together, and then moved while the next batch is read.

    Attributes:
        cut: tensors that are cut over the devices.
        small: small tensors, or None.
    """

    cut: tuple[CutTensor, ...]
    small: SmallTensors | None

    @property
    def pieces(self) -> list[Piece]:
        """The pieces that this process reads, in order."""
        result: list[Piece] = [piece for tensor in self.cut for piece in tensor.pieces.values()]
        return result + ([] if self.small is None else list(self.small.pieces.values()))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        small = () if self.small is None else self.small.stored
        return sum(tensor.stored.nbytes for tensor in self.cut) + sum(stored.nbytes for stored in small)


def in_batches(tensors: Sequence[TargetTensor], line: Mesh) -> list[Batch]:
    """The tensors to load, each once, in batches: small tensors first, then those that are cut, in file order.

    Args:
        tensors: to load; a tensor may occur under several shardings.
        line: the devices on which tensors land, of all processes that take part.
    """
    targets: dict[StoredTensor, list[Sharding]] = {}
    for tensor in tensors:
        targets.setdefault(tensor.stored, []).append(landing(tensor.sharding))
    cut: list[list[CutTensor]] = [[]]
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
        pieces = {device: BoxPiece(stored, box, tile) for device, box in layout.boxes(stored).items()}
        cut[-1].append(CutTensor(stored, layout, pieces))
        filled += stored.nbytes
    together = [Batch((), _small(group, line)) for group in small if group]
    return together + [Batch(tuple(group), None) for group in cut if group]


def _small(stored: Sequence[StoredTensor], line: Mesh) -> SmallTensors:
    total = sum(tensor.nbytes for tensor in stored)
    part = max(_ROUND, -(-total // (line.size * _ROUND)) * _ROUND)
    pieces = {}
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
    return SmallTensors(tuple(stored), NamedSharding(line, PartitionSpec(AXIS)), part, pieces)
