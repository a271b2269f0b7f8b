"""Plans of arrays with padding after their last element, whose last tiles are filled in part."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.boxes import box
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.lowering import local_program
from redistrib.backends.jax.names import named
from redistrib.backends.jax.values import Program
from redistrib.errors import UnevenTypeError
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.theory.placement import Placement


def tile_program(plan: Plan, context: LoweringContext) -> Program:
    """The function from a device's source tile to its target tile, see `local_program`.

    Padding is not read, and is zero in the result.
    """
    program = named(local_program(plan.steps, context), plan)
    if not plan.source.uneven and not plan.target.uneven:
        return program

    def run(tile: jax.Array) -> jax.Array:
        moved = program(box(tile, [0] * plan.before.rank, plan.before.tile))
        moved = _cleared(moved, plan.after, context)
        behind = [whole - size for whole, size in zip(plan.target.local_shape, plan.after.tile, strict=True)]
        if not any(behind):
            return moved
        margins = [(0, n, 0) for n in (*behind, *[0] * (moved.ndim - plan.after.rank))]
        return lax.pad(moved, jnp.zeros((), moved.dtype), margins)

    return run


def _cleared(tile: jax.Array, placement: Placement, context: LoweringContext) -> jax.Array:
    """The tile, with zeros after the last element of the array."""
    inside: jax.Array | None = None
    for i, points in enumerate(placement.points):
        if points is not None and tile.shape[i] > context.largest_index:
            tile = context.branch(placement.boxes.size[:, i : i + 1], partial(_cleared_behind, tile, i))
        elif points is not None:
            size = context.lookup(placement.boxes.size[:, i].astype(np.int32))
            within = lax.broadcasted_iota(np.int32, tile.shape, i) < size
            inside = within if inside is None else inside & within
    return tile if inside is None else jnp.where(inside, tile, jnp.zeros_like(tile))


def _cleared_behind(tile: jax.Array, dim: int, row: tuple[int, ...]) -> jax.Array:
    """The tile, with zeros after so many elements of a dimension."""
    (size,) = row
    behind = [(0, tile.shape[i] - size if i == dim else 0, 0) for i in range(tile.ndim)]
    return lax.pad(lax.slice_in_dim(tile, 0, size, axis=dim), jnp.zeros((), tile.dtype), behind)


def require_arrays(*types: DistType) -> None:
    """Refuse types of which JAX has no arrays, not even with padding after their last element.

    Raises:
        UnevenTypeError: for the first such type.
    """
    for dist_type in types:
        if any(dim.cut != "even" for dim in dist_type.dims):
            raise UnevenTypeError(
                "JAX",
                str(dist_type),
                "keep the array in one with padding, as redistrib.reshard(..., logical_shape=) does, or use MPI",
            )
