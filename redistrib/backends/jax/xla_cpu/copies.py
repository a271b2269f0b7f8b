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

Box: TypeAlias = tuple[tuple[int, int], ...]  # start and stop in each dimension

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


@dataclass(frozen=True)
class _Tile:
    """A target tile.

    Attributes:
        shape: of the tile.
        parts: number of the source shard, its slice, and the slice of the tile.
    """

    shape: tuple[int, ...]
    parts: tuple[tuple[int, tuple[slice, ...], tuple[slice, ...]], ...]


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
        before, after = _boxes(source, shape), _boxes(target, shape)
        holders = {box: device for device, box in before.items()}
        numbers = {device: number for number, device in enumerate(source.addressable_devices_indices_map(shape))}
        self._shards = [numbers[device] for device in holders.values()]
        numbered = list(enumerate(holders))
        self._tiles = {box: _tile(box, numbered) for box in dict.fromkeys(after.values())}
        self._places = [tuple(slice(*edge) for edge in box) for box in holders]
        self.boxes = sum(len(tile.parts) for tile in self._tiles.values())
        self._few_by_whole = self.boxes > len(holders) + len(self._tiles)
        self.written = sum(map(_volume, self._tiles))
        self.arriving = sum(map(_volume, after.values()))
        lacking = 0
        for device, box in after.items():
            kept = _common(box, before[device]) if device in before else None
            lacking += _volume(box) - (0 if kept is None else _volume(kept))
        self.received = lacking

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
            return jax.make_array_from_callback(self.shape, self.target, whole.__getitem__)
        if self.written * dtype.itemsize < _PARALLEL_BYTES or len(self._tiles) == 1:
            tiles = {box: _assembled(tile, views, dtype) for box, tile in self._tiles.items()}
        else:
            assembled = _POOL.map(lambda tile: _assembled(tile, views, dtype), self._tiles.values())
            tiles = dict(zip(self._tiles, assembled, strict=True))
        shape = self.shape
        return jax.make_array_from_callback(shape, self.target, lambda index: tiles[_box(index, shape)])


# Of this module's copies alone. Starts threads when it is used.
_POOL = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)


def _boxes(sharding: Sharding, shape: tuple[int, ...]) -> dict[Any, Box]:
    return {device: _box(index, shape) for device, index in sharding.devices_indices_map(shape).items()}


def _box(index: Any, shape: tuple[int, ...]) -> Box:
    return tuple(
        (0 if part.start is None else part.start, size if part.stop is None else part.stop)
        for part, size in zip(index, shape, strict=True)
    )


def _tile(box: Box, sources: Sequence[tuple[int, Box]]) -> _Tile:
    parts = []
    for number, other in sources:
        common = _common(box, other)
        if common is not None:
            parts.append((number, _within(common, other), _within(common, box)))
    return _Tile(tuple(stop - start for start, stop in box), tuple(parts))


def _common(one: Box, other: Box) -> Box | None:
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return both if all(start < stop for start, stop in both) else None


def _within(box: Box, outer: Box) -> tuple[slice, ...]:
    return tuple(slice(start - first, stop - first) for (start, stop), (first, _) in zip(box, outer, strict=True))


def _volume(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)


def _assembled(tile: _Tile, views: Sequence[np.ndarray[Any, Any]], dtype: Any) -> np.ndarray[Any, Any]:
    size = math.prod(tile.shape) * dtype.itemsize
    result = np.empty(tile.shape, dtype) if size < SHARED_BYTES else _aligned(tile.shape, dtype, size)
    for number, taken, place in tile.parts:
        result[place] = views[number][taken]
    return result


def _aligned(shape: tuple[int, ...], dtype: Any, size: int) -> np.ndarray[Any, Any]:
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    aligned: np.ndarray[Any, Any] = memory[start : start + size].view(dtype).reshape(shape)
    return aligned
