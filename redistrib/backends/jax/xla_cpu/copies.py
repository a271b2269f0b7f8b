"""Moves by copies in the host's memory, which is the memory of all virtual CPU devices of one process.

Each target tile is assembled from the source tiles that overlap it. The move adds no memory besides the target tiles;
an array of at most 1 MiB is first assembled whole where that takes fewer copies. Replicas of a large tile share one
buffer. XLA never writes to such a buffer, and no target shares memory with a source.

`jax.device_put` assembles the whole array on the host first, where some target tile is no source tile, and keeps this
copy with the source.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import jax
import numpy as np
from jax.sharding import Sharding

from redistrib.backends.jax import private
from redistrib.theory.boxes import Box, boxes_of

SHARED_BYTES = 64 * 1024  # of a tile, from which JAX takes the buffer instead of copying it
WHOLE_BYTES = 2**20  # of an array that may be assembled whole
_PARALLEL_BYTES = 64 * 2**20  # of all target tiles, from which threads pay: 256 MiB in 0.6 of the time, 16 MiB not
_ALIGNMENT = 64  # bytes, of the buffers that XLA:CPU takes without a copy


@dataclass(frozen=True)
class CopyRates:
    """Seconds of a move by copies and by collectives, on virtual CPU devices of one process.

    The defaults are those of later calls of `reshard` on 8 devices on 2 cores, from 1 KiB to 96 MiB
    (`bench/test_quick.py`).

    Attributes:
        leaf, box, byte: seconds of copies, for each leaf, each box that is copied, and each byte that is written.
        launched_leaf, launched_byte, received_byte: seconds of collectives, for each leaf of a bucket, each byte of
            the targets, and each byte that a device receives from another.
    """

    leaf: float = 20e-6
    box: float = 0.6e-6
    byte: float = 0.085e-9
    launched_leaf: float = 70e-6
    launched_byte: float = 0.1e-9
    received_byte: float = 0.2e-9

    def prefers_copies(self, copies: TileCopies, itemsize: int) -> bool:
        """Whether copies are the quicker way."""
        by_copies = self.leaf + self.box * copies.boxes + self.byte * copies.written * itemsize
        moved = self.launched_byte * copies.arriving + self.received_byte * copies.received
        return by_copies < self.launched_leaf + moved * itemsize


# The parts of a target tile: of each the number of its source shard, its slice there, and its slice in the tile.
_Parts: TypeAlias = list[tuple[int, tuple[slice, ...], tuple[slice, ...]]]


class TileCopies:
    """The copies that move arrays of one shape between two shardings over devices of this process.

    Args:
        shape: global shape, in elements.
        source, target: shardings that divide it, without partial sums.

    Attributes:
        rates: of the copies and of collectives.
        boxes: number of boxes that are copied.
        written: elements of all distinct target tiles.
        arriving: elements of the target tiles of all devices.
        received: elements of the target tiles that their devices do not hold before, over all devices.
    """

    rates: ClassVar[CopyRates] = CopyRates()

    def __init__(self, shape: tuple[int, ...], source: Sharding, target: Sharding) -> None:
        self.shape, self.target = shape, target
        before, after = boxes_of(source, shape), boxes_of(target, shape)
        holders = {box: device for device, box in before.items()}
        numbers = {device: number for number, device in enumerate(source.addressable_devices_indices_map(shape))}
        self._shards = [numbers[device] for device in holders.values()]
        numbered = list(enumerate(holders))
        self._tiles = {box: _parts(box, numbered) for box in dict.fromkeys(after.values())}
        self._places = [box.slices() for box in holders]
        order = {box: number for number, box in enumerate(self._tiles)}
        self._devices = list(target.addressable_devices_indices_map(shape))
        self._tile_of = [order[after[device]] for device in self._devices]
        self._avals: dict[Any, Any] = {}  # of the results, by element type, once JAX has made one
        self.boxes = sum(map(len, self._tiles.values()))
        self._few_by_whole = self.boxes > len(holders) + len(self._tiles)
        self.written = sum(box.volume for box in self._tiles)
        self.arriving = sum(box.volume for box in after.values())
        kept = (box.meet(before[device]).volume for device, box in after.items() if device in before)
        self.received = self.arriving - sum(kept)

    def __call__(self, array: jax.Array) -> jax.Array:
        """The array on the target; waits for the source. Its type is not weak."""
        # Shards lie in the order of the sharding's devices. `addressable_shards` makes an object for each of them, and
        # that takes longer than the copy of a small one.
        views = [np.asarray(array.addressable_data(number)) for number in self._shards]
        dtype = views[0].dtype
        if self._few_by_whole and math.prod(self.shape) * dtype.itemsize <= WHOLE_BYTES:
            whole = np.empty(self.shape, dtype)
            for place, view in zip(self._places, views, strict=True):
                whole[place] = view
            tiles = [whole[box.slices()] for box in self._tiles]
        elif self.written * dtype.itemsize < _PARALLEL_BYTES or len(self._tiles) == 1:
            tiles = [_assembled(box.size, parts, views, dtype) for box, parts in self._tiles.items()]
        else:
            tiles = list(_POOL.map(lambda tile: _assembled(tile[0].size, tile[1], views, dtype), self._tiles.items()))
        return self._placed(tiles, dtype)

    def _placed(self, tiles: list[np.ndarray[Any, Any]], dtype: Any) -> jax.Array:
        """The array of distinct target tiles."""
        if dtype in self._avals:
            of_devices = [tiles[number] for number in self._tile_of]
            fast = private.array_of_tiles(of_devices, self._avals[dtype], self.target, self._devices)
            if fast is not None:
                return fast
        # Tiles of a sharding that are not the same begin at different elements. Boxes would take longer to make.
        by_start = dict(zip((box.start for box in self._tiles), tiles, strict=True))
        array = jax.make_array_from_callback(
            self.shape, self.target, lambda index: by_start[tuple([part.start or 0 for part in index or ()])]
        )
        self._avals[dtype] = array.aval
        return array


# Of this module's copies alone. Starts threads when it is used.
_POOL = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)


def _parts(box: Box, sources: Sequence[tuple[int, Box]]) -> _Parts:
    common = [(number, box.meet(other), other) for number, other in sources]
    return [(number, both.slices(other), both.slices(box)) for number, both, other in common if both.volume]


def _assembled(
    shape: tuple[int, ...], parts: _Parts, views: Sequence[np.ndarray[Any, Any]], dtype: Any
) -> np.ndarray[Any, Any]:
    size = math.prod(shape) * dtype.itemsize
    result = np.empty(shape, dtype) if size < SHARED_BYTES else _aligned(shape, dtype, size)
    for number, taken, place in parts:
        result[place] = views[number][taken]
    return result


def _aligned(shape: tuple[int, ...], dtype: Any, size: int) -> np.ndarray[Any, Any]:
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    aligned: np.ndarray[Any, Any] = memory[start : start + size].view(dtype).reshape(shape)
    return aligned
