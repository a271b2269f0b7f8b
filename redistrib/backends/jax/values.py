"""Programs on values of any dtype, exact to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

Program: TypeAlias = Callable[[jax.Array], jax.Array]


def as_integer_bits(program: Program) -> Program:
    """The program on values of any dtype, exact to the bit.

    Values that compilers do not support or change travel as integers: keys, integers below 4 bits, floats below 32 bits
    (see `bits_of`).
    """

    def run(tile: jax.Array) -> jax.Array:
        dtype = tile.dtype
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            data = program(jax.random.key_data(tile))
            keys: jax.Array = jax.random.wrap_key_data(data, impl=jax.random.key_impl(tile))
            return keys
        bits = bits_of(dtype)
        if bits is not None:
            return as_dtype(program(as_dtype(tile, bits)), dtype)
        if jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).bits < 4:  # XLA:CPU cannot gather int2
            wide = jnp.int8 if jnp.issubdtype(dtype, jnp.signedinteger) else jnp.uint8
            return program(tile.astype(wide)).astype(dtype)
        return program(tile)

    return run


def bits_of(dtype: Any) -> Any:
    """The integer dtype in which floats below 32 bits travel; None for other dtypes.

    XLA:CPU widens such floats to copy or gather them, and a NaN loses its payload.
    """
    if jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32:
        return jnp.dtype(f"uint{jnp.finfo(dtype).bits}")
    return None


def as_dtype(tile: jax.Array, dtype: Any) -> jax.Array:
    """The same bits in another dtype, unless it is None."""
    return tile if dtype is None else lax.bitcast_convert_type(tile, dtype)


def is_packed(dtype: Any) -> bool:
    """Whether elements are smaller than a byte."""
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).bits < 8
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 8
