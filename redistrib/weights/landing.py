"""A tensor that several devices of one process hold lands on one of them, and the others copy it there.

Only where devices of a process share its memory (`Quirks.shares_memory`): elsewhere each device has links of its own.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding

from redistrib.backends.jax.memory_kinds import in_default
from redistrib.backends.jax.platforms import quirks_of
from redistrib.backends.jax.rows import by_process
from redistrib.theory.boxes import Box, boxes_of

_REPLICA = "replica"


def landing(sharding: Sharding) -> Sharding:
    """A sharding of the same tiles over one device of each process that holds a tile; else the sharding itself.

    It is in the default memory of its devices. It is over fewer devices only where devices share memory, and every
    process holds each of its tiles equally often, more than once.
    """
    sharding = in_default(sharding)
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return sharding
    mesh, spec, devices = sharding.mesh, sharding.spec, sharding.mesh.devices
    processes = len({device.process_index for device in devices.flat})
    if not quirks_of(devices.flat[0].platform, processes).shares_memory:
        return sharding
    used = {axis for entry in spec if entry is not None for axis in ((entry,) if isinstance(entry, str) else entry)}
    cutting = [k for k, axis in enumerate(mesh.axis_names) if axis in used]
    others = [k for k in range(devices.ndim) if k not in cutting]
    cut_shape = tuple(devices.shape[k] for k in cutting)
    by_tile = devices.transpose([*cutting, *others]).reshape(-1, int(np.prod([devices.shape[k] for k in others])))
    chosen = [_one_of_each_process(row) for row in by_tile]
    counts = {len(row) for row in chosen}
    if len(counts) > 1 or counts == {by_tile.shape[1]}:
        return sharding
    names = (*(mesh.axis_names[k] for k in cutting), _fresh(mesh))
    return NamedSharding(Mesh(np.array(chosen, object).reshape(*cut_shape, -1), names), spec)


def spread(array: jax.Array, sharding: Sharding) -> jax.Array:
    """An array under a sharding of the same tiles over more devices of the same processes, which copy them."""
    if array.sharding == sharding:
        return array
    shape = array.shape
    held = {Box.at(shard.index, shape): shard.data for shard in array.addressable_shards}
    data_of_device = {shard.device: shard.data for shard in array.addressable_shards}
    tiles = [
        data_of_device[device] if device in data_of_device else jax.device_put(held[box], device)
        for device, box in boxes_of(sharding, shape, here=True).items()
    ]
    return jax.make_array_from_single_device_arrays(shape, sharding, tiles, dtype=array.dtype)


def _one_of_each_process(devices: np.ndarray) -> list[Any]:
    """In the order of the line in which tensors are read, so that a gather leaves each part in its place."""
    first: dict[int, Any] = {}
    for device in by_process(devices):
        first.setdefault(device.process_index, device)
    return list(first.values())


def _fresh(mesh: Mesh) -> str:
    """A name that no axis of the mesh has."""
    name = _REPLICA
    while name in mesh.axis_names:
        name += "_"
    return name
