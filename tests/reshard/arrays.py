"""Meshes, shardings and arrays that the tests of `reshard` share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .cases import jax_mesh

EIGHT = jax_mesh((("x", 8),), tuple(range(8)))
GRID = jax_mesh((("a", 2), ("b", 4)), tuple(range(8)))
TURNED = jax_mesh((("p", 2), ("q", 2), ("r", 2)), (3, 1, 4, 0, 5, 2, 7, 6))
ROWS = NamedSharding(EIGHT, P("x"))
COLUMNS = NamedSharding(GRID, P(None, "b"))
DELETED = (
    "the array has been donated or deleted; pass one that is alive (arrays made of its buffers go with an array: its "
    "shards, and what jax.device_put returned where nothing had to move)"
)


@jax.tree_util.register_dataclass
@dataclass
class Dense:
    """A layer that is a tree of its arrays and is called, as those of Equinox are."""

    weight: Any
    bias: Any

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.weight + self.bias


def matrix(shape: tuple[int, ...] = (16, 32), sharding: Any = ROWS, dtype: Any = np.float32) -> jax.Array:
    return jax.device_put(np.arange(np.prod(shape)).reshape(shape).astype(dtype), sharding)
