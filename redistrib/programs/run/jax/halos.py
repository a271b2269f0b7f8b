"""Halos on the device that runs: elements of neighbouring tiles joined to its own, by permutes."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.boxes import box
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.values import as_integer_bits
from redistrib.programs.ir.halos import HaloRound, halo_copies
from redistrib.programs.ir.value import Value
from redistrib.programs.ir.windows import Reach
from redistrib.theory.placement import Int64


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
    dim, before = message.dim, tile.shape[: message.dim]
    part = box(tile, [*[0] * dim, *context.offsets(message.taken[:, None])], (*before, message.length))
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
    if held.length > context.largest_index:
        return _placed_far(copies, held, tile, dim, context)
    rows = jnp.arange(held.length)
    shape = [held.length if k == dim else 1 for k in range(tile.ndim)]
    result = jnp.zeros((*tile.shape[:dim], held.length, *tile.shape[dim + 1 :]), tile.dtype)
    for message in copies:
        part = _message(message, tile, context)
        at, low, high = map(context.number_of, (message.placed, *message.wanted.T))
        moved = jnp.take(part, jnp.clip(rows - at, 0, message.length - 1), axis=dim)
        result = jnp.where(((rows >= low) & (rows < high)).reshape(shape), moved, result)
    return result


def _placed_far(
    copies: Iterable[HaloRound], held: Reach, tile: jax.Array, dim: int, context: LoweringContext
) -> jax.Array:
    """As `_placed`, for positions that are no indices: the compiler knows them, in a branch for each."""
    result = jnp.zeros((*tile.shape[:dim], held.length, *tile.shape[dim + 1 :]), tile.dtype)
    for message in copies:
        part = _message(message, tile, context)

        def written(row: tuple[int, ...], result: jax.Array = result, part: jax.Array = part) -> jax.Array:
            at, low, high = row
            wanted = lax.slice_in_dim(part, low - at, high - at, axis=dim)
            before, _, behind = lax.split(result, (low, high - low, held.length - high), dim)
            return lax.concatenate([before, wanted, behind], dim)

        result = context.branch(_reach(message), written)
    return result


def _reach(message: HaloRound) -> Int64:
    """`[devices, 3]` where a message is placed, and where the part that is wanted begins and ends; 0 if nothing is."""
    table = np.column_stack([message.placed, message.wanted])
    table[table[:, 1] >= table[:, 2]] = 0
    return table
