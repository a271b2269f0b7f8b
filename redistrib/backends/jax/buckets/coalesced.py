"""Whole tiles of several plans, end to end in one buffer: one collective for each step of all plans."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.boxes import box, joined, ratio
from redistrib.backends.jax.context import LoweringContext, closes
from redistrib.backends.jax.quirks import Quirks
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute
from redistrib.plans.writes import with_keepers
from redistrib.theory.placement import Int64


@dataclass(frozen=True)
class TilePattern:
    """The devices between which whole tiles travel, for any shape of tiles.

    Attributes:
        pairs: (sender, receiver) of the first step, a permute of all devices; empty if there is none.
        groups: devices of each group of the last step, a gather, in the order of their tiles; empty if there is none.
    """

    pairs: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[int, ...], ...]


def pattern_of(plan: Plan) -> TilePattern | None:
    """The pattern of a plan that moves only whole tiles, by a permute or a gather or both; None for other plans."""
    pairs: Int64 | None = None
    groups: Int64 | None = None
    for step in plan.steps:
        if isinstance(step, AllPermute) and pairs is None and groups is None:
            pairs = with_keepers(step.pairs, plan.devices)
            if pairs is None:
                return None
        elif isinstance(step, AllGather) and groups is None and closes(step):
            groups = step.groups
        else:
            return None
    return TilePattern(_rows(pairs), _rows(groups)) if plan.steps and plan.before.tile_size else None


def _rows(table: Int64 | None) -> tuple[tuple[int, ...], ...]:
    return () if table is None else tuple(map(tuple, table.tolist()))


def can_be_coalesced(dtype: Any) -> bool:
    """Whether tiles of a dtype may lie end to end in a buffer; keys and widened integers may not."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return False
    return not (jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).bits < 4)


def coalescing_key(plan: Plan, dtype: Any, quirks: Quirks) -> Hashable | None:
    """A key that tiles share if they may be coalesced with one another; None for tiles that may not."""
    pattern = pattern_of(plan) if can_be_coalesced(dtype) else None
    return None if pattern is None else (pattern, dtype, plan.before.tile_size if quirks.one_size else None)


def coalesced(
    tiles: Sequence[jax.Array], plans: Sequence[Plan], pattern: TilePattern, context: LoweringContext
) -> list[jax.Array]:
    """Tiles of one dtype, each moved by its own plan; all plans have one pattern."""
    buffer = lax.concatenate([lax.reshape(tile, (tile.size,)) for tile in tiles], 0)
    if pattern.pairs:
        buffer = context.permute(buffer, np.array(pattern.pairs))
    if pattern.groups:
        buffer = lax.all_gather(buffer, tiled=True, **context.groups(np.array(pattern.groups)))
    members = len(pattern.groups[0]) if pattern.groups else 1
    taken = _taken(buffer, members, [tile.size for tile in tiles], context)
    return [
        joined(lax.reshape(parts, (members, *tile.shape)), ratio(plan.before, plan.after))
        for parts, tile, plan in zip(taken, tiles, plans, strict=True)
    ]


def _taken(buffer: jax.Array, members: int, sizes: Sequence[int], context: LoweringContext) -> Iterator[jax.Array]:
    """The parts of each tile: a box for each member, of `sizes[k]` elements for tile k."""
    if len(set(sizes)) == 1:
        rows = lax.reshape(buffer, (members, len(sizes), sizes[0]))
        yield from (box(rows, [0, context.number(k), 0], (members, 1, size)) for k, size in enumerate(sizes))
    else:
        rows = lax.reshape(buffer, (members, sum(sizes)))
        starts = accumulate(sizes[:-1], initial=0)
        yield from (box(rows, [0, start], (members, size)) for start, size in zip(starts, sizes, strict=True))
