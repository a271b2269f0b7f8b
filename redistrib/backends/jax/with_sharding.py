"""The buffers of an array as those of another: no byte is copied, and no device runs anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Sharding

from redistrib.cache import Cache


@dataclass(frozen=True)
class _Way:
    """How to rewrap an array.

    Attributes:
        aval: the abstract value of the result.
        order: for each buffer of the result, its place among those of the array.
    """

    aval: Any
    order: tuple[int, ...]


# By shape, dtype, sharding and weak type of the array, then shape, sharding and weak type of the result.
_WAYS: Cache[_Way] = Cache(4096)
# By shape, dtype, sharding and weak type of the array, then shape and sharding asked for.
_ALIKE: Cache[bool] = Cache(4096)


def rewrapped(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool) -> jax.Array:
    """The same buffers as an array of another global shape and sharding over the same devices."""
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
        return _made(array, shape, sharding)
    source: Any = array
    key = (source.aval, source.sharding, shape, sharding, weak)
    way = _WAYS.get(key, lambda: _way(array, shape, sharding, weak))
    # No public function makes an array without checking, each time, that its shards fit, or lists its buffers quickly.
    held = source._arrays
    make: Any = type(array)
    result: jax.Array = make(way.aval, sharding, [held[k] for k in way.order], committed=True, _skip_checks=True)
    return result


def argument(array: jax.Array, shape: tuple[int, ...], sharding: Sharding) -> jax.Array:
    """The same buffers as a compiled program takes them for an array of a shape and sharding: at best as they are."""
    alike = _ALIKE.get((array.aval, array.sharding, shape, sharding), lambda: _is_alike(array, shape, sharding))
    return array if alike else rewrapped(array, shape, sharding, weak=False)


def _is_alike(array: jax.Array, shape: tuple[int, ...], sharding: Sharding) -> bool:
    """Whether an array differs from one of a shape and sharding in the names of mesh axes alone."""
    if array.shape != shape or array.aval.weak_type or jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
        return False
    return bool(array.sharding.is_equivalent_to(sharding, array.ndim))


def _way(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool) -> _Way:
    """The way, found by having JAX make the result, and check it."""
    made: Any = _made(array, shape, sharding)
    place = {shard.device: k for k, shard in enumerate(array.addressable_shards)}
    aval = made.aval.update(weak_type=True) if weak else made.aval
    return _Way(aval, tuple(place[shard.device] for shard in made.addressable_shards))


def _made(array: jax.Array, shape: tuple[int, ...], sharding: Sharding) -> jax.Array:
    tiles = {shard.device: shard.data for shard in array.addressable_shards}
    # Of most dtypes JAX puts the tiles in order; not of keys.
    order = [device for device in sharding.devices_indices_map(shape) if device in tiles]
    return jax.make_array_from_single_device_arrays(
        shape, sharding, [tiles[device] for device in order], dtype=array.dtype
    )


def forget() -> None:
    """Forget how arrays were rewrapped."""
    _WAYS.clear()
    _ALIKE.clear()
