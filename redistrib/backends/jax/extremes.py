"""Maxima and minima across devices, as maxima and minima of integers with the order of the elements.

XLA's `maximum` gives NaN where an element is NaN, and orders 0.0 above -0.0. An all-reduce need not do so: on CPUs it
loses NaNs, and the sign of a zero depends on the order of the devices; NCCL and the TPU compiler specify neither.
Integers have the same order everywhere. So floats are mapped to integers of equal width, NaNs beyond all numbers, and
the result is mapped back bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.values import as_dtype, bits_of
from redistrib.cache import cached
from redistrib.lang.notation import Reduction


def across(values: jax.Array, reduction: Reduction, groups: dict[str, Any]) -> jax.Array:
    """The maximum or minimum of the values of each group of devices, by one all-reduce; see `lax.pmax` for `groups`.

    >>> most = jax.vmap(lambda tile: across(tile, "max", {"axis_name": "x"}), axis_name="x")
    >>> most(jnp.array([1, 2, jnp.nan])), most(jnp.array([-0.0, 0, -1]))
    (Array([nan, nan, nan], dtype=float32), Array([0., 0., 0.], dtype=float32))
    """
    reduced: Callable[..., jax.Array] = lax.pmax if reduction == "max" else lax.pmin
    dtype = values.dtype
    if dtype == jnp.bool_:  # collectives have maxima of numbers only
        return reduced(values.astype(jnp.uint8), **groups).astype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        return reduced(values, **groups)
    return from_ordered(reduced(ordered(values, reduction), **groups), dtype, reduction)


def ordered(values: jax.Array, reduction: Reduction) -> jax.Array:
    """Unsigned integers with the order of floats: -0.0 below 0.0; NaNs highest for a maximum, lowest for a minimum."""
    dtype = values.dtype
    bits = as_dtype(values, _bits_of(dtype))
    if dtype.itemsize == 1:
        return jnp.asarray(_tables(dtype, reduction)[0])[bits.astype(jnp.int32)]
    sign, first = _sign_and_first(dtype, reduction)
    rank: jax.Array = jnp.where(bits >= sign, ~bits, bits | sign)  # NaNs at both ends
    together: jax.Array = rank - first  # wraps around, which brings all NaNs to one end
    return together


def from_ordered(ranks: jax.Array, dtype: Any, reduction: Reduction) -> jax.Array:
    """The floats from the integers of `ordered`, bit by bit."""
    if dtype.itemsize == 1:
        bits = jnp.asarray(_tables(dtype, reduction)[1])[ranks.astype(jnp.int32)]
        return as_dtype(bits.astype(_bits_of(dtype)), dtype)
    sign, first = _sign_and_first(dtype, reduction)
    rank: jax.Array = ranks + first
    return as_dtype(jnp.where(rank >= sign, rank ^ sign, ~rank), dtype)


def _bits_of(dtype: Any) -> Any:
    return bits_of(dtype) or jnp.dtype(f"uint{8 * dtype.itemsize}")


def _sign_and_first(dtype: Any, reduction: Reduction) -> tuple[Any, Any]:
    """The sign bit of an IEEE type, and the rank that becomes 0: that of -inf, or the first NaN's above inf."""
    unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
    sign = 1 << (8 * dtype.itemsize - 1)
    infinity = int(np.array(np.inf, dtype).view(unsigned))
    first = sign - 1 - infinity if reduction == "max" else sign + infinity + 1
    return unsigned.type(sign), unsigned.type(first)


@cached(64)
def _tables(dtype: Any, reduction: Reduction) -> tuple[np.ndarray, np.ndarray]:
    """For a type of at most one byte, the rank of each bit pattern, and the pattern of each rank.

    Several types have one byte, with different patterns of NaNs and zeros.
    """
    patterns = np.arange(1 << jnp.finfo(dtype).bits, dtype=np.uint8)
    values = patterns.view(dtype).astype(np.float64)
    is_nan = np.isnan(values)
    last = is_nan if reduction == "max" else ~is_nan
    order = np.lexsort((patterns, ~np.signbit(values), np.where(is_nan, 0, values), last))
    return np.argsort(order).astype(np.uint8), order.astype(np.uint8)
