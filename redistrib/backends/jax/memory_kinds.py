"""Kinds of memory: plans move arrays within the default memory of devices, with a copy from or to any other kind."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
from jax.sharding import AbstractMesh, AxisType, Sharding, SingleDeviceSharding

from redistrib.backends.jax import private
from redistrib.backends.jax.dummies import without_shards
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.errors import TracedError

HOST = "pinned_host"  # the one kind besides the default that arrays under `jit` know
AnySharding = TypeVar("AnySharding", bound=Sharding)


def kind_of(sharding: Sharding) -> str:
    """The kind of memory of a sharding; the default kind of its devices if it names none."""
    return sharding.memory_kind or _default_kind(sharding)


def other_kind(sharding: Sharding | None) -> str | None:
    """The kind of memory of a sharding if it is not the default kind of its devices, else None."""
    if sharding is None or sharding.memory_kind in (None, _default_kind(sharding)):
        return None
    return sharding.memory_kind


def in_default(sharding: AnySharding) -> AnySharding:
    """The same sharding in the default memory of its devices; itself if it is there."""
    return sharding if other_kind(sharding) is None else sharding.with_memory_kind(_default_kind(sharding))


def of_device(device: Any, sharding: Sharding) -> SingleDeviceSharding:
    """Where a tile of a sharding on a device lies."""
    return SingleDeviceSharding(device, memory_kind=sharding.memory_kind)


def _default_kind(sharding: Sharding) -> str:
    if isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        return "device"
    device: Any = next(iter(sharding.device_set))
    return str(device.default_memory().kind)


# ------------------------------------------------------------------------------- before and after a move


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


def is_on_host(array: jax.Array) -> bool:
    """Whether the type of a traced array says that it lies in pinned memory of the host."""
    return of_host(jax.typeof(array))


def of_host(aval: Any) -> bool:
    """Whether an abstract value is one of arrays in pinned memory of the host."""
    return bool(getattr(aval, "memory_space", None) == jax.memory.Space.Host)


def form_in_default(value: Any) -> Any:
    """A shape in the place of an array, or of a shape, in other memory than the default; any other value itself."""
    sharding = getattr(value, "sharding", None)
    if isinstance(value, jax.core.Tracer) or not isinstance(sharding, Sharding) or other_kind(sharding) is None:
        return value
    return jax.ShapeDtypeStruct(
        value.shape, value.dtype, sharding=in_default(sharding), weak_type=bool(jax.typeof(value).weak_type)
    )


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
    if private.jit_knows_memory_of_cpus() or _platform(target) != "cpu":
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
    put: jax.Array = jax.device_put(array, space, src=jax.typeof(array).memory_space)
    return put


def _put(array: jax.Array, source: Sharding, target: Sharding) -> jax.Array:
    """An array in other memory of the same devices; each process copies its own tiles."""
    if isinstance(array, jax.core.Tracer) or array.is_fully_addressable:
        put: jax.Array = jax.device_put(array, target, src=source)
        return put
    shards = array.addressable_shards
    if not shards:
        return without_shards(array.shape, array.dtype, target)
    tiles = jax.device_put([shard.data for shard in shards], [of_device(shard.device, target) for shard in shards])
    built = jax.make_array_from_single_device_arrays(array.shape, target, tiles, dtype=array.dtype)
    return with_sharding(built, array.shape, target, weak=True) if array.aval.weak_type else built
