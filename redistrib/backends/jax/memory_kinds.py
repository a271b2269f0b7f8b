"""Kinds of memory of shardings and of traced arrays."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AbstractMesh, Sharding, SingleDeviceSharding

HOST = "pinned_host"  # the one kind besides the default that arrays under `jit` know


def kind_of(sharding: Sharding) -> str:
    """The kind of memory of a sharding; the default kind of its devices if it names none."""
    return sharding.memory_kind or _default_kind(sharding)


def other_kind(sharding: Sharding | None) -> str | None:
    """The kind of memory of a sharding if it is not the default kind of its devices, else None."""
    kind = None if sharding is None else sharding.memory_kind
    return None if sharding is None or kind is None or kind == _default_kind(sharding) else kind


def in_default(sharding: Sharding) -> Sharding:
    """The same sharding in the default memory of its devices; itself if it is there."""
    return sharding if other_kind(sharding) is None else sharding.with_memory_kind(_default_kind(sharding))


def of_device(device: Any, sharding: Sharding) -> SingleDeviceSharding:
    """Where a tile of a sharding on a device lies."""
    return SingleDeviceSharding(device, memory_kind=sharding.memory_kind)


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
    weak = bool(value.weak_type)
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=in_default(sharding), weak_type=weak)


def _default_kind(sharding: Sharding) -> str:
    if isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        return "device"
    device: Any = next(iter(sharding.device_set))
    return str(device.default_memory().kind)
