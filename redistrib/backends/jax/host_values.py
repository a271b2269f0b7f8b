"""Values that every process has, on devices of several processes."""

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
