"""The program of one device: each step of a plan as `jax.lax` operations on its tile.

`local_program` knows devices by number and a tuple of mesh axes, so it runs under any `shard_map` whose manual axes
enumerate the devices. Every device runs the same operations; what differs between devices is read from small int32
tables at the device's own position.

Two schedules exist for what travels in rounds. `"overlap"` leaves the order of rounds to the compiler as long as what
is in flight fits in one tile. `"sequential"` starts a round when the one before has been written, in parts small
enough that a plan of one step needs at most half a tile of scratch, and runs all-to-alls and strided gathers as such
rounds too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from redistrib.backends.jax.groups import axes_of_groups
from redistrib.backends.jax.rounds import Write, in_parts, schedule, shares_of
from redistrib.plans.memory import SEQUENTIAL_SCRATCH, buffers
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.theory.semantics import Int64, Placement

Schedule: TypeAlias = Literal["overlap", "sequential"]
Offsets: TypeAlias = Sequence[int | jax.Array]

MOST_PIECES = 32  # members of an all-to-all; above, a program of one slice for each becomes too long
SMALLEST_PART = 1 / 16  # of the plan's largest tile: cut no finer, however much the tiles between steps take


@dataclass(frozen=True)
class Frame:
    """Where a program runs.

    Attributes:
        names, sizes: the manual mesh axes, in mesh order.
        order: `order[p]` is the device number at row-major position p.
        schedule: see the module.
        pieces: all-to-alls over at most so many members cut and join shares one by one, which suits CPUs; larger
            ones reshape and transpose one packed buffer, which suits TPUs.
        scratch: elements of scratch that the memory limit of a plan leaves; all-to-alls and gathers that fit in it stay
            dense in a sequential program too.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    schedule: Schedule = "overlap"
    pieces: int = MOST_PIECES
    scratch: int | None = None
    position: Int64 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        position = np.empty(len(self.order), dtype=np.int64)
        position[list(self.order)] = np.arange(len(self.order))
        object.__setattr__(self, "position", position)

    def lookup(self, table: np.ndarray) -> Any:
        """The entry `table[d]` of the device that runs, of a table over device numbers."""
        rows = jnp.asarray(table[list(self.order)])
        return lax.dynamic_index_in_dim(rows, lax.axis_index(self.names), keepdims=False)

    def offsets(self, table: Int64) -> list[int | jax.Array]:
        """Row d of `[devices, rank]` offsets as scalars, on the device d that runs; numbers where all rows agree."""
        return [
            int(column[0]) if (column == column[0]).all() else self.lookup(column.astype(np.int32))
            for column in table.T
        ]

    def groups(self, groups: Int64) -> dict[str, Any]:
        """Keyword arguments that name the groups of a collective: mesh axes where they follow some."""
        placed = self.position[groups]
        axes = axes_of_groups(placed, self.sizes)
        if axes is not None:
            return {"axis_name": tuple(self.names[axis] for axis in axes)}
        return {"axis_name": self.names, "axis_index_groups": placed.tolist()}

    def permute(self, tile: jax.Array, pairs: Int64) -> jax.Array:
        """`lax.ppermute` between device numbers; devices that receive nothing get zeros."""
        moved: jax.Array = lax.ppermute(tile, self.names, [(a, b) for a, b in self.position[pairs].tolist()])
        return moved


def frame_of(
    plan: Plan,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    order: tuple[int, ...],
    schedule: Schedule | None,
    on_cpu: bool,
) -> Frame:
    """The frame of a plan: without a schedule of its own, a plan made for a memory limit runs in sequence within it."""
    pieces = MOST_PIECES if on_cpu else 0
    if schedule is not None or plan.memory_limit is None:
        return Frame(names, sizes, order, schedule or "overlap", pieces)
    scratch = plan.memory_limit // plan.itemsize - plan.before.tile_size - plan.after.tile_size
    return Frame(names, sizes, order, "sequential", pieces, scratch)


def local_program(steps: Sequence[Step], frame: Frame) -> Callable[[jax.Array], jax.Array]:
    """The function from a device's source tile to its target tile, to be run under the frame's manual axes.

    Tiles may have dimensions beyond the plan's rank; they travel along.
    """

    largest = max((max(step.before.tile_size, step.after.tile_size) for step in steps), default=0)

    def program(tile: jax.Array) -> jax.Array:
        pending: DynSlice | None = None
        first = True  # the tile at hand is the program's argument, not a temporary
        for k, step in enumerate(steps):
            last = k == len(steps) - 1
            between = (0 if first else step.before.tile_size) + (0 if last else step.after.tile_size)
            limits = _limits(largest, between, frame)
            if isinstance(step, DynSlice):
                pending = DynSlice(pending.before if pending else step.before, step.after)
                continue
            if pending is not None and _in_rounds(step, frame, between):  # read shares from the larger tile at once
                tile = _rounds(pending.before, step, tile, frame, limits)
            else:
                if pending is not None:
                    tile = _box(tile, frame.offsets(_within(pending)), pending.after.tile)
                tile = _step(step, tile, frame, limits, between)
            pending, first = None, False
        if pending is not None:
            tile = _box(tile, frame.offsets(_within(pending)), pending.after.tile)
        return tile

    return program


@dataclass(frozen=True)
class _Limits:
    """What one step may use: elements in flight at once, and elements of one part."""

    in_flight: int
    part: int


def _limits(largest: int, between: int, frame: Frame) -> _Limits:
    if frame.schedule == "overlap":
        return _Limits(in_flight=largest, part=largest)
    free = (SEQUENTIAL_SCRATCH * largest - between) / 2
    return _Limits(in_flight=0, part=int(max(free, SMALLEST_PART * largest)))


def _within(step: DynSlice) -> Int64:
    return step.after.start - step.before.start


def _step(step: Step, tile: jax.Array, frame: Frame, limits: _Limits, between: int) -> jax.Array:
    if tile.size == 0:
        return jnp.zeros((*step.after.tile, *tile.shape[step.after.rank :]), tile.dtype)
    if _in_rounds(step, frame, between):
        return _rounds(step.before, step, tile, frame, limits)
    if isinstance(step, AllGather):
        return _gather(step, tile, frame) if step.group_size > 1 else tile
    assert isinstance(step, AllToAll)
    return _all_to_all(step, tile, frame)


def _in_rounds(step: Step, frame: Frame, between: int) -> bool:
    if isinstance(step, AllPermute | Exchange):
        return True
    if isinstance(step, AllToAll) and step.group_size == 1:
        return True
    if frame.schedule == "overlap" or isinstance(step, DynSlice):
        return False
    if frame.scratch is not None and buffers(step) + between <= frame.scratch:
        return False
    return not (isinstance(step, AllGather) and _is_leading(step))


# ---------------------------------------------------------------------------------- boxes of a tile


def _box(tile: jax.Array, offsets: Offsets, size: Sequence[int]) -> jax.Array:
    """The box of `size` at `offsets` of the leading dimensions, whole in all others."""
    rest = tile.ndim - len(size)
    full = (*size, *tile.shape[len(size) :])
    if full == tile.shape:
        return tile
    if all(isinstance(offset, int) for offset in offsets):
        return tile[tuple(slice(o, o + n) for o, n in zip(offsets, size, strict=True))]
    return lax.dynamic_slice(tile, _starts(offsets, rest), full)


def _put(tile: jax.Array, box: jax.Array, offsets: Offsets) -> jax.Array:
    return lax.dynamic_update_slice(tile, box, _starts(offsets, tile.ndim - len(offsets)))


def _starts(offsets: Offsets, rest: int) -> list[Any]:
    return [jnp.int32(offset) if isinstance(offset, int) else offset for offset in (*offsets, *(0,) * rest)]


def _ratio(fine: Placement, coarse: Placement) -> tuple[int, ...]:
    """How many tiles of one placement make a tile of the other along each dimension; at least 1."""
    return tuple(max(1, f // c) for f, c in zip(fine.grid, coarse.grid, strict=True))


def _joined(parts: jax.Array, factors: Sequence[int]) -> jax.Array:
    """One tile from `[parts, *part]`, row-major over `factors`: by one transpose, or none if nothing must move."""
    rank, part = len(factors), parts.shape[1:]
    grown = [i for i in range(rank) if factors[i] > 1]
    stacked = parts.reshape(*(factors[i] for i in grown), *part)
    order: list[int] = []
    for i in range(len(part)):
        order += [grown.index(i)] if i in grown else []
        order.append(len(grown) + i)
    whole = [n * (factors[i] if i < rank else 1) for i, n in enumerate(part)]
    return stacked.transpose(order).reshape(whole)


# -------------------------------------------------------------------------------- grouped collectives


def _is_leading(step: AllGather) -> bool:
    """Whether the parts follow one another in memory: all dimensions before the last that grows have extent 1."""
    grown = [i for i, f in enumerate(_ratio(step.before, step.after)) if f > 1]
    return not grown or all(n == 1 for n in step.before.tile[: grown[-1]])


def _gather(step: AllGather, tile: jax.Array, frame: Frame) -> jax.Array:
    # Gathering along a new leading dimension and transposing once is faster than tiled=True along an inner one.
    parts = lax.all_gather(tile, **frame.groups(step.groups))
    return _joined(parts, _ratio(step.before, step.after))


def _all_to_all(step: AllToAll, tile: jax.Array, frame: Frame) -> jax.Array:
    split, merged = _ratio(step.after, step.before), _ratio(step.before, step.after)
    wanted = _wanted(step, split)
    in_order = wanted.shape[1] == math.prod(split) and bool((wanted == np.arange(wanted.shape[1])).all())
    if step.group_size <= (frame.pieces if in_order else MOST_PIECES):
        sent = _pieces(step, split, tile, frame)
    else:
        sent = _chunks(split, tile)
        if not in_order:
            same = (wanted == wanted[0]).all()
            sent = jnp.take(sent, jnp.asarray(wanted[0]) if same else frame.lookup(wanted), axis=0, mode="clip")
    received = lax.all_to_all(sent, split_axis=0, concat_axis=0, tiled=True, **frame.groups(step.groups))
    return _concatenated(received, merged) if step.group_size <= frame.pieces else _joined(received, merged)


def _receivers(step: AllToAll) -> Int64:
    """`[devices, members]`: the members of each device's group, in order."""
    table = np.empty((step.devices, step.group_size), dtype=np.int64)
    for group in step.groups:
        table[group] = group
    return table


def _pieces(step: AllToAll, split: Sequence[int], tile: jax.Array, frame: Frame) -> jax.Array:
    """`[members, *share]`, cut one by one: the order of shares is in the offsets, so it costs nothing."""
    to = _receivers(step)
    place = step.after.index % np.array(split) * np.array(step.share)  # of the share of a receiver, in every sender
    cut = [_box(tile, frame.offsets(place[to[:, j]]), step.share) for j in range(step.group_size)]
    if step.group_size <= frame.pieces:
        return jnp.stack(cut)
    # Compilers that want one buffer may give every piece of a stack its own first; updates are written in place.
    packed = lax.empty((len(cut), *cut[0].shape), tile.dtype)
    for j, piece in enumerate(cut):
        packed = lax.dynamic_update_index_in_dim(packed, piece, j, axis=0)
    return packed


def _wanted(step: AllToAll, split: Sequence[int]) -> npt.NDArray[np.int32]:
    """`[devices, members]`: which part of its tile, by row-major number, a device sends to each member."""
    number = np.zeros(step.devices, dtype=np.int32)
    for i, parts in enumerate(split):
        number = number * parts + (step.after.index[:, i] % parts).astype(np.int32)
    return number[_receivers(step)]


def _chunks(split: Sequence[int], tile: jax.Array) -> jax.Array:
    """`[parts, *share]`: all parts of the tile in row-major order, by one reshape and transpose."""
    rank = len(split)
    cut = [i for i in range(rank) if split[i] > 1]
    shape: list[int] = []
    for i, n in enumerate(tile.shape):
        shape += [split[i], n // split[i]] if i in cut else [n]
    first = [i + cut.index(i) for i in cut]
    order = first + [k for k in range(len(shape)) if k not in first]
    share = [n // (split[i] if i < rank else 1) for i, n in enumerate(tile.shape)]
    return tile.reshape(shape).transpose(order).reshape(-1, *share)


_SHORT_RUN = 16  # elements: joining parts whose rows are shorter is faster in one transpose than part by part


def _concatenated(parts: jax.Array, factors: Sequence[int]) -> jax.Array:
    """As `_joined`, part by part, which copies long rows and not single elements."""
    grown = [i for i, f in enumerate(factors) if f > 1]
    if grown and math.prod(parts.shape[1 + grown[-1] :]) < _SHORT_RUN:
        return _joined(parts, factors)
    rows = [parts[k] for k in range(parts.shape[0])]
    for i in reversed(grown):
        rows = [jnp.concatenate(rows[k : k + factors[i]], axis=i) for k in range(0, len(rows), factors[i])]
    return rows[0]


# --------------------------------------------------------------------------------------------- rounds


def _rounds(before: Placement, step: Step, tile: jax.Array, frame: Frame, limits: _Limits) -> jax.Array:
    """Carry out a step as writes into its output tile; `before` may be any placement that holds what is sent."""
    assert not isinstance(step, DynSlice)
    after = step.after
    shape = (*after.tile, *tile.shape[after.rank :])
    out: jax.Array | None = None
    ordered: jax.Array | None = None  # a zero that is known when all that came before has been written
    in_flight = 0
    untouched = True
    writes = _parts(schedule(before, after, shares_of(step)), limits)
    for write in writes:
        if write.pairs is not None:
            if in_flight and in_flight + write.volume > limits.in_flight and out is not None:
                ordered, in_flight = _zero_after(out, frame), 0
            in_flight += write.volume
        box = _read(tile, frame.offsets(write.source), write.size, ordered)
        if write.pairs is not None:
            box = frame.permute(box, write.pairs)
        target = frame.offsets(write.target)
        untouched = untouched and write.writes is writes[0].writes  # where a device is idle it has written nothing yet
        if write.writes is not None and not untouched and out is not None:
            box = jnp.where(frame.lookup(write.writes), box, _box(out, target, write.size))
        if write.size == after.tile:
            out = box
        else:
            out = _put(lax.empty(shape, tile.dtype) if out is None else out, box, target)
    assert out is not None
    return out


def _parts(writes: Sequence[Write], limits: _Limits) -> list[Write]:
    """The writes, with those cut to the limit that need scratch: what travels, and what only some devices write."""
    free = [write.pairs is None and not write.masked for write in writes]
    return [
        part
        for write, whole in zip(writes, free, strict=True)
        for part in ([write] if whole else in_parts(write, limits.part))
    ]


def _read(tile: jax.Array, offsets: Offsets, size: Sequence[int], zero: jax.Array | None) -> jax.Array:
    """A box of the tile, read only once `zero` is known."""
    if zero is None:
        return _box(tile, offsets, size)
    for i, (n, whole) in enumerate(zip(size, tile.shape, strict=False)):
        if n < whole:
            return _box(tile, [*offsets[:i], offsets[i] + zero, *offsets[i + 1 :]], size)
    # The whole tile has no offset to tie to the zero; a choice that always falls on the tile is tied to it.
    return lax.select(jnp.broadcast_to(zero == 0, tile.shape), tile, jnp.zeros_like(tile))


def _zero_after(array: jax.Array, frame: Frame) -> jax.Array:
    """Zero, computed from an element of the array in a way that no compiler sees through.

    Compilers drop `lax.optimization_barrier` before they order operations. A true dependency stays: some bit of an
    element, and an entry of a table that is zero for every device that exists.
    """
    corner = array[(0,) * array.ndim]
    if jnp.issubdtype(corner.dtype, jnp.complexfloating):
        corner = corner.real
    if jnp.issubdtype(corner.dtype, jnp.floating):
        corner = lax.bitcast_convert_type(corner.astype(jnp.float32), jnp.int32)
    table = jnp.asarray(np.append(np.zeros(len(frame.order), dtype=np.int32), np.int32(1)))
    entry = lax.dynamic_index_in_dim(table, lax.axis_index(frame.names), keepdims=False)
    zero: jax.Array = corner.astype(jnp.int32) & entry
    return zero
