"""Trees of arrays and trees of shardings, matched leaf by leaf as JAX's own functions match them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.lax.lax import _convert_element_type  # no public function makes an array weakly typed
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from jax.tree_util import keystr, tree_flatten_with_path

from redistrib.errors import LeafError, TreeMismatchError


@dataclass(frozen=True)
class Leaf:
    """One leaf of the tree.

    Attributes:
        path: where it stands, as JAX prints paths; empty for a tree that is one array.
        value: the leaf.
        target: the sharding asked for.
    """

    path: str
    value: Any
    target: Sharding


def matched(tree: Any, shardings: Any) -> tuple[list[Leaf], Any]:
    """The leaves of a tree with the shardings asked for, and its structure.

    Args:
        tree: any pytree.
        shardings: a tree of the same structure, a prefix of it, or one sharding for all.

    Raises:
        TreeMismatchError: if the shardings are no prefix of the tree.
        LeafError: if a leaf of `shardings` is no sharding.
    """
    leaves, structure = tree_flatten_with_path(tree)
    try:
        spread = jax.tree.map(
            lambda sharding, part: [sharding] * len(jax.tree.leaves(part)), shardings, tree, is_leaf=_is_sharding
        )
    except ValueError as error:
        raise TreeMismatchError(str(error).splitlines()[0]) from None
    wanted = [s for group in jax.tree.leaves(spread, is_leaf=lambda x: isinstance(x, list)) for s in group]
    result = []
    for (path, value), sharding in zip(leaves, wanted, strict=True):
        name = keystr(path)
        if not isinstance(sharding, Sharding):
            raise LeafError(name, f"{sharding!r} is no jax.sharding.Sharding; give a NamedSharding")
        result.append(Leaf(name, value, sharding))
    return result, structure


def _is_sharding(value: Any) -> bool:
    return isinstance(value, Sharding | PartitionSpec) or value is None


def as_weak(array: jax.Array, target: NamedSharding) -> jax.Array:
    """The same values as an array of weak type, where they are."""
    weaken = jax.jit(lambda x: _convert_element_type(x, weak_type=True), out_shardings=target)
    result: jax.Array = weaken(array)
    return result


def zeros(shape: tuple[int, ...], dtype: Any, target: NamedSharding) -> jax.Array:
    """An array without elements, made where it is wanted."""
    result: jax.Array = jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=target)()
    return result
