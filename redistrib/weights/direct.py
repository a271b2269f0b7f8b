"""Reading by one process for its devices alone: a single process, or one of several that each have the files."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from redistrib.backends.jax.memory_kinds import in_default, of_device
from redistrib.plans.dtypes import dtype_of
from redistrib.theory.boxes import boxes_of, rows_around
from redistrib.weights.reading import BoxPiece, PieceReader
from redistrib.weights.targets import TargetTensor


def tile_pieces(target: TargetTensor, most_bytes: int) -> list[BoxPiece]:
    """The boxes of a tensor that this process reads, each byte once: the distinct tiles of its devices.

    Tiles that fill whole rows are read as one run of at most `most_bytes`.
    """
    stored = target.stored
    tiles = boxes_of(target.sharding, stored.shape, here=True)
    different = sorted(set(tiles.values()), key=lambda box: box.start)
    if stored.shape and different:
        hull = rows_around(stored.shape, different)
        if hull.volume == sum(box.volume for box in different) and hull.volume * stored.itemsize <= most_bytes:
            different = [hull]
    return [BoxPiece(stored, box, box.size) for box in different]


def put(target: TargetTensor, pieces: Sequence[BoxPiece], reader: PieceReader) -> jax.Array:
    """Take the pieces of a tensor from the reader, and put its tiles on the devices of this process.

    If it is to be cast, it is in their default memory.
    """
    stored, sharding = target.stored, target.sharding
    if stored.dtype != target.dtype:
        sharding = in_default(sharding)
    boxes = boxes_of(sharding, stored.shape, here=True)
    dtype, tiles = dtype_of(stored.dtype), {}
    for piece in pieces:
        values = reader.next().view(dtype).reshape(piece.shape)
        for device, box in boxes.items():
            if box.lies_in(piece.box):
                tiles[device] = jax.device_put(values[box.slices(piece.box)], of_device(device, sharding))
        jax.block_until_ready(list(tiles.values()))
        del values
        reader.release(piece.nbytes)
    arrays = [tiles[device] for device in boxes]
    return jax.make_array_from_single_device_arrays(stored.shape, sharding, arrays, dtype=dtype)
