"""Values of the host, and arrays that are bound to no device, on the devices that a call needs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from redistrib.backends.jax.dummies import without_shards
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.digests import digest_of_parts


def is_of_host(value: Any) -> bool:
    """Whether a value is on no device of another process, so that every process has one of its own."""
    return not isinstance(value, jax.core.Tracer) and (not isinstance(value, jax.Array) or value.is_fully_addressable)


def host_form(value: Any) -> Any:
    """Shape and element type, as JAX has it, of a value of the host that `jax.jit` takes for an array; else None."""
    if not isinstance(value, np.ndarray | np.generic | int | float | complex) or isinstance(value, np.ma.MaskedArray):
        return None
    try:
        return jax.typeof(value)
    except (TypeError, OverflowError):  # objects, texts, integers of too many bits
        return None


def is_free(value: Any) -> bool:
    """Whether `jax.jit` would move a value: one of the host, or an array that nobody has bound to its device."""
    return not isinstance(value, jax.core.Tracer) and not getattr(value, "committed", False)


def placed(value: Any, target: Sharding) -> jax.Array:
    """A value that is free, under a sharding."""
    with jax.ensure_compile_time_eval():  # of a value that a traced function captures
        if not target.is_fully_addressable:
            return from_host(value, target)
        result: jax.Array = jax.device_put(value, target)
        return result


def digest_of_host_value(value: Any) -> str:
    """A digest of the elements of a value of the host."""
    return digest_of_parts([np.asarray(jax.random.key_data(value) if _is_key(value) else value)])


def from_host(value: Any, target: Sharding) -> jax.Array:
    """A value of the host on the devices of a sharding that this process owns.

    `jax.device_put` compares the values of all processes by a collective, and knows no keys.
    """
    form = jax.typeof(value)
    whole = value if _is_key(value) else np.asarray(value)
    tiles = [
        jax.device_put(whole[index], SingleDeviceSharding(device, memory_kind=target.memory_kind))
        for device, index in target.addressable_devices_indices_map(form.shape).items()
    ]
    if not tiles:
        return without_shards(form.shape, form.dtype, target)
    result = jax.make_array_from_single_device_arrays(form.shape, target, tiles, dtype=form.dtype)
    return with_sharding(result, form.shape, target, weak=True) if form.weak_type else result


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
