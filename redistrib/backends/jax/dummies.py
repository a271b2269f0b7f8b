"""Arrays on some devices of a program: the other devices get tiles of zeros, and their results are dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from redistrib.backends.jax.rows import line_of
from redistrib.backends.jax.sharding import alone_on
from redistrib.backends.jax.with_sharding import devices_of, with_sharding
from redistrib.cache import Cache

# Jitted functions without arguments, by (shape, dtype, devices): each compiles once.
_MAKERS: Cache[Callable[[], jax.Array]] = Cache(1024)


def over_all(array: jax.Array, shape: tuple[int, ...], sharding: NamedSharding) -> jax.Array:
    """The tiles of an array as an array of another shape, over more devices.

    Buffers are not copied. This process allocates a tile of zeros on each of its devices without a tile.
    """
    tile = sharding.shard_shape(shape)
    shards = {shard.device: shard.data for shard in array.addressable_shards}
    local = [device for device in sharding.mesh.devices.flat if device.process_index == jax.process_index()]
    without = [device for device in local if device not in shards]
    if without:
        shards |= {shard.device: shard.data for shard in zeros(array, tile, without).addressable_shards}
    tiles = [shards[device] if shards[device].shape == tile else shards[device].reshape(tile) for device in local]
    return jax.make_array_from_single_device_arrays(shape, sharding, tiles, dtype=array.dtype)


def on_some(array: jax.Array, shape: tuple[int, ...], sharding: Sharding) -> jax.Array:
    """The tiles of an array as an array of another shape, on fewer devices; tiles are reshaped."""
    tile, shards = sharding.shard_shape(shape), {shard.device: shard.data for shard in array.addressable_shards}
    tiles = [shards[device].reshape(tile) for device in sharding.devices_indices_map(shape) if device in shards]
    return jax.make_array_from_single_device_arrays(shape, sharding, tiles, dtype=array.dtype)


def without_shards(shape: tuple[int, ...], dtype: Any, sharding: Sharding) -> jax.Array:
    """An array in a process that has no shard of it."""
    return jax.make_array_from_single_device_arrays(shape, sharding, [], dtype=dtype)


def zeros_like(array: jax.Array, target: Sharding, shape: tuple[int, ...] | None = None) -> jax.Array:
    """An array without elements, on the target, and of another shape if one is given.

    XLA replicates arrays without elements under any sharding. So a tile is replicated, and its buffers get the
    sharding.
    """
    whole = array.shape if shape is None else shape
    if not target.addressable_devices:
        return without_shards(whole, array.dtype, target)
    result = zeros(array, target.shard_shape(whole), list(devices_of(target, whole)))
    return with_sharding(result, whole, target, weak=bool(array.aval.weak_type))


def zeros(array: jax.Array, shape: tuple[int, ...], devices: list[Any]) -> jax.Array:
    """Zeros of an array's dtype, keys included, replicated on these devices."""
    mesh = line_of(devices)
    make = _MAKERS.get((shape, array.dtype, tuple(devices)), lambda: _maker(array, shape, mesh))
    with alone_on(mesh):
        result: jax.Array = make()
    return result


def _maker(array: jax.Array, shape: tuple[int, ...], mesh: Mesh) -> Callable[[], jax.Array]:
    dtype = array.dtype
    where = SingleDeviceSharding(mesh.devices[0]) if mesh.size == 1 else NamedSharding(mesh, PartitionSpec())
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        impl, data = jax.random.key_impl(array), jax.eval_shape(jax.random.key_data, array)
        words = (*shape, *data.shape[array.ndim :])
        return jax.jit(lambda: jax.random.wrap_key_data(jnp.zeros(words, data.dtype), impl=impl), out_shardings=where)
    return jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=where)
