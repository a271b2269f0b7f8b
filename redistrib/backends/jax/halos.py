"""Halos on the device that runs: elements of neighbouring tiles joined to its own, by permutes."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jax import lax

from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.values import as_integer_bits
from redistrib.programs.halos import HaloRound, halo_copies
from redistrib.programs.value import Value
from redistrib.programs.windows import Reach


def with_halos(value: Value, tile: jax.Array, context: LoweringContext) -> jax.Array:
    """The running device's tile of a value with halos, from its tile without; elements beyond the array are zero."""
    copies = tuple(halo_copies(value.type, value.place.mesh, value.windows))

    def run(tile: jax.Array) -> jax.Array:
        for dim, held in enumerate(value.windows):
            if isinstance(held, Reach):
                along = [copy for copy in copies if copy.dim == dim]
                join = _joined if held.step == tile.shape[dim] else _placed
                tile = join(along, held, tile, dim, context)
        return tile

    return as_integer_bits(run)(tile)


def part_of_halos(value: Value, out: Value, tile: jax.Array) -> jax.Array:
    """The running device's tile of a value with halos, from its tile with larger ones."""
    starts = (out.corner - value.corner)[0].tolist()  # on all devices equally
    return lax.slice(tile, starts, [start + size for start, size in zip(starts, out.tile, strict=True)])


def _message(message: HaloRound, tile: jax.Array, context: LoweringContext) -> jax.Array:
    """The arrivals of a round; zeros where nothing arrives."""
    (start,) = context.offsets(message.taken[:, None])
    part = lax.dynamic_slice_in_dim(tile, start, message.length, message.dim)
    return context.permute(part, message.pairs) if message.distance else part


def _joined(copies: Iterable[HaloRound], held: Reach, tile: jax.Array, dim: int, context: LoweringContext) -> jax.Array:
    """All devices read equally many elements: the messages end to end, and zeros where no tile is so far off."""
    size, at, pieces = tile.shape[dim], held.start, []

    def zeros(count: int) -> None:
        if count:
            pieces.append(jnp.zeros((*tile.shape[:dim], count, *tile.shape[dim + 1 :]), tile.dtype))

    for message in copies:
        first = max(held.start, message.distance * size)
        zeros(first - at)
        begin = first - message.distance * size  # in every sender's tile
        part = lax.slice_in_dim(tile, begin, begin + message.length, axis=dim)
        pieces.append(context.permute(part, message.pairs) if message.distance else part)
        at = first + message.length
    zeros(held.start + held.length - at)
    return jnp.concatenate(pieces, dim) if len(pieces) > 1 else pieces[0]


def _placed(copies: Iterable[HaloRound], held: Reach, tile: jax.Array, dim: int, context: LoweringContext) -> jax.Array:
    """Where each device reads otherwise: every message is put where it belongs there."""
    rows = jnp.arange(held.length)
    shape = [held.length if k == dim else 1 for k in range(tile.ndim)]
    result = jnp.zeros((*tile.shape[:dim], held.length, *tile.shape[dim + 1 :]), tile.dtype)
    for message in copies:
        part = _message(message, tile, context)
        (at,) = context.offsets(message.placed[:, None])
        low, high = context.offsets(message.wanted)
        moved = jnp.take(part, jnp.clip(rows - at, 0, message.length - 1), axis=dim)
        result = jnp.where(((rows >= low) & (rows < high)).reshape(shape), moved, result)
    return result
