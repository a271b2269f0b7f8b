"""Boxes of tiles: read, written, and joined."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.offsets import LargeOffset, Offset, Offsets, offset_of
from redistrib.theory.placement import Placement


def box(tile: jax.Array, offsets: Offsets, size: Sequence[int]) -> jax.Array:
    """The box of `size` at `offsets` along the leading dimensions, whole along the others."""
    full = (*size, *tile.shape[len(size) :])
    if full == tile.shape:
        return tile
    fixed = [offset for offset in offsets if isinstance(offset, int)]
    if len(fixed) == len(offsets):
        return tile[tuple(slice(o, o + n) for o, n in zip(fixed, size, strict=True))]
    for dim, offset in enumerate(offsets := _large(offsets, size, tile)):
        if isinstance(offset, LargeOffset):
            if isinstance(offset.which, int):
                start = offset.values[offset.which]
                slab = lax.slice_in_dim(tile, start, start + size[dim], axis=dim)
                return box(slab, [*offsets[:dim], 0, *offsets[dim + 1 :]], size)
            if offset.cell(size[dim], tile.shape[dim]) is None:
                return _branching(offsets, dim, lambda at: box(tile, at, size))
    whole, part, starts = _in_cells(offsets, full, tile)
    read: jax.Array = lax.dynamic_slice(lax.reshape(tile, whole), starts, part, allow_negative_indices=False)
    return lax.reshape(read, full)


def put(tile: jax.Array, part: jax.Array, offsets: Offsets) -> jax.Array:
    """The tile after a part is written at `offsets` of its leading dimensions."""
    for dim, offset in enumerate(offsets := _large(offsets, part.shape, tile)):
        if isinstance(offset, LargeOffset) and offset.cell(part.shape[dim], tile.shape[dim]) is None:
            if not isinstance(offset.which, int):
                return _branching(offsets, dim, lambda at: put(tile, part, at))
            start = offset.values[offset.which]
            sizes = start, part.shape[dim], tile.shape[dim] - start - part.shape[dim]
            before, slab, behind = lax.split(tile, sizes, dim)
            return lax.concatenate([before, put(slab, part, [*offsets[:dim], 0, *offsets[dim + 1 :]]), behind], dim)
    whole, within, starts = _in_cells(offsets, part.shape, tile)
    written: jax.Array = lax.dynamic_update_slice(
        lax.reshape(tile, whole), lax.reshape(part, within), starts, allow_negative_indices=False
    )
    return lax.reshape(written, tile.shape)


def _large(offsets: Offsets, size: Sequence[int], tile: jax.Array) -> list[Offset]:
    """The offsets, those that are no indices as `LargeOffset`s inside the tile."""
    every = [offset_of(offset) if isinstance(offset, int) else offset for offset in offsets]
    return [
        offset.within(size[dim], tile.shape[dim]) if isinstance(offset, LargeOffset) else offset
        for dim, offset in enumerate(every)
    ]


def _branching(offsets: Sequence[Offset], dim: int, run: Callable[[Offsets], jax.Array]) -> jax.Array:
    """What runs at offsets, one branch for each value of the large one along a dimension."""
    large = offsets[dim]
    assert isinstance(large, LargeOffset)
    alone = [LargeOffset((value,), 0, large.largest) for value in large.values]
    branches = [lambda at=at: run([*offsets[:dim], at, *offsets[dim + 1 :]]) for at in alone]
    result: jax.Array = lax.switch(large.which, branches)
    return result


def _in_cells(
    offsets: Offsets, size: Sequence[int], tile: jax.Array
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Any, ...]]:
    """A box of a size, at offsets along the leading dimensions of a tile, those at large offsets cut into cells.

    Returns:
        The shapes of the tile and of the box, with a dimension of cells before each that is cut, and where the box
        begins.
    """
    rows: list[tuple[int, int, Any]] = []
    for offset, n, extent in zip_longest(offsets, size, tile.shape, fillvalue=0):
        if isinstance(offset, LargeOffset):
            cell = offset.cell(n, extent)
            assert cell is not None
            rows += [(extent // cell, n // cell, offset.cells(cell)), (cell, cell, np.int32(0))]
        else:
            rows.append((extent, n, np.int32(offset) if isinstance(offset, int) else offset))
    whole, part, starts = zip(*rows, strict=True) if rows else ((), (), ())
    return whole, part, starts


def ratio(fine: Placement, coarse: Placement) -> tuple[int, ...]:
    """The number of tiles of one placement in a tile of the other, along each dimension; at least 1."""
    return tuple(max(1, f // c) for f, c in zip(fine.grid, coarse.grid, strict=True))


def are_consecutive(part: Sequence[int], factors: Sequence[int]) -> bool:
    """Whether parts, row-major over factors, follow one another in the memory of the whole: all dimensions before the
    last that grows have extent 1."""
    last = max((i for i, f in enumerate(factors) if f > 1), default=0)
    return all(n == 1 for n in part[:last])


def joined(parts: jax.Array, factors: Sequence[int]) -> jax.Array:
    """One tile from `[parts, *part]`, row-major over `factors`, by at most one transpose."""
    rank, part = len(factors), parts.shape[1:]
    whole = [n * (factors[i] if i < rank else 1) for i, n in enumerate(part)]
    grown = [i for i in range(rank) if factors[i] > 1]
    if are_consecutive(part, factors):
        return lax.reshape(parts, whole)
    stacked = parts.reshape(*(factors[i] for i in grown), *part)
    order: list[int] = []
    for i in range(len(part)):
        order += [grown.index(i)] if i in grown else []
        order.append(len(grown) + i)
    return stacked.transpose(order).reshape(whole)


_SHORT_RUN = 16  # elements; parts with shorter rows are joined faster by a transpose than one by one


def concatenated(parts: Sequence[jax.Array], factors: Sequence[int]) -> jax.Array:
    """As `joined`, part by part, which copies long rows and not single elements."""
    grown = [i for i, f in enumerate(factors) if f > 1]
    if grown and math.prod(parts[0].shape[grown[-1] :]) < _SHORT_RUN:
        return joined(jnp.stack(parts), factors)
    rows = list(parts)
    for i in reversed(grown):
        rows = [lax.concatenate(rows[k : k + factors[i]], i) for k in range(0, len(rows), factors[i])]
    return rows[0]
