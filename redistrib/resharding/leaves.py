"""Trees of arrays and trees of shardings, matched leaf by leaf as JAX's own functions match them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jax.tree_util import keystr, tree_flatten_with_path

from redistrib.backends.jax.sharding import alone_on
from redistrib.backends.jax.with_sharding import devices_of, with_sharding
from redistrib.cache import Cache
from redistrib.errors import LeafError, TreeMismatchError


@dataclass(frozen=True)
class Leaf:
    """One leaf of the tree.

    Attributes:
        path: where it stands, as JAX prints paths; empty for a tree that is one array.
        value: the leaf.
        target: the sharding asked for.
        source: the sharding that the caller says the leaf has; None where the leaf itself tells.
    """

    path: str
    value: Any
    target: Sharding
    source: Sharding | None = None


def matched(tree: Any, shardings: Any, sources: Any = None) -> tuple[list[Leaf], Any]:
    """The leaves of a tree with the shardings asked for, and its structure.

    Args:
        tree: any pytree.
        shardings: a tree of the same structure, a prefix of it, or one sharding for all. A leaf of it is a
            `jax.sharding.Sharding`, a device, or, where `jax.set_mesh` has said over which mesh, a partition spec.
        sources: the same, or None.

    Raises:
        TreeMismatchError: if the shardings are no prefix of the tree.
        LeafError: if a leaf of `shardings` is no sharding.
    """
    values, structure = jax.tree.flatten(tree)
    wanted = _spread(tree, structure, shardings)
    known = [None] * len(values) if sources is None else _spread(tree, structure, sources)
    result = []
    for name, value, target, source in zip(_paths(tree, structure), values, wanted, known, strict=True):
        given = None if source is None else _sharding(name, source)
        result.append(Leaf(name, value, _sharding(name, target), given))
    return result, structure


# The path of every leaf of trees, by their structure: they take longer to name than to move.
_PATHS: Cache[list[str]] = Cache(256)


def _paths(tree: Any, structure: Any) -> list[str]:
    return _PATHS.get(structure, lambda: [keystr(path) for path, _ in tree_flatten_with_path(tree)[0]])


def forget() -> None:
    """Forget the paths of leaves."""
    _PATHS.clear()


def _spread(tree: Any, structure: Any, shardings: Any) -> list[Any]:
    flat, same = jax.tree.flatten(shardings, is_leaf=_is_sharding)
    if same == structure:
        return list(flat)
    try:
        spread = jax.tree.broadcast(shardings, tree, is_leaf=_is_sharding)
    except (ValueError, TypeError) as error:
        raise TreeMismatchError(str(error).splitlines()[0].rstrip(".")) from None
    return list(structure.flatten_up_to(spread))


def _is_sharding(value: Any) -> bool:
    return isinstance(value, Sharding | PartitionSpec | jax.Device) or value is None


def _sharding(path: str, value: Any) -> Sharding:
    if isinstance(value, Sharding):
        return value
    if isinstance(value, jax.Device):
        return SingleDeviceSharding(value)
    if isinstance(value, PartitionSpec):
        mesh = _context_mesh()
        if mesh is None:
            raise LeafError(path, f"{value} names axes of no mesh; give a NamedSharding, or call under jax.set_mesh")
        try:
            return NamedSharding(mesh, value)
        except ValueError as error:  # axes that the mesh lacks, or unreduced ones where it has them Auto
            raise LeafError(path, str(error)) from None
    raise LeafError(path, f"{value!r} is no jax.sharding.Sharding; give a NamedSharding")


def _context_mesh() -> Any:
    abstract = jax.sharding.get_abstract_mesh()
    if abstract.empty:
        return None
    try:
        return jax.sharding.get_mesh()
    except ValueError:  # under jit only the abstract mesh is known
        return abstract


def zeros_like(array: jax.Array, target: Sharding) -> jax.Array:
    """An array without elements, made where it is wanted.

    XLA leaves arrays without elements replicated whatever it is told; so a tile is replicated, and then put under the
    sharding as it is.
    """
    tile, dtype = target.shard_shape(array.shape), array.dtype
    devices = devices_of(target, array.shape)
    mesh = jax.sharding.Mesh(np.array(devices), ("devices",))
    whole = NamedSharding(mesh, PartitionSpec())
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        impl, data = jax.random.key_impl(array), jax.eval_shape(jax.random.key_data, array)
        words = (*tile, *data.shape[array.ndim :])
        make = jax.jit(lambda: jax.random.wrap_key_data(jnp.zeros(words, data.dtype), impl=impl), out_shardings=whole)
    else:
        make = jax.jit(lambda: jnp.zeros(tile, dtype), out_shardings=whole)
    with alone_on(mesh):
        made = make()
    return with_sharding(made, array.shape, target, weak=bool(array.aval.weak_type))
