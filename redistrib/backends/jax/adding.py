"""Addition of partial sums on one device: the element type, the order, and the conversion from travelling bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.extremes import across
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.values import bits_of
from redistrib.errors import ReductionError
from redistrib.lang.notation import Reduction
from redistrib.plans.plan import Plan
from redistrib.plans.reduction import identity
from redistrib.plans.steps import AllReduce, ReduceScatter, Step

_COMBINE: dict[Reduction, Callable[[Any, Any], jax.Array]] = {"sum": lax.add, "max": lax.max, "min": lax.min}
_UNROLLED = 32  # partial sums up to which a program has one addition for each


@dataclass(frozen=True)
class Adding:
    """The additions of a plan's programs.

    Attributes:
        dtype: of the array. Tiles may travel as integers of equal width.
        accumulate: element type of sums that the library adds, which are rounded once; None for `dtype`.
        fixed: whether partial sums are added in ascending order.
        native: whether the platform has a reliable reduce-scatter.
    """

    dtype: Any
    accumulate: Any
    fixed: bool
    native: bool

    def values(self, tile: jax.Array) -> jax.Array:
        """The elements of a tile that travelled as bits."""
        if tile.dtype != self.dtype and bits_of(self.dtype) == tile.dtype:
            values: jax.Array = lax.bitcast_convert_type(tile, self.dtype)
            return values
        return tile

    def dtype_of_sums(self, tile: jax.Array) -> Any:
        """The element type of sums of tiles of an element type."""
        if self.accumulate is not None:
            return self.accumulate
        return self.dtype if bits_of(self.dtype) == tile.dtype else tile.dtype

    def wide(self, tile: jax.Array) -> jax.Array:
        """The elements of a tile, in the element type of sums."""
        values = self.values(tile)
        return values if self.accumulate is None else values.astype(self.accumulate)

    def carried(self, values: jax.Array, like: jax.Array) -> jax.Array:
        """A sum, rounded, in the element type of tiles that travel."""
        if values.dtype == like.dtype:
            return values
        if bits_of(self.dtype) == like.dtype:
            bits: jax.Array = lax.bitcast_convert_type(values.astype(self.dtype), like.dtype)
            return bits
        return values.astype(like.dtype)

    def identity(self, reduction: Reduction, dtype: Any = None) -> Any:
        """The identity element of a reduction."""
        return identity(reduction, np.dtype(self.dtype if dtype is None else dtype))

    def folded(self, slabs: jax.Array, reduction: Reduction, count: jax.Array | None) -> jax.Array:
        """The reduction of slabs, `[summands, *tile]`, in order; of the first `count` only, if it is not None."""
        combine, most = _COMBINE[reduction], len(slabs)
        total = self.wide(slabs[0])
        if count is not None:
            total = jnp.where(count > 0, total, self.identity(reduction, total.dtype))

        def turn(k: Any, sofar: jax.Array) -> jax.Array:
            slab = lax.dynamic_index_in_dim(slabs, k, keepdims=False)
            more = combine(sofar, self.wide(slab))
            return more if count is None else jnp.where(k < count, more, sofar)

        if most <= _UNROLLED:
            for k in range(1, most):
                total = turn(k, total)
        else:
            total = lax.fori_loop(1, most, turn, total)
        return self.carried(total, slabs)

    def scattered(
        self, step: ReduceScatter, tile: jax.Array, parts: tuple[int, ...], groups: dict[str, Any]
    ) -> jax.Array:
        """The platform's reduce-scatter: the tile is cut into `parts` along its dimensions, row-major."""
        values = self.values(tile)
        cut = [i for i, n in enumerate(parts) if n > 1]
        if len(cut) == 1:
            part = lax.psum_scatter(values, scatter_dimension=cut[0], tiled=True, **groups)
        else:
            shape: list[int] = []
            for i, n in enumerate(values.shape):
                shape += [parts[i], n // parts[i]] if i in cut else [n]
            first = [i + k for k, i in enumerate(cut)]  # where the parts of each dimension are counted
            order = first + [k for k in range(len(shape)) if k not in first]
            rest = (*step.after.tile, *values.shape[step.after.rank :])
            rows = values.reshape(shape).transpose(order).reshape(step.group_size, *rest)
            part = lax.psum_scatter(rows, scatter_dimension=0, tiled=False, **groups)
        return self.carried(part, tile)

    def reduced(self, step: AllReduce, tile: jax.Array, groups: dict[str, Any]) -> jax.Array:
        """The platform's all-reduce."""
        values, reduction = self.values(tile), reduction_of(step)
        total = lax.psum(values, **groups) if reduction == "sum" else across(values, reduction, groups)
        return self.carried(total, tile)

    def combined(self, reduction: Reduction, sofar: jax.Array, part: jax.Array) -> jax.Array:
        """The reduction of a running sum and a tile."""
        return _COMBINE[reduction](sofar, self.wide(part))


def reduction_of(step: Step) -> Reduction:
    """The reduction of a step that reduces or makes partial sums."""
    return step.before.reduction or step.after.reduction or "sum"


def adding_of(plan: Plan, quirks: Quirks) -> Adding | None:
    """The additions of a plan's programs; None if all tiles are whole.

    Raises:
        ReductionError: if sums need 64 bits without `jax_enable_x64`.
    """
    if not any(step.on_sums for step in plan.steps):
        return None
    require_dtypes_of_sums(plan)
    accumulate = None if plan.accumulate is None else jnp.dtype(plan.accumulate)
    return Adding(jnp.dtype(plan.dtype), accumulate, plan.order == "fixed", quirks.has_reliable_reduce_scatter)


def require_dtypes_of_sums(plan: Plan) -> None:
    """Refuse a plan whose sums need 64 bits without `jax_enable_x64`.

    Raises:
        ReductionError: for such a plan.
    """
    if any(step.on_sums for step in plan.steps):
        for dtype in (jnp.dtype(name) for name in (plan.dtype, plan.accumulate) if name is not None):
            if jax.dtypes.canonicalize_dtype(dtype) != dtype:
                raise ReductionError(
                    f"JAX makes no {dtype} unless jax_enable_x64 is set; set it, or add in another type"
                )
