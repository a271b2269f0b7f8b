"""The buffers of an array under another shape and sharding, without a copy or a launch."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding

from redistrib.backends.jax import private
from redistrib.backends.jax.sharding import alone_on
from redistrib.cache import Cache

# The abstract value of an array of the same buffers, and for each of them its position in the original array; by shape,
# dtype, sharding and weak type of that array, then shape, sharding and weak type of the result.
_RESULTS: Cache[tuple[Any, tuple[int, ...]]] = Cache(4096)
# By shape, dtype, sharding and weak type of the array, then shape and sharding of the argument.
_EQUIVALENT: Cache[bool] = Cache(4096)


def with_sharding(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool) -> jax.Array:
    """The same buffers as an array of another global shape and sharding over the same devices."""
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
        return _build(array, shape, sharding)
    key = (array.aval, array.sharding, shape, sharding, weak)
    aval, order = _RESULTS.get(key, lambda: _result(array, shape, sharding, weak))
    fast = private.array_of_buffers(array, aval, sharding, order)
    return _build(array, shape, sharding, weak) if fast is None else fast


def argument(array: jax.Array, shape: tuple[int, ...], sharding: Sharding) -> jax.Array:
    """The array as an argument of a compiled program for this shape and sharding; unchanged where possible."""
    equivalent = _EQUIVALENT.get(
        (array.aval, array.sharding, shape, sharding), lambda: _is_equivalent(array, shape, sharding)
    )
    return array if equivalent else with_sharding(array, shape, sharding, weak=False)


def _is_equivalent(array: jax.Array, shape: tuple[int, ...], sharding: Sharding) -> bool:
    """Whether an array has this shape and sharding, except for the names of mesh axes."""
    if array.shape != shape or array.aval.weak_type or jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
        return False
    return bool(array.sharding.is_equivalent_to(sharding, array.ndim))


def _result(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool) -> tuple[Any, tuple[int, ...]]:
    """The array of the same buffers, built and checked by JAX."""
    built: Any = _build(array, shape, sharding)
    place = {shard.device: k for k, shard in enumerate(array.addressable_shards)}
    aval = built.aval.update(weak_type=True) if weak else built.aval
    return aval, tuple(place[shard.device] for shard in built.addressable_shards)


def _build(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool = False) -> jax.Array:
    tiles = {shard.device: shard.data for shard in array.addressable_shards}
    # JAX orders the tiles of all arrays but keys.
    order = [device for device in devices_of(sharding, shape) if device in tiles]
    built = jax.make_array_from_single_device_arrays(
        shape, sharding, [tiles[device] for device in order], dtype=array.dtype
    )
    if weak:  # a copy, where JAX builds no weakly typed array from buffers
        with alone_on(Mesh(np.array(order), ("devices",))):
            built = jax.jit(private.weakly_typed, out_shardings=sharding)(built)
    return built


def devices_of(sharding: Sharding, shape: tuple[int, ...]) -> list[Any]:
    """The devices of a sharding, in its order; JAX has no index map of partial sums."""
    if isinstance(sharding, NamedSharding):
        return list(sharding.mesh.devices.flat)
    return list(sharding.devices_indices_map(shape))
