"""Whole tiles of several plans, laid end to end: one collective for each step of all of them."""

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
from redistrib.backends.jax.frame import Frame
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute
from redistrib.plans.writes import of_all
from redistrib.theory.semantics import Int64


@dataclass(frozen=True)
class Way:
    """Between which devices whole tiles travel, whatever their shapes.

    Attributes:
        pairs: (sender, receiver) of a permute of all devices that comes first; empty if there is none.
        groups: devices of each group of a gather that comes last, in the order of their tiles; empty if there is none.
    """

    pairs: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[int, ...], ...]


def way_of(plan: Plan) -> Way | None:
    """The way of a plan that moves nothing but whole tiles, by a permute or a gather or both; None of others."""
    pairs: Int64 | None = None
    groups: Int64 | None = None
    for step in plan.steps:
        if isinstance(step, AllPermute) and pairs is None and groups is None:
            pairs = of_all(step.pairs, plan.devices)
            if pairs is None:
                return None
        elif isinstance(step, AllGather) and groups is None:
            groups = step.groups
        else:
            return None
    return Way(_rows(pairs), _rows(groups)) if plan.steps and plan.before.tile_size else None


def _rows(table: Int64 | None) -> tuple[tuple[int, ...], ...]:
    return () if table is None else tuple(map(tuple, table.tolist()))


def holds(dtype: Any) -> bool:
    """Whether tiles of a dtype may lie in a pile: neither keys nor what travels as wider numbers."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return False
    return not (jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).bits < 4)


def company(plan: Plan, dtype: Any, platform: str) -> Hashable | None:
    """What tiles have in common that may lie in one pile; None for those that may lie in none."""
    way = way_of(plan) if holds(dtype) else None
    if way is None:
        return None
    # XLA:CPU takes long to make a loop for every size.
    return (way, dtype, plan.before.tile_size if platform == "cpu" else None)


def piled(tiles: Sequence[jax.Array], plans: Sequence[Plan], way: Way, frame: Frame) -> list[jax.Array]:
    """Tiles of one dtype, each moved by its own plan, all of which go one way."""
    pile = lax.concatenate([lax.reshape(tile, (tile.size,)) for tile in tiles], 0)
    if way.pairs:
        pile = frame.permute(pile, np.array(way.pairs))
    if way.groups:
        pile = lax.all_gather(pile, tiled=True, **frame.groups(np.array(way.groups)))
    members = len(way.groups[0]) if way.groups else 1
    taken = _taken(pile, members, [tile.size for tile in tiles], frame)
    return [
        joined(lax.reshape(parts, (members, *tile.shape)), ratio(plan.before, plan.after))
        for parts, tile, plan in zip(taken, tiles, plans, strict=True)
    ]


def _taken(pile: jax.Array, members: int, sizes: Sequence[int], frame: Frame) -> Iterator[jax.Array]:
    """The parts of each tile: as many boxes as there are members, of so many elements each."""
    if len(set(sizes)) == 1:
        rows = lax.reshape(pile, (members, len(sizes), sizes[0]))
        yield from (box(rows, [0, frame.number(k), 0], (members, 1, size)) for k, size in enumerate(sizes))
    else:
        rows = lax.reshape(pile, (members, sum(sizes)))
        starts = accumulate(sizes[:-1], initial=0)
        yield from (box(rows, [0, start], (members, size)) for start, size in zip(starts, sizes, strict=True))
