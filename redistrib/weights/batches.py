"""Which tensors are read and moved together, and which bytes of them this process reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax.rows import AXIS
from redistrib.weights.headers import StoredTensor
from redistrib.weights.layout import ReadingLayout, reading_layout
from redistrib.weights.reading import BoxPiece, PartsPiece, Piece
from redistrib.weights.targets import WantedTensor

BATCH_BYTES = 8 * 2**20  # of each device; while a batch moves the next one is read
SMALL_BYTES = 64 * 2**20  # of small tensors that are gathered on every process at a time
_ROUND = 4096  # bytes to a multiple of which a device's part of the small tensors is padded


@dataclass(frozen=True)
class CutTensor:
    """A tensor that is read in a layout of its own.

    Attributes:
        stored: the tensor.
        layout: how it is cut.
        pieces: what each device of this process reads of it; None of one whose box is empty.
    """

    stored: StoredTensor
    layout: ReadingLayout
    pieces: dict[Any, BoxPiece]


@dataclass(frozen=True)
class SmallTensors:
    """Small tensors that are read together, as bytes one behind the other.

    Attributes:
        stored: the tensors, in order.
        sharding: of their bytes, over all devices that take part.
        part: bytes of each device.
        pieces: what each device of this process reads.
    """

    stored: tuple[StoredTensor, ...]
    sharding: NamedSharding
    part: int
    pieces: dict[Any, PartsPiece]


@dataclass(frozen=True)
class Batch:
    """What is read, and then moved while the next one is read.

    Attributes:
        cut: tensors that are cut.
        small: tensors that are not.
    """

    cut: tuple[CutTensor, ...]
    small: SmallTensors | None

    @property
    def pieces(self) -> list[Piece]:
        """What this process reads, in order."""
        result: list[Piece] = [piece for each in self.cut for piece in each.pieces.values()]
        return result + ([] if self.small is None else list(self.small.pieces.values()))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        small = () if self.small is None else self.small.stored
        return sum(each.stored.nbytes for each in self.cut) + sum(stored.nbytes for stored in small)


def in_batches(wanted: Sequence[WantedTensor], line: Mesh) -> list[Batch]:
    """The tensors that are wanted, each once, in batches: small ones first, then those that are cut, in file order.

    Args:
        wanted: what is asked for; a tensor may be there under several shardings.
        line: the devices of all processes that take part.
    """
    targets: dict[StoredTensor, list[Sharding]] = {}
    for each in wanted:
        targets.setdefault(each.stored, []).append(each.sharding)
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
    together = [Batch((), _small(each, line)) for each in small if each]
    return together + [Batch(tuple(each), None) for each in cut if each]


def _small(stored: Sequence[StoredTensor], line: Mesh) -> SmallTensors:
    total = sum(each.nbytes for each in stored)
    part = max(_ROUND, -(-total // (line.size * _ROUND)) * _ROUND)
    pieces = {}
    for k, device in enumerate(line.devices.flat):
        if device.process_index != jax.process_index():
            continue
        parts, place = [], 0
        for each in stored:  # its bytes are those from `place` on
            first, last = max(place, k * part), min(place + each.nbytes, (k + 1) * part)
            if first < last:
                parts.append((each, first - place, last - first))
            place += each.nbytes
        pieces[device] = PartsPiece(tuple(parts), part)
    return SmallTensors(tuple(stored), NamedSharding(line, PartitionSpec(AXIS)), part, pieces)
