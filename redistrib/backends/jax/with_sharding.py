"""The buffers of an array under another shape and sharding, without a copy or a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding

from redistrib.backends.jax import private
from redistrib.backends.jax.sharding import alone_on
from redistrib.cache import Cache


@dataclass(frozen=True)
class _Result:
    """What comes of an array.

    Attributes:
        aval: its abstract value.
        order: for each of its buffers, the place among those of the array.
    """

    aval: Any
    order: tuple[int, ...]


# By shape, dtype, sharding and weak type of the array, then shape, sharding and weak type of the result.
_RESULTS: Cache[_Result] = Cache(4096)
# By shape, dtype, sharding and weak type of the array, then shape and sharding asked for.
_ALIKE: Cache[bool] = Cache(4096)


def with_sharding(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool) -> jax.Array:
    """The same buffers as an array of another global shape and sharding over the same devices."""
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
        return _made(array, shape, sharding)
    key = (array.aval, array.sharding, shape, sharding, weak)
    result = _RESULTS.get(key, lambda: _result(array, shape, sharding, weak))
    quick = private.array_of_buffers(array, result.aval, sharding, result.order)
    return _made(array, shape, sharding, weak) if quick is None else quick


def argument(array: jax.Array, shape: tuple[int, ...], sharding: Sharding) -> jax.Array:
    """The same buffers as a compiled program takes an array of this shape and sharding; as they are where it can."""
    alike = _ALIKE.get((array.aval, array.sharding, shape, sharding), lambda: _is_alike(array, shape, sharding))
    return array if alike else with_sharding(array, shape, sharding, weak=False)


def _is_alike(array: jax.Array, shape: tuple[int, ...], sharding: Sharding) -> bool:
    """Whether an array differs from one of a shape and sharding in the names of mesh axes alone."""
    if array.shape != shape or array.aval.weak_type or jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
        return False
    return bool(array.sharding.is_equivalent_to(sharding, array.ndim))


def _result(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool) -> _Result:
    """What comes of an array, found by having JAX make it, and check it."""
    made: Any = _made(array, shape, sharding)
    place = {shard.device: k for k, shard in enumerate(array.addressable_shards)}
    aval = made.aval.update(weak_type=True) if weak else made.aval
    return _Result(aval, tuple(place[shard.device] for shard in made.addressable_shards))


def _made(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool = False) -> jax.Array:
    tiles = {shard.device: shard.data for shard in array.addressable_shards}
    # Of most dtypes JAX puts the tiles in order; not of keys.
    order = [device for device in devices_of(sharding, shape) if device in tiles]
    made = jax.make_array_from_single_device_arrays(
        shape, sharding, [tiles[device] for device in order], dtype=array.dtype
    )
    if weak:  # a copy, where JAX makes no such array of given buffers
        with alone_on(Mesh(np.array(order), ("devices",))):
            made = jax.jit(private.weakly_typed, out_shardings=sharding)(made)
    return made


def devices_of(sharding: Sharding, shape: tuple[int, ...]) -> list[Any]:
    """The devices of a sharding, in its order; JAX has no boxes for them where tiles are summands."""
    if isinstance(sharding, NamedSharding):
        return list(sharding.mesh.devices.flat)
    return list(sharding.devices_indices_map(shape))


def forget() -> None:
    """Empty the cache of abstract values and orders."""
    _RESULTS.clear()
    _ALIKE.clear()
