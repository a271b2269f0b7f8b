"""A large array in parts: cut on the source's devices, moved on all devices, joined on the target's.

A device without a tile of the source or of the target allocates a tile of a part, not of the whole array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax.buckets.compiled import CompiledBucket, Launched, can_exist, numbers
from redistrib.backends.jax.dummies import without_shards, zeros
from redistrib.backends.jax.rows import line_of, over_tiles, rows_shape, rows_spec
from redistrib.backends.jax.sharding import alone_on
from redistrib.backends.jax.values import as_dtype, bits_of
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.plans.plan import Plan


@dataclass(frozen=True)
class PartedEntry:
    """One array that moves in parts.

    Attributes:
        plan: of each part.
        times: number of parts.
        stacked: as for other entries.
    """

    plan: Plan
    times: int
    stacked: bool = False


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

    @cached_property
    def mesh(self) -> jax.sharding.Mesh:
        """The mesh of the devices in a line."""
        return line_of(sorted(self.devices, key=lambda device: int(device.id)))

    @cached_property
    def rows(self) -> NamedSharding:
        """The sharding of arrays that have a tile on every device, side by side along the first dimension."""
        return NamedSharding(self.mesh, rows_spec(len(self.tile)))

    def whole(self, tile: Sequence[int]) -> tuple[int, ...]:
        """The shape of the whole array of tiles."""
        return rows_shape(len(self.devices), tile)

    def compiled(self, run: Callable[..., jax.Array], tiles: Sequence[tuple[int, ...]], dtype: Any) -> Any:
        """The compiled program of tiles and the number of a part; the first of two tiles becomes the result."""
        mesh, spec = self.mesh, self.rows.spec
        number = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, PartitionSpec()))
        with alone_on(mesh):
            mapped = over_tiles(run, mesh, (*[spec for _ in tiles], PartitionSpec()), spec)
            arguments = [jax.ShapeDtypeStruct(self.whole(tile), dtype, sharding=self.rows) for tile in tiles]
            return jax.jit(mapped, donate_argnums=(0,) if len(tiles) > 1 else ()).lower(*arguments, number).compile()


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
        self.entries = (PartedEntry(entry.plan, source.count),)
        self._cut: Any = None
        self._paste: Any = None

    def compile(self) -> PartedMove:
        """The compiled programs; the first call compiles them."""
        self._program.compile()
        for side in (self._source, self._target):
            if side.local_devices and can_exist(side.whole(side.tile), np.dtype(self._dtype).itemsize):
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
            self._cut = side.compiled(_exact(cut, self._dtype), [side.tile], self._dtype)
        if side is self._target and self._paste is None:
            self._paste = side.compiled(_exact(pasted, self._dtype), [side.tile, side.part], self._dtype)

    @cached_property
    def added_bytes(self) -> int:
        """Bytes per device that a call takes besides its input: the output, a part, and the program of a part.

        A device without a tile of one side counts the tile of the other side as well.
        """
        self.compile()
        scratch = [_scratch(program) for program in (self._cut, self._paste) if program is not None]
        size: int = np.dtype(self._dtype).itemsize
        part, whole = (math.prod(shape) * size for shape in (self._source.part, self._target.tile))
        return whole + max(part + self._program.added_bytes, *scratch, 0)

    def launch(self, arrays: Sequence[jax.Array], targets: Sequence[Sharding]) -> Launched:
        """Move an array to its target; all parts have arrived."""
        (array,), (target,) = arrays, targets
        self.compile()
        source, dtype = self._source, array.dtype
        rows = None
        if source.local_devices:
            rows = with_sharding(array, source.whole(source.tile), source.rows, weak=False)
        shape = _of_part(array.shape, source)
        result = self._empty(array)
        for k in range(source.count):
            if rows is None:
                part = without_shards(shape, dtype, array.sharding)
            else:
                cut = self._cut(rows, numbers(frozenset(source.devices), source.count)[k])
                part = with_sharding(cut, shape, array.sharding, weak=False)
            (moved,), outputs = self._program.launch([part], [target])
            if result is not None:
                piece = with_sharding(moved, self._target.whole(self._target.part), self._target.rows, weak=False)
                result = self._paste(result, piece, numbers(frozenset(self._target.devices), source.count)[k])
            jax.block_until_ready(outputs if result is None else result)
        if result is None:
            return Launched([without_shards(array.shape, dtype, target)], [])
        return Launched([with_sharding(result, array.shape, target, weak=bool(array.aval.weak_type))], [])

    def _empty(self, array: jax.Array) -> jax.Array | None:
        """Zeros in place of the target; None if this process has no device of it."""
        side = self._target
        if not side.local_devices:
            return None
        tiles = [shard.data for shard in zeros(array, side.tile, list(side.local_devices)).addressable_shards]
        return jax.make_array_from_single_device_arrays(side.whole(side.tile), side.rows, tiles, dtype=array.dtype)


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


def _scratch(program: Any) -> int:
    """Bytes of a program beyond its inputs and outputs."""
    sizes = program.memory_analysis()
    return 0 if sizes is None else int(sizes.temp_size_in_bytes)
