"""Copies between kinds of memory, before and after plans, which move arrays within the default memory of devices."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Sharding

from redistrib.backends.jax import private
from redistrib.backends.jax.dummies import without_shards
from redistrib.backends.jax.memory_kinds import HOST, in_default, is_on_host, kind_of, of_device, other_kind
from redistrib.backends.jax.platforms import quirks_of
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.errors import TracedError


def loaded(array: jax.Array) -> jax.Array:
    """An array, traced or not, in the default memory of its devices; itself if it is there."""
    value = private.value_inside(array)
    if isinstance(value, jax.core.Tracer):
        return _put_traced(array, jax.memory.Space.Device) if is_on_host(array) else array
    return array if other_kind(value.sharding) is None else _put(array, value.sharding, in_default(value.sharding))


def stored(array: jax.Array, sharding: Sharding) -> jax.Array:
    """An array, traced or not, in the memory of a sharding under which it lies but for its kind of memory."""
    kind, value = other_kind(sharding), private.value_inside(array)
    if isinstance(value, jax.core.Tracer):
        return array if kind is None or is_on_host(array) else _put_traced(array, jax.memory.Space.Host)
    return array if kind is None or kind == kind_of(value.sharding) else _put(array, value.sharding, sharding)


def put(value: Any, sharding: Sharding) -> jax.Array:
    """As `jax.device_put`, which JAX 0.8 cannot do to other memory of the same devices in another order."""
    moves = isinstance(value, jax.Array) and kind_of(value.sharding) != kind_of(sharding)
    if moves and value.sharding.device_set == sharding.device_set:
        same_memory = sharding.with_memory_kind(kind_of(value.sharding))
        value = with_sharding(value, value.shape, same_memory, weak=bool(value.aval.weak_type))
        return _put(value, same_memory, sharding)
    result: jax.Array = jax.device_put(value, sharding)
    return result


def check_traced(array: jax.Array, target: Sharding) -> None:
    """Refuse a traced array whose source or target `jit` does not know by its kind of memory.

    Raises:
        TracedError: if it does not.
    """
    kind = other_kind(target)
    if not isinstance(private.value_inside(array), jax.core.Tracer):
        return
    if kind not in (None, HOST):
        raise TracedError("memory kind", kind=str(kind), host=HOST)
    if quirks_of(_platform(target)).knows_kinds_of_memory:
        return
    explicit = AxisType.Explicit in jax.typeof(array).sharding.mesh.axis_types
    if kind == HOST or (explicit and is_on_host(array)):
        raise TracedError("memory of CPUs", kind=HOST, version=jax.__version__)


def _platform(sharding: Sharding) -> str:
    mesh = getattr(sharding, "mesh", None)
    if isinstance(mesh, AbstractMesh):
        return jax.default_backend()
    device: Any = next(iter(sharding.device_set))
    return str(device.platform)


def _put_traced(array: jax.Array, space: Any) -> jax.Array:
    """A traced array in another memory, and its cotangent in the memory that the array has now."""
    result: jax.Array = jax.device_put(array, space, src=jax.typeof(array).memory_space)
    return result


def _put(array: jax.Array, source: Sharding, target: Sharding) -> jax.Array:
    """An array in other memory of the same devices; each process copies its own tiles."""
    if isinstance(array, jax.core.Tracer) or array.is_fully_addressable:
        result: jax.Array = jax.device_put(array, target, src=source)
        return result
    shards = array.addressable_shards
    if not shards:
        return without_shards(array.shape, array.dtype, target)
    tiles = jax.device_put([shard.data for shard in shards], [of_device(shard.device, target) for shard in shards])
    built = jax.make_array_from_single_device_arrays(array.shape, target, tiles, dtype=array.dtype)
    return with_sharding(built, array.shape, target, weak=True) if array.aval.weak_type else built
