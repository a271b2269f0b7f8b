"""Reading where each process reads by itself: one process alone, or several that each have a copy of the files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from redistrib.plans.dtypes import dtype_of
from redistrib.weights.reading import BoxPiece, PieceReader
from redistrib.weights.runs import Box, box_of, shape_of
from redistrib.weights.targets import WantedTensor


@dataclass(frozen=True)
class DirectTensor:
    """What this process reads of a tensor.

    Attributes:
        wanted: the tensor.
        pieces: each either the box of some devices, or one box in which those of all are.
        boxes: of each device of this process that has a tile.
    """

    wanted: WantedTensor
    pieces: tuple[BoxPiece, ...]
    boxes: dict[Any, Box]


def direct_tensor(wanted: WantedTensor, most_bytes: int) -> DirectTensor:
    """The boxes of a tensor that this process needs, each byte once.

    Where the boxes of the process fill whole rows they are read as one run, if that has at most so many bytes.
    """
    stored = wanted.stored
    indices = wanted.sharding.addressable_devices_indices_map(stored.shape)
    boxes = {device: box_of(index or (), stored.shape) for device, index in indices.items()}
    different = sorted(set(boxes.values()))
    if stored.shape and different:
        rows = (min(box[0][0] for box in different), max(box[0][1] for box in different))
        hull: Box = (rows, *((0, size) for size in stored.shape[1:]))
        elements = math.prod(shape_of(hull))
        if elements == sum(math.prod(shape_of(box)) for box in different) and elements * stored.itemsize <= most_bytes:
            different = [hull]
    pieces = tuple(BoxPiece(stored, box, shape_of(box)) for box in different)
    return DirectTensor(wanted, pieces, boxes)


def put(each: DirectTensor, reader: PieceReader) -> jax.Array:
    """Take what has been read of a tensor, and put it on the devices of this process."""
    stored, sharding = each.wanted.stored, each.wanted.sharding
    dtype, tiles = dtype_of(stored.dtype), {}
    for piece in each.pieces:
        values = reader.next().view(dtype).reshape(piece.shape)
        for device, box in each.boxes.items():
            if _is_inside(box, piece.box):
                part = tuple(
                    slice(start - origin, stop - origin)
                    for (start, stop), (origin, _) in zip(box, piece.box, strict=True)
                )
                tiles[device] = jax.device_put(values[part], device)
        jax.block_until_ready(list(tiles.values()))
        del values
        reader.release(piece.nbytes)
    arrays = [tiles[device] for device in each.boxes]
    return jax.make_array_from_single_device_arrays(stored.shape, sharding, arrays, dtype=dtype)


def _is_inside(box: Box, other: Box) -> bool:
    return all(first <= start and stop <= last for (start, stop), (first, last) in zip(box, other, strict=True))


def from_host(values: np.ndarray, wanted: WantedTensor) -> jax.Array:
    """A tensor that this process has whole, on its devices."""
    indices = wanted.sharding.addressable_devices_indices_map(values.shape)
    tiles: Sequence[jax.Array] = [jax.device_put(values[index], device) for device, index in indices.items()]
    return jax.make_array_from_single_device_arrays(values.shape, wanted.sharding, tiles, dtype=values.dtype)
