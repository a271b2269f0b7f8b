"""Jitted functions to diagnose, as a user writes them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def mesh(x: int, y: int) -> Mesh:
    return Mesh(np.array(jax.devices()[: x * y]).reshape(x, y), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def array(on: Mesh, shape: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(on, P(*spec)))


def hard() -> Any:
    """A swap of cuts by 2 and 3, which XLA gathers whole for, and a product that is added up."""
    on = mesh(2, 3)

    def swap(a: jax.Array, b: jax.Array) -> jax.Array:
        product = jax.lax.with_sharding_constraint(a @ b, NamedSharding(on, P("x", None)))
        cut = jax.lax.with_sharding_constraint(jnp.sin(product), NamedSharding(on, P("x", "y")))
        return jax.lax.with_sharding_constraint(cut * 2, NamedSharding(on, P("y", "x"))) * 3

    return jax.jit(swap), array(on, (12, 12), "x", "y"), array(on, (12, 12), "y", None)


def nothing() -> Any:
    return None
