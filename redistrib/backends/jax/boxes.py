"""Boxes of tiles: read, written, and joined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.theory.placement import Placement

Offsets: TypeAlias = Sequence[int | jax.Array]


def box(tile: jax.Array, offsets: Offsets, size: Sequence[int]) -> jax.Array:
    """The box of `size` at `offsets` along the leading dimensions, whole along the others."""
    rest = tile.ndim - len(size)
    full = (*size, *tile.shape[len(size) :])
    if full == tile.shape:
        return tile
    if all(isinstance(offset, int) for offset in offsets):
        return tile[tuple(slice(o, o + n) for o, n in zip(offsets, size, strict=True))]
    return lax.dynamic_slice(tile, _starts(offsets, rest), full, allow_negative_indices=False)


def put(tile: jax.Array, part: jax.Array, offsets: Offsets) -> jax.Array:
    """The tile after a part is written at `offsets` of its leading dimensions."""
    starts = _starts(offsets, tile.ndim - len(offsets))
    return lax.dynamic_update_slice(tile, part, starts, allow_negative_indices=False)


def _starts(offsets: Offsets, rest: int) -> list[Any]:
    return [np.int32(offset) if isinstance(offset, int) else offset for offset in (*offsets, *(0,) * rest)]


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
