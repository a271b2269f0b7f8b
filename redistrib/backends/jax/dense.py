"""Steps that are one collective over equal groups, with local copies before and after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax
from jax.custom_batching import custom_vmap

from redistrib.backends.jax.boxes import are_consecutive, box, concatenated, joined, put, ratio
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.offsets import Offsets, farther
from redistrib.plans.steps import AllGather, AllToAll
from redistrib.theory.placement import Int64, number_of

_ROWS = 8  # of a tile of the registers of TPUs


def is_leading(step: AllGather) -> bool:
    """Whether the gathered tiles are consecutive in memory."""
    return are_consecutive(step.before.tile, ratio(step.before, step.after))


def gather(step: AllGather, tile: jax.Array, context: LoweringContext) -> jax.Array:
    """The union of the tiles of the group."""
    merged = ratio(step.before, step.after)
    ring = None if context.links is None else context.links.ring(step.groups, tile.size * tile.dtype.itemsize)
    groups, number = (step.groups, range(step.group_size)) if ring is None else ring
    straight = is_leading(step) and not context.quirks.copies_results and ring is None
    slices = None if straight else _slices(step, step.before.tile, tile, context)
    if slices is None:
        if ring is not None:
            arrived = _gathered(tile, groups, context)
            return concatenated([arrived[k] for k in number], merged)
        if _in_rows(merged) and not context.batched and not _is_line(tile, context):
            whole: jax.Array = lax.all_gather(tile, tiled=True, **context.groups(step.groups))
            return whole
        grown = [dim for dim, factor in enumerate(merged) if factor > 1]
        if context.gathers_in_shape and straight and len(grown) == 1 and not _is_line(tile, context):
            side_by_side: jax.Array = lax.all_gather(tile, axis=grown[0], tiled=True, **context.groups(step.groups))
            return side_by_side
        # Gathering along a new leading dimension and transposing once is faster than tiled=True along an inner one.
        return joined(_gathered(tile, step.groups, context), merged)

    def run(at: _Place, size: Sequence[int], out: jax.Array) -> jax.Array:
        parts = _gathered(box(tile, at([0] * len(size)), size), groups, context)
        return _written(out, [parts[k] for k in number], merged, step.before.tile, at)

    return _in_slices(step, tile, slices, step.before.tile, context, run)


def _is_line(tile: jax.Array, context: LoweringContext) -> bool:
    return context.quirks.adds_up_lines and tile.ndim == 1


def _gathered(tile: jax.Array, groups: Int64, context: LoweringContext) -> jax.Array:
    """`[members, *tile]` the tiles of a group."""
    if not _is_line(tile, context):
        together: jax.Array = lax.all_gather(tile, **context.groups(groups))
        return together
    # The TPU compiler keeps a gather of tiles of rank 2, if barriers hide that they are lines.
    rows = lax.optimization_barrier(tile.reshape(1, math.gcd(tile.size, _ROWS), -1))
    whole: jax.Array = lax.optimization_barrier(lax.all_gather(rows, tiled=True, **context.groups(groups)))
    return lax.reshape(whole, (groups.shape[1], tile.size))


def all_to_all(step: AllToAll, tile: jax.Array, context: LoweringContext) -> jax.Array:
    """Receive a share from every member of the group, the running device included."""
    split, merged = ratio(step.after, step.before), ratio(step.before, step.after)
    slices = _slices(step, step.share, tile, context) if step.group_size <= context.MOST_PIECES else None
    if slices is None:
        if step.group_size <= context.pieces:
            return _piece_by_piece(step, tile, context)
        return joined(_traded(step, _packed(step, split, tile, context), context), merged)
    places = [context.offsets(table, step.share) for table in _places(step, split)]

    def run(at: _Place, size: Sequence[int], out: jax.Array) -> jax.Array:
        shares = [box(tile, at(offsets), size) for offsets in places]
        return _written(out, _traded(step, jnp.stack(shares), context), merged, step.share, at)

    return _in_slices(step, tile, slices, step.share, context, run)


def _piece_by_piece(step: AllToAll, tile: jax.Array, context: LoweringContext) -> jax.Array:
    """Shares are cut one by one, side by side along their first dimension, and joined one by one."""
    split, merged = ratio(step.after, step.before), ratio(step.before, step.after)
    # In a tile in parts, offsets of shares are small numbers of parts, not numbers of elements.
    parted = tile.reshape(_parted(split, tile))
    size = [n for f, share in zip(split, step.share, strict=True) for n in ((1, share) if f > 1 else (share,))]
    cut: list[jax.Array] = []
    shares: dict[bytes, jax.Array] = {}  # members of a group may receive the same share
    for which in _sent_parts(step, split):
        if which.tobytes() not in shares:
            at = zip(context.parts(which), split, strict=True)
            start = [k for part, f in at for k in ((part, 0) if f > 1 else (0,))]
            shares[which.tobytes()] = lax.reshape(box(parted, start, size), (*step.share, *tile.shape[len(split) :]))
        cut.append(shares[which.tobytes()])
    return _concatenated(_traded(step, lax.concatenate(cut, 0), context), step.share[0], merged)


def _concatenated(parts: jax.Array, rows: int, factors: Sequence[int]) -> jax.Array:
    """One tile from parts of `rows` rows that lie one after the other, row-major over `factors`."""
    if _in_rows(factors):
        return parts
    return concatenated([lax.slice_in_dim(parts, k, k + rows) for k in range(0, len(parts), rows)], factors)


def _in_rows(factors: Sequence[int]) -> bool:
    """Whether parts, row-major over factors, follow one another along the first dimension."""
    return all(factor == 1 for factor in factors[1:])


def _traded(step: AllGather | AllToAll, shares: jax.Array, context: LoweringContext) -> jax.Array:
    def trade(sent: jax.Array) -> jax.Array:
        moved: jax.Array = lax.all_to_all(sent, split_axis=0, concat_axis=0, tiled=True, **context.groups(step.groups))
        return moved

    if not context.batched:
        return trade(shares)
    batched = custom_vmap(trade)

    @batched.def_vmap
    def _(_: int, __: Sequence[bool], sent: jax.Array) -> tuple[jax.Array, bool]:
        # JAX's own batching rule does not support groups. A batch is one more dimension of the shares.
        return jnp.moveaxis(batched(jnp.moveaxis(sent, 0, 1)), 1, 0), True

    received: jax.Array = batched(shares)
    return received


# -------------------------------------------------------------------------------------- slice by slice

_Slices: TypeAlias = tuple[int, int]  # the dimension that is cut, and the number of equal slices
_Place: TypeAlias = Callable[[Offsets], Offsets]  # from where a part begins to where its slice begins
_FEWEST, _MOST = 4, 32


def _slices(
    step: AllGather | AllToAll, part: Sequence[int], tile: jax.Array, context: LoweringContext
) -> _Slices | None:
    """The slices of a share, so that the buffers of a collective fit in the context's chunk; None for no slices.

    The first dimension with a fitting divisor is cut, because its slices have the longest rows.
    """
    tile_bytes = (
        max(step.before.tile_size, step.after.tile_size) * tile.dtype.itemsize * math.prod(tile.shape[len(part) :])
    )
    if context.quirks.chunk is None or tile_bytes <= context.quirks.chunk:
        return None
    least = min(max(_FEWEST, -(-2 * tile_bytes // context.quirks.chunk)), _MOST // 2)
    for dim, extent in enumerate(part):
        for count in range(least, _MOST + 1):
            if extent % count == 0:
                return dim, count
    return None


def _in_slices(
    step: AllGather | AllToAll,
    tile: jax.Array,
    slices: _Slices,
    part: Sequence[int],
    context: LoweringContext,
    run: Callable[[_Place, Sequence[int], jax.Array], jax.Array],
) -> jax.Array:
    """One collective in a loop; `run(at, size, out)` carries out one slice and writes it into `out`."""
    dim, count = slices
    size = [n // count if i == dim else n for i, n in enumerate(part)]

    def turn(k: jax.Array, out: jax.Array) -> jax.Array:
        def at(begin: Offsets) -> Offsets:
            slid = farther(begin[dim], range(0, part[dim], size[dim]), k, context.largest_index)
            return [*begin[:dim], slid, *begin[dim + 1 :]]

        return run(at, size, out)

    out: jax.Array = lax.empty((*step.after.tile, *tile.shape[step.after.rank :]), tile.dtype)
    result: jax.Array = lax.fori_loop(0, count, turn, out)
    return result


def _written(
    out: jax.Array,
    parts: jax.Array | Sequence[jax.Array],
    factors: Sequence[int],
    extent: Sequence[int],
    at: _Place,
) -> jax.Array:
    """Slices of parts, `[parts, *size]`, each written in the place of its part; parts are row-major."""
    for k, position in enumerate(np.ndindex(*factors)):
        out = put(out, parts[k], at([p * n for p, n in zip(position, extent, strict=True)]))
    return out


# -------------------------------------------------------------------------------------- order of shares


def _receivers(step: AllToAll) -> Int64:
    """`[devices, members]`: the members of each device's group; the first group for devices without one."""
    table = np.tile(step.groups[:1], (step.devices, 1))
    table[step.groups] = step.groups[:, None, :]
    return table


def _sent_parts(step: AllToAll, split: Sequence[int]) -> Iterator[Int64]:
    """For each member of a group, `[devices, rank]`: the part of its tile that a device sends to it, by dimension."""
    to = _receivers(step)
    part = step.after.index % np.array(split)  # that a receiver gets from every sender
    return (part[to[:, j]] for j in range(step.group_size))


def _places(step: AllToAll, split: Sequence[int]) -> Iterator[Int64]:
    """For each member of a group, `[devices, rank]`: the offset of its share in a device's tile."""
    return (part * np.array(step.share) for part in _sent_parts(step, split))


def _packed(step: AllToAll, split: Sequence[int], tile: jax.Array, context: LoweringContext) -> jax.Array:
    """`[members, *share]`: the share for each member."""
    numbers = _sent_numbers(step, split)
    in_order = numbers.shape[1] == math.prod(split) and bool((numbers == np.arange(numbers.shape[1])).all())
    if step.group_size > (context.pieces if in_order else context.MOST_PIECES):
        parts = _parts(split, tile)
        if in_order:
            return parts
        same = (numbers == numbers[0]).all()
        order = jnp.asarray(numbers[0]) if same else context.lookup(numbers)
        taken: jax.Array = jnp.take(parts, order, axis=0, mode="clip")
        return taken
    # Shares are cut one by one; the offsets put them in order at no cost.
    cut = [box(tile, context.offsets(table), step.share) for table in _places(step, split)]
    # For a stack, compilers may allocate a buffer for every piece; updates are written in place.
    packed: jax.Array = lax.empty((len(cut), *cut[0].shape), tile.dtype)
    for j, piece in enumerate(cut):
        packed = lax.dynamic_update_index_in_dim(packed, piece, j, axis=0)
    result: jax.Array = packed
    return result


def _sent_numbers(step: AllToAll, split: Sequence[int]) -> npt.NDArray[np.int32]:
    """`[devices, members]`: row-major number of the part of its tile that a device sends to each member."""
    number = number_of(step.after.index % np.array(split), tuple(split)).astype(np.int32)
    return number[_receivers(step)]


def _parted(split: Sequence[int], tile: jax.Array) -> list[int]:
    """The shape of a tile with a dimension of parts before each dimension that is split."""
    factors = [*split, *(1,) * (tile.ndim - len(split))]
    return [m for n, f in zip(tile.shape, factors, strict=True) for m in ((f, n // f) if f > 1 else (n,))]


def _parts(split: Sequence[int], tile: jax.Array) -> jax.Array:
    """`[parts, *share]`: all parts of the tile in row-major order, by one reshape and transpose."""
    rank = len(split)
    cut = [i for i in range(rank) if split[i] > 1]
    shape = _parted(split, tile)
    first = [i + cut.index(i) for i in cut]
    order = first + [k for k in range(len(shape)) if k not in first]
    share = [n // (split[i] if i < rank else 1) for i, n in enumerate(tile.shape)]
    return tile.reshape(shape).transpose(order).reshape(-1, *share)
