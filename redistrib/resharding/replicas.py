"""A check that replicas are equal; `shard_map(check_vma=False)` may make arrays whose replicas differ."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.tree_util import tree_flatten_with_path

from redistrib.backends.jax.tree_paths import path_text
from redistrib.errors import ReplicaError
from redistrib.lang.specs import spec_entries
from redistrib.resharding.interrupts import SignalsPutOff
from redistrib.theory.boxes import boxes_of


def check_replicas(tree: Any) -> None:
    """See `redistrib.testing.check_replicas`."""
    with SignalsPutOff() as pause:
        for path, value in tree_flatten_with_path(tree)[0]:
            if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
                _check(path_text(path), value)
                pause()


def _check(path: str, array: jax.Array) -> None:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    tiles = {shard.device: shard.data for shard in array.addressable_shards}
    if len(tiles) < 2 or not array.size:
        return
    first: dict[Any, tuple[Any, Any]] = {}
    for device, tile in _holders(array):
        if device not in tiles:
            continue
        if tile not in first:
            first[tile] = (device, None)
            continue
        leader, expected = first[tile]
        if expected is None:
            expected = np.asarray(tiles[leader])
            first[tile] = (leader, expected)
        actual = np.asarray(tiles[device])
        if actual.tobytes() != expected.tobytes():
            differs = np.argwhere(_bits(actual) != _bits(expected))
            at = tuple(differs[0][: actual.ndim].tolist())
            raise ReplicaError(path, leader.id, device.id, at, expected[at], actual[at])


def _holders(array: jax.Array) -> list[tuple[Any, Any]]:
    """Every device with the key of its tile, or of its partial sum of a tile."""
    sharding: Any = array.sharding
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
        names = list(sharding.mesh.axis_names)
        spec = [(entry,) if isinstance(entry, str) else entry or () for entry in spec_entries(sharding.spec)]
        telling = [names.index(name) for name in [*sum(map(tuple, spec), ()), *sharding.spec.unreduced]]
        places = np.ndindex(*sharding.mesh.devices.shape)
        return [(sharding.mesh.devices[at], tuple(at[k] for k in telling)) for at in places]
    return list(boxes_of(sharding, array.shape).items())


def _bits(tile: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`[..., itemsize]` the bytes of every element."""
    return np.ascontiguousarray(tile).view(np.uint8).reshape(*tile.shape, -1)
