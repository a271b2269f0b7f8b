"""Values that every process has, and that go to devices of several processes or of others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from redistrib.backends.jax.dummies import without_shards
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.digests import digest_of_values
from redistrib.resharding.leaves import Leaf


def origin_of(leaf: Leaf) -> Sharding | None:
    """The sharding from which a leaf moves; None for a value of the host.

    An array of this process that is not committed to its devices counts as such a value where the target has devices of
    other processes, as it does for `jax.device_put`.
    """
    sharding: Sharding | None = getattr(leaf.value, "sharding", None)
    if sharding is None or leaf.target.is_fully_addressable:
        return sharding
    local = isinstance(leaf.value, jax.Array) and sharding.is_fully_addressable and not leaf.value.committed
    return None if local else sharding


def is_on_host(leaf: Leaf) -> bool:
    """Whether a leaf is a value that every process has, and goes to devices of several processes or of others."""
    return not leaf.target.is_fully_addressable and origin_of(leaf) is None


def owners_of(leaf: Leaf) -> set[int]:
    """The processes that own a device of a leaf's source or target; none if there is only one."""
    source: Any = origin_of(leaf)
    devices = leaf.target.device_set if source is None else source.device_set | leaf.target.device_set
    owners = {device.process_index for device in devices}
    return owners if len(owners) > 1 else set()


def digest_of_host_value(value: Any) -> str:
    """A digest of the elements of a value of the host."""
    return digest_of_values(np.asarray(jax.random.key_data(value) if _is_key(value) else value))


def from_host(leaf: Leaf) -> jax.Array:
    """A value of the host on the devices of the target that this process owns.

    `jax.device_put` compares the values of all processes by a collective, and knows no keys.
    """
    form, target = jax.typeof(leaf.value), leaf.target
    value = leaf.value if _is_key(leaf.value) else np.asarray(leaf.value)
    tiles = [
        jax.device_put(value[index], SingleDeviceSharding(device, memory_kind=target.memory_kind))
        for device, index in target.addressable_devices_indices_map(form.shape).items()
    ]
    if not tiles:
        return without_shards(form.shape, form.dtype, target)
    result = jax.make_array_from_single_device_arrays(form.shape, target, tiles, dtype=form.dtype)
    return with_sharding(result, form.shape, target, weak=True) if form.weak_type else result


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
