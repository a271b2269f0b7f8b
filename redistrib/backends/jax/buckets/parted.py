"""A large array in parts: cut on the source's devices, moved on all devices, joined on the target's.

A device without a tile of the source or of the target allocates a tile of a part, not of the whole array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Sharding

from redistrib.backends.jax.buckets.compiled import CompiledBucket, Launched, numbers
from redistrib.backends.jax.dummies import without_shards, zeros
from redistrib.backends.jax.move import CompiledMove, can_exist, rows
from redistrib.backends.jax.values import as_dtype, bits_of
from redistrib.backends.jax.with_sharding import with_sharding


@dataclass(frozen=True)
class PartedEnd:
    """The source or the target of an array that moves in parts.

    Attributes:
        devices: the devices with a tile.
        tile: shape of a tile.
        dim: the dimension that is cut.
        cells: number of cells of a tile along that dimension; each cell has a piece of every part.
        count: number of parts.
    """

    devices: tuple[Any, ...]
    tile: tuple[int, ...]
    dim: int
    cells: int
    count: int

    @cached_property
    def pieces(self) -> tuple[int, ...]:
        """The shape of the tile with a dimension of pieces within cells, at `dim + 1`."""
        before, after = self.tile[: self.dim], self.tile[self.dim + 1 :]
        return (*before, self.cells, self.count, self.tile[self.dim] // (self.cells * self.count), *after)

    @cached_property
    def part(self) -> tuple[int, ...]:
        """The shape of the tile of a part."""
        return _of_part(self.tile, self)

    @cached_property
    def local_devices(self) -> tuple[Any, ...]:
        """The devices of this process."""
        return tuple(device for device in self.devices if device.process_index == jax.process_index())

    def rows(self, tile: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
        """The array with a tile of this shape on every device."""
        return rows(sorted(self.devices, key=lambda device: int(device.id)), tile, dtype)

    def compiled(
        self, run: Callable[..., jax.Array], tiles: Sequence[tuple[int, ...]], result: tuple[int, ...], dtype: Any
    ) -> CompiledMove:
        """The compiled program of tiles and the number of a part; the first of two tiles becomes the result."""
        ins = [*[self.rows(tile, dtype) for tile in tiles], self.rows((), np.int32)]
        outs = self.rows(result, dtype)
        return CompiledMove(run, ins, outs, (0,) if len(tiles) > 1 else ()).compile()


class PartedMove:
    """An array whose parts a program moves one after the other; it is compiled and launched as a `CompiledBucket` is.

    A part arrives before the next is cut, so memory holds one part besides the array before and after.

    Args:
        program: moves a part; it may overwrite the part's source.
        dtype: of the array; of whole bytes, no keys.
        source, target: the array's place before and after.
    """

    def __init__(self, program: CompiledBucket, dtype: Any, source: PartedEnd, target: PartedEnd) -> None:
        self._program, self._dtype, self._source, self._target = program, dtype, source, target
        (entry,) = program.entries
        self.entries = (replace(entry, times=source.count),)
        self._cut: CompiledMove | None = None
        self._paste: CompiledMove | None = None

    def compile(self) -> PartedMove:
        """The compiled programs; the first call compiles them."""
        self._program.compile()
        for side in (self._source, self._target):
            whole = (len(side.devices), *side.tile)
            if side.local_devices and can_exist(whole, np.dtype(self._dtype).itemsize):
                self._compile(side)
        return self

    def _compile(self, side: PartedEnd) -> None:
        dim = side.dim + 1

        def cut(tile: jax.Array, number: jax.Array) -> jax.Array:
            pieces = tile.reshape(side.pieces)
            return lax.dynamic_slice_in_dim(pieces, number, 1, dim).reshape(side.part)

        def pasted(tile: jax.Array, part: jax.Array, number: jax.Array) -> jax.Array:
            piece = part.reshape((*side.pieces[:dim], 1, *side.pieces[dim + 1 :]))
            return lax.dynamic_update_slice_in_dim(tile.reshape(side.pieces), piece, number, dim).reshape(side.tile)

        if side is self._source and self._cut is None:
            self._cut = side.compiled(_exact(cut, self._dtype), [side.tile], side.part, self._dtype)
        if side is self._target and self._paste is None:
            self._paste = side.compiled(_exact(pasted, self._dtype), [side.tile, side.part], side.tile, self._dtype)

    @cached_property
    def added_bytes(self) -> int:
        """Bytes per device that a call takes besides its input: the output, a part, and the program of a part.

        A device without a tile of one side counts the tile of the other side as well.
        """
        self.compile()
        scratch = [program.scratch_bytes or 0 for program in (self._cut, self._paste) if program is not None]
        size: int = np.dtype(self._dtype).itemsize
        part, whole = (math.prod(shape) * size for shape in (self._source.part, self._target.tile))
        return whole + max(part + self._program.added_bytes, *scratch, 0)

    def launch(self, arrays: Sequence[jax.Array], targets: Sequence[Sharding]) -> Launched:
        """Move an array to its target; all parts have arrived."""
        (array,), (target,) = arrays, targets
        self.compile()
        source, end, dtype = self._source, self._target, array.dtype
        shape = _of_part(array.shape, source)
        result = self._empty(array)
        for k in range(source.count):
            if self._cut is None:
                part = without_shards(shape, dtype, array.sharding)
            else:
                cut = self._cut(_as(array, source.rows(source.tile, dtype)), _number(source, k))
                part = with_sharding(cut, shape, array.sharding, weak=False)
            (moved,), outputs = self._program.launch([part], [target])
            if result is not None and self._paste is not None:
                result = self._paste(result, _as(moved, end.rows(end.part, dtype)), _number(end, k))
            jax.block_until_ready(outputs if result is None else result)
        if result is None:
            return [without_shards(array.shape, dtype, target)], []
        return [with_sharding(result, array.shape, target, weak=bool(array.aval.weak_type))], []

    def _empty(self, array: jax.Array) -> jax.Array | None:
        """Zeros in place of the target; None if this process has no device of it."""
        side = self._target
        if not side.local_devices:
            return None
        tiles = [shard.data for shard in zeros(array, side.tile, list(side.local_devices)).addressable_shards]
        rows = side.rows(side.tile, array.dtype)
        return jax.make_array_from_single_device_arrays(rows.shape, rows.sharding, tiles, dtype=array.dtype)


def _as(array: jax.Array, rows: jax.ShapeDtypeStruct) -> jax.Array:
    """The tiles of an array as rows over the same devices."""
    return with_sharding(array, rows.shape, rows.sharding, weak=False)


def _number(side: PartedEnd, k: int) -> jax.Array:
    """The number of a part, on the devices of a side."""
    return numbers(frozenset(side.devices), side.count)[k]


def _of_part(shape: tuple[int, ...], side: PartedEnd) -> tuple[int, ...]:
    """The shape of a part of an array, or of a tile."""
    return (*shape[: side.dim], shape[side.dim] // side.count, *shape[side.dim + 1 :])


def _exact(run: Callable[..., jax.Array], dtype: Any) -> Callable[..., jax.Array]:
    """A program of tiles and a number, exact to the bit."""
    bits = bits_of(dtype)

    def through(*arguments: jax.Array) -> jax.Array:
        *tiles, number = arguments
        return as_dtype(run(*[as_dtype(tile, bits) for tile in tiles], number), bits and dtype)

    return through
