"""The program of a device: each step of a plan as `jax.lax` operations on its tile.

`local_program` knows devices by number and a tuple of mesh axes, so it runs under any `shard_map` whose manual axes
enumerate the devices. Every device runs the same operations. Each reads its offsets from small int32 tables.

Rounds have two schedules. `"overlap"` leaves their order to the compiler while the shares in flight fit in a tile, on
TPUs in three quarters of a large tile. `"sequential"` starts a round after the last one has been written, in parts so
small that a plan of one step needs at most half a tile of scratch; all-to-alls and strided gathers go in rounds then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.adding import reduction_of
from redistrib.backends.jax.boxes import box, put, ratio
from redistrib.backends.jax.context import LoweringContext, closes
from redistrib.backends.jax.dense import all_to_all, gather, is_leading
from redistrib.backends.jax.offsets import Offsets, later
from redistrib.backends.jax.ragged import carry, fits_in_buffer
from redistrib.plans.slabs import stacking
from redistrib.plans.step import SEQUENTIAL_SCRATCH
from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Step,
    Unreduce,
)
from redistrib.plans.writes import PaddedTransfer, Write, additions, in_parts, schedule, with_keepers
from redistrib.theory.placement import Int64, Placement

SMALLEST_PART = 1 / 16  # of the plan's largest tile: the finest parts, however large the tiles between steps are


def local_program(steps: Sequence[Step], context: LoweringContext) -> Callable[[jax.Array], jax.Array]:
    """The function from a device's source tile to its target tile, to be run under the context's manual axes.

    Tiles may have dimensions beyond the plan's rank; they travel along.
    """

    largest = max((max(step.before.tile_size, step.after.tile_size) for step in steps), default=0)

    def program(tile: jax.Array) -> jax.Array:
        if tile.size == 0 and steps:
            after = steps[-1].after
            return jnp.zeros((*after.tile, *tile.shape[after.rank :]), tile.dtype)
        pending: DynSlice | None = None
        first = True  # the tile is the program's argument, not a temporary
        for k, step in enumerate(steps):
            last = k == len(steps) - 1
            between = (0 if first else step.before.tile_size) + (0 if last else step.after.tile_size)
            limits = _limits(largest, between, context, tile.dtype.itemsize)
            if isinstance(step, DynSlice):
                pending = DynSlice(pending.before if pending else step.before, step.after)
                continue
            with jax.named_scope(f"{k + 1}.{step.kind}"):
                # Shares are read from the larger tile. Partial sums may have other numbers there.
                if pending is not None and not step.on_sums and _in_rounds(step, context, between, tile):
                    tile = _rounds(pending.before, step, tile, context, limits)
                else:
                    if pending is not None:
                        tile = box(tile, context.offsets(_within(pending)), pending.after.tile)
                    tile = _step(step, tile, context, limits, between)
            pending, first = None, False
        if pending is not None:
            tile = box(tile, context.offsets(_within(pending)), pending.after.tile)
        return tile

    return program


@dataclass(frozen=True)
class _Limits:
    """The memory that one step may use.

    Attributes:
        in_flight: elements of shares that are cut out and not yet written.
        whole: the same for whole tiles, which need no copy before they are sent.
        part: elements of a part.
    """

    in_flight: int
    whole: int
    part: int


def _limits(largest: int, between: int, context: LoweringContext, itemsize: int) -> _Limits:
    if context.schedule == "overlap":
        if context.quirks.chunk is not None and largest * itemsize > context.quirks.chunk:
            # Send buffers, receive buffers and copies of the compiler stay below two tiles.
            return _Limits(in_flight=3 * largest // 4, whole=largest, part=-(-largest // 4))
        return _Limits(in_flight=largest, whole=largest, part=largest)
    free = (SEQUENTIAL_SCRATCH * largest - between) / 2
    return _Limits(in_flight=0, whole=0, part=int(max(free, SMALLEST_PART * largest)))


def _within(step: DynSlice) -> Int64:
    return step.after.start - step.before.start


def _step(step: Step, tile: jax.Array, context: LoweringContext, limits: _Limits, between: int) -> jax.Array:
    if step.on_sums:
        return _on_summands(step, tile, context, limits, between)
    if isinstance(step, AllPermute) and (not context.quirks.copies_results or step.before.tile_size <= limits.part):
        pairs = with_keepers(step.pairs, step.devices)
        if pairs is not None:  # the one write that `_rounds` would find
            return context.permute(tile, pairs)
    if _in_rounds(step, context, between, tile):
        return _rounds(step.before, step, tile, context, limits)
    if isinstance(step, AllGather):
        return gather(step, tile, context) if step.group_size > 1 else tile
    assert isinstance(step, AllToAll)
    return all_to_all(step, tile, context)


def _in_rounds(step: Step, context: LoweringContext, between: int, tile: jax.Array) -> bool:
    if isinstance(step, AllPermute | Exchange):
        return True
    if isinstance(step, AllToAll) and step.group_size == 1:
        return True
    if isinstance(step, AllGather | AllToAll) and (not closes(step) or _has_swaps(step, context, tile)):
        return True
    if context.schedule == "overlap" or isinstance(step, DynSlice):
        return False
    if context.scratch is not None and step.scratch(sequential=False) + between <= context.scratch:
        return False
    return not (isinstance(step, AllGather) and is_leading(step))


def _has_swaps(step: AllGather | AllToAll, context: LoweringContext, tile: jax.Array) -> bool:
    """Whether large shares would meet on half-duplex links."""
    share = step.before.tile if isinstance(step, AllGather) else step.share
    return context.links is not None and context.links.swaps(step, _bytes(share, step, tile))


def _bytes(share: Sequence[int], step: Step, tile: jax.Array) -> int:
    """Bytes of a share of a tile, which may have more dimensions than the plan."""
    return math.prod((*share, *tile.shape[step.before.rank :])) * tile.dtype.itemsize


# ------------------------------------------------------------------------------------------- summands


def _on_summands(step: Step, tile: jax.Array, context: LoweringContext, limits: _Limits, between: int) -> jax.Array:
    adding = context.adding
    assert adding is not None
    if isinstance(step, Unreduce):
        return _unreduced(step, tile, context)
    if isinstance(step, AllReduce):
        return adding.reduced(step, tile, context.groups(step.groups))
    if isinstance(step, ReduceScatter):
        by_library = step.implementation == "alltoall" or reduction_of(step) != "sum" or not adding.native
        if not by_library:
            parts = ratio(step.after, step.before)
            return adding.scattered(step, tile, parts, context.groups(step.groups))
        links = context.links
        if not adding.fixed and links is not None and links.splits(_bytes(step.after.tile, step, tile)):
            return _added_in_place(step, tile, context, limits)
    elif isinstance(step, ReduceExchange):
        if not (adding.fixed or step.after.rank == 0 or (step.implementation == "ragged" and context.quirks.ragged)):
            return _added_in_place(step, tile, context, limits)
    else:
        return _step(step.stacked(), tile[None], context, limits, between)[0]
    stack = stacking(step)
    slabs = _step(stack.step, tile[None], context, limits, between)
    count = None if stack.counts is None else context.lookup(stack.counts.astype(np.int32))
    return adding.folded(slabs, reduction_of(step), count)


def _unreduced(step: Unreduce, tile: jax.Array, context: LoweringContext) -> jax.Array:
    adding, after = context.adding, step.after
    assert adding is not None
    shape = (*after.tile, *tile.shape[after.rank :])
    identities = adding.carried(jnp.full(shape, adding.identity(reduction_of(step))), tile)
    place = context.offsets(step.before.start - after.start)
    filled = tile if step.before.tile == after.tile else put(identities, tile, place)
    keeps = np.isin(np.arange(step.devices), step.keeps)
    return filled if keeps.all() else jnp.where(context.lookup(keeps), filled, identities)


def _added_in_place(
    step: ReduceScatter | ReduceExchange, tile: jax.Array, context: LoweringContext, limits: _Limits
) -> jax.Array:
    """Each device adds boxes, in order of arrival, to its tile of identity elements."""
    adding, after, reduction = context.adding, step.after, reduction_of(step)
    assert adding is not None
    dtype = adding.dtype_of_sums(tile)
    shape = (*after.tile, *tile.shape[after.rank :])
    out = jnp.full(shape, adding.identity(reduction, dtype), dtype)
    ordered: jax.Array | None = None
    in_flight = 0
    arrived: dict[PaddedTransfer, jax.Array] = {}
    writes = _parts(_loose(additions(step), context, limits), limits, lambda write: False)
    for write in writes:
        if write.pairs is not None and write.padded not in arrived:
            volume = write.padded.length if write.padded is not None else write.volume
            if in_flight and in_flight + volume > limits.in_flight:
                ordered, in_flight = zero_after(out, context), 0
            in_flight += volume
        part = _brought(write, writes, arrived, tile, context, ordered)
        target = context.offsets(write.target)
        sofar = box(out, target, write.size)
        more = adding.wide(part) if write.pairs is None else adding.combined(reduction, sofar, part)
        assert write.mask is not None
        if not write.mask.all():
            more = jnp.where(context.lookup(write.mask), more, sofar)
        out = more if write.size == after.tile else put(out, more, target)
    return adding.carried(out, tile)


# --------------------------------------------------------------------------------------------- rounds


def _rounds(before: Placement, step: Step, tile: jax.Array, context: LoweringContext, limits: _Limits) -> jax.Array:
    """A step as writes into its output tile; `before` may be an earlier placement with larger tiles."""
    assert isinstance(step, AllGather | AllToAll | AllPermute | Exchange)
    after = step.after
    elements = math.prod(tile.shape[after.rank :])  # behind each of the plan's
    shape = (*after.tile, *tile.shape[after.rank :])
    out: jax.Array | None = None
    ordered: jax.Array | None = None  # a zero that depends on all writes so far
    in_flight = 0
    untouched = True

    def bare(write: Write) -> bool:
        """Whether a permute reads the program's argument and is its result, without a copy."""
        return not context.quirks.copies_results and write.size == before.tile == after.tile

    split = (
        None if context.links is None else partial(context.links.writes, element_bytes=elements * tile.dtype.itemsize)
    )
    writes = schedule(before, step, split)
    carried: dict[Write, jax.Array] = {}
    arrived: dict[PaddedTransfer, jax.Array] = {}
    fused = isinstance(step, Exchange) and step.implementation == "ragged"
    travel = [write for write in writes if write.pairs is not None]
    if fused and context.quirks.ragged and context.schedule == "overlap" and fits_in_buffer(travel, context):
        sends = [_read(tile, context.offsets(write.source), write.size, None) for write in travel]
        carried = dict(zip(travel, carry(travel, sends, context), strict=True)) if travel else {}
    else:
        writes = _parts(_loose(writes, context, limits), limits, bare)
    for write in writes:
        volume = write.padded.length if write.padded is not None else write.volume
        if write.pairs is not None and not carried and write.padded not in arrived:
            window = limits.whole if write.size == before.tile else limits.in_flight
            if in_flight and in_flight + volume > window and out is not None:
                ordered, in_flight = zero_after(out, context), 0
            in_flight += volume
        part = carried[write] if write in carried else _brought(write, writes, arrived, tile, context, ordered)
        target = context.offsets(write.target)
        untouched = untouched and write.mask is writes[0].mask  # an idle device has not written there yet
        if write.mask is not None and not untouched and out is not None:
            part = jnp.where(context.lookup(write.mask), part, box(out, target, write.size))
        if write.size == after.tile:
            out = part
        else:
            out = put(lax.empty(shape, tile.dtype) if out is None else out, part, target)
    assert out is not None
    return out


def _loose(writes: Sequence[Write], context: LoweringContext, limits: _Limits) -> list[Write]:
    """The writes, without the padded transfers that take too much memory."""

    def fits(padded: PaddedTransfer) -> bool:
        return context.schedule == "overlap" and padded.length <= limits.part

    return [write if write.padded is None or fits(write.padded) else replace(write, padded=None) for write in writes]


def _brought(
    write: Write,
    writes: Sequence[Write],
    arrived: dict[PaddedTransfer, jax.Array],
    tile: jax.Array,
    context: LoweringContext,
    ordered: jax.Array | None,
) -> jax.Array:
    """The box to be written; a padded transfer is sent with the first write that reads it, and kept in `arrived`."""
    if write.padded is not None:
        if write.padded not in arrived:
            together = [other for other in writes if other.padded is write.padded]
            arrived[write.padded] = _sent(write.padded, together, tile, context, ordered)
        return arrived[write.padded][: write.volume].reshape(*write.size, *tile.shape[len(write.size) :])
    if write.pairs is None:  # it stays on the device and needs no scratch
        return _read(tile, context.offsets(write.source), write.size, None)
    return context.permute(_read(tile, context.offsets(write.source), write.size, ordered), write.pairs)


def _sent(
    padded: PaddedTransfer, writes: Sequence[Write], tile: jax.Array, context: LoweringContext, zero: jax.Array | None
) -> jax.Array:
    """`[length, ...]` elements that the running device receives; it packs the box that it sends."""
    packed: jax.Array | None = None
    for write in writes:
        assert write.pairs is not None
        share = _read(tile, context.offsets(write.source), write.size, zero)
        share = share.reshape(write.volume, *share.shape[len(write.size) :])
        rest = [(0, padded.length - write.volume, 0), *[(0, 0, 0)] * (share.ndim - 1)]
        share = lax.pad(share, jnp.zeros((), share.dtype), rest)
        senders = np.isin(np.arange(len(context.order)), write.pairs[:, 0])
        packed = share if packed is None else jnp.where(context.lookup(senders), share, packed)
    assert packed is not None
    return context.permute(packed, padded.pairs)


def _parts(writes: Sequence[Write], limits: _Limits, bare: Callable[[Write], bool]) -> list[Write]:
    """The writes; those that need scratch are cut to the limit: messages, and writes that are masked."""
    free = [write.padded is not None or (not write.masked and (write.pairs is None or bare(write))) for write in writes]
    return [
        part
        for write, whole in zip(writes, free, strict=True)
        for part in ([write] if whole else in_parts(write, limits.part))
    ]


def _read(tile: jax.Array, offsets: Offsets, size: Sequence[int], zero: jax.Array | None) -> jax.Array:
    """A box of the tile, with a data dependency on `zero` if there is one."""
    if zero is None:
        return box(tile, offsets, size)
    for i, (n, whole) in enumerate(zip(size, tile.shape, strict=False)):
        if n < whole:
            return box(tile, [*offsets[:i], later(offsets[i], zero), *offsets[i + 1 :]], size)
    # A whole tile has no offset to add the zero to; a choice that always takes the tile depends on it.
    return lax.select(jnp.broadcast_to(zero == 0, tile.shape), tile, jnp.zeros_like(tile))


def zero_after(array: jax.Array, context: LoweringContext) -> jax.Array:
    """Zero, computed from an element of the array in a way that no compiler simplifies.

    Compilers drop `lax.optimization_barrier` before they order operations, but not a data dependency: here a bit of an
    element, masked by a table entry that is zero for every device.
    """
    corner = array[(0,) * array.ndim]
    if jnp.issubdtype(corner.dtype, jnp.complexfloating):
        corner = corner.real
    if jnp.issubdtype(corner.dtype, jnp.floating):
        corner = lax.bitcast_convert_type(corner.astype(jnp.float32), jnp.int32)
    table = jnp.asarray(np.append(np.zeros(len(context.order), dtype=np.int32), np.int32(1)))
    entry = lax.dynamic_index_in_dim(table, lax.axis_index(context.names), keepdims=False)
    zero: jax.Array = corner.astype(jnp.int32) & entry
    return zero


def after(latest: jax.Array, tile: jax.Array, context: LoweringContext) -> jax.Array:
    """The tile, with a data dependency on another array."""
    is_zero = jnp.broadcast_to(zero_after(latest, context) == 0, tile.shape)
    return lax.select(is_zero, tile, jnp.zeros_like(tile))
