"""Primitives that combine elements in a way that no collective has, replaced by others that may be cut along them.

A dimension of N elements becomes B blocks of N / B. Each block is computed by itself, which nothing prevents from being
cut, and the results of the blocks are combined on every device:

- a product (`reduce_prod`, `reduce_xor`, `reduce_and`, `reduce_or`) is that of the products of the blocks;
- a cumulative operation (`cumsum`, `cumprod`, `cummax`, `cummin`, `cumlogsumexp`) is made of those of the blocks.
  Each is combined with the result at the end of the block before it, the same operation on the totals of the blocks;
- the k largest (`top_k`, `approx_top_k`) are the k largest among the k largest of each block. `top_k` takes the first
  of equals, and blocks follow in order: so the indices are those of the whole.

`argmax` and `argmin` need no blocks. They are the least index at which the extreme element stands; NaN counts as one.

All cost more than the primitive, so they replace it only where its operand is cut (`run.divided`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex

from redistrib.arith import divisors
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Blocks
from redistrib.programs.rules.sums import can_be_summed

UNTOLD = 64  # elements of an array that every device may compute whole without a word
_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum": lax.add, "cumprod": lax.mul, "cummax": lax.max, "cummin": lax.min, "cumlogsumexp": jnp.logaddexp,
}  # fmt: skip


def in_parts(eqn: Any, parts: int, *, exact: bool) -> Callable[[], jex.ClosedJaxpr] | None:
    """Makes the equations for an equation, whose elements may then be cut into as many parts.

    None if the primitive has none, or the operand is small, or has no blocks of at least two elements.

    Args:
        eqn: the equation.
        parts: the devices; an axis cuts a dimension where its size divides the number of blocks.
        exact: whether floats must be combined in the order of the whole.
    """
    record = record_of(eqn.primitive.name)
    if record.blocks is Blocks.NONE or parts == 1:
        return None
    aval = eqn.invars[0].aval
    if aval.size < UNTOLD or jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return None
    if record.rounds and not can_be_summed(str(aval.dtype)):
        return None
    if record.rounds and exact and not jnp.issubdtype(aval.dtype, jnp.integer):
        return None
    function = _function(eqn, aval, parts)
    return None if function is None else lambda: jax.make_jaxpr(function)(aval)


def _function(eqn: Any, aval: Any, parts: int) -> Callable[[Any], Any] | None:
    kind, params, shape = eqn.primitive.name, eqn.params, aval.shape
    blocked = record_of(kind).blocks
    if blocked is Blocks.EXTREME:
        (axis,) = params["axes"]
        return _extreme(kind, axis, params["index_dtype"]) if math.gcd(shape[axis], parts) > 1 else None
    if blocked is Blocks.PRODUCT:
        if aval.dtype == bool and kind != "reduce_xor":  # combined as integers
            return None
        axes = params["axes"]
        counts = _blocks([shape[axis] for axis in axes], parts)
        return _product(eqn.primitive, params, dict(zip(axes, counts, strict=True))) if max(counts) > 1 else None
    axis = params.get("axis", params.get("reduction_dimension", -1)) % len(shape)
    blocks = _most_blocks(shape[axis], parts, shape[axis] // 2)
    if blocks == 1:
        return None
    if blocked is Blocks.RUNNING:
        return _cumulative(eqn.primitive, params, axis, blocks)
    is_whole = params.get("aggregate_to_topk") and params.get("reduction_input_size_override") == -1
    if blocked is Blocks.APPROXIMATE and not is_whole:
        return None
    blocks = _most_blocks(shape[axis], parts, shape[axis] // max(1, 2 * params["k"]))
    return _largest(eqn.primitive, params, axis, blocks) if blocks > 1 else None


def _blocks(sizes: Sequence[int], parts: int) -> list[int]:
    """For each reduced dimension the number of its blocks, the longest first; together at most half the elements."""
    blocks, free = [1] * len(sizes), math.prod(sizes) // 2
    for k in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
        blocks[k] = _most_blocks(sizes[k], parts, free)
        free //= blocks[k]
    return blocks


def _most_blocks(size: int, parts: int, most: int) -> int:
    """The largest number up to `most` that divides both a dimension and the number of devices."""
    return max(count for count in divisors(math.gcd(size, parts)) if count <= max(1, most))


def _in_blocks(x: Any, axis: int, blocks: int) -> Any:
    return x.reshape(*x.shape[:axis], blocks, x.shape[axis] // blocks, *x.shape[axis + 1 :])


def _product(primitive: Any, params: Any, blocks: dict[int, int]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        shape: list[int] = []
        inner, outer, kept = [], [], 0
        for axis, size in enumerate(x.shape):
            count = blocks.get(axis, size)
            if axis not in blocks or count > 1:
                shape.append(count)
                outer += [kept] if axis in blocks else []
                kept += 1
            if axis in blocks:
                inner.append(len(shape))
                shape.append(size // count)
        of_blocks = primitive.bind(x.reshape(shape), **{**params, "axes": tuple(inner)})
        return primitive.bind(of_blocks, **{**params, "axes": tuple(outer)})

    return function


def _cumulative(primitive: Any, params: Any, axis: int, blocks: int) -> Callable[[Any], Any]:
    join, reverse = _JOIN[primitive.name], params["reverse"]

    def function(x: Any) -> Any:
        in_block = primitive.bind(_in_blocks(x, axis, blocks), **{**params, "axis": axis + 1})
        last = 0 if reverse else in_block.shape[axis + 1] - 1
        totals = lax.squeeze(lax.slice_in_dim(in_block, last, last + 1, axis=axis + 1), (axis + 1,))
        before = primitive.bind(totals, **{**params, "axis": axis})
        shift = [(0, 0, 0)] * totals.ndim
        shift[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
        before = lax.pad(before, jnp.zeros((), x.dtype), shift)
        spread = lax.broadcast_in_dim(before, in_block.shape, [k for k in range(in_block.ndim) if k != axis + 1])
        begins = lax.broadcasted_iota(np.int32, in_block.shape, axis) == (blocks - 1 if reverse else 0)
        return lax.select(begins, in_block, join(spread, in_block)).reshape(x.shape)

    return function


def _largest(primitive: Any, params: Any, axis: int, blocks: int) -> Callable[[Any], Any]:
    """Values and indices; `axis` is the last dimension of values and indices too."""
    where = [name for name in ("axis", "reduction_dimension") if name in params]  # top_k of some JAX has the last alone

    def function(x: Any) -> Any:
        length, joined = x.shape[axis] // blocks, [*x.shape]
        joined[axis] = blocks * params["k"]
        values, indices = primitive.bind(_in_blocks(x, axis, blocks), **{**params, **dict.fromkeys(where, axis + 1)})
        indices = indices + lax.broadcasted_iota(indices.dtype, indices.shape, axis) * length
        values, at = primitive.bind(values.reshape(joined), **{**params, **dict.fromkeys(where, axis)})
        return values, jnp.take_along_axis(indices.reshape(joined), at, axis, mode="promise_in_bounds")

    return function


def _extreme(kind: str, axis: int, index_dtype: Any) -> Callable[[Any], Any]:
    reduce = lax.reduce_max if kind == "argmax" else lax.reduce_min

    def function(x: Any) -> Any:
        of_all = lax.broadcast_in_dim(reduce(x, (axis,)), x.shape, [k for k in range(x.ndim) if k != axis])
        is_extreme = (x == of_all) | (x != x)  # a NaN is found where the extreme is NaN
        indices = lax.broadcasted_iota(index_dtype, x.shape, axis)
        last = lax.full_like(indices, x.shape[axis] - 1)
        return lax.reduce_min(lax.select(is_extreme, indices, last), (axis,))

    return function
