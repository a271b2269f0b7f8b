"""Tiles side by side: an array of one tile for each device, cut along its first dimension over a line of devices.

The shards of any array are such rows without a copy, so a program of tiles runs on them whatever mesh the array is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, PartitionSpec

AXIS = "devices"


def line_of(devices: Iterable[Any]) -> jax.sharding.Mesh:
    """The mesh of devices in a row, along one axis named `AXIS`."""
    return jax.sharding.Mesh(np.array(list(devices)), (AXIS,), axis_types=(AxisType.Auto,))


def rows_shape(devices: int, tile: Sequence[int]) -> tuple[int, ...]:
    """The shape of an array that has a tile on each of so many devices; of scalars that of a scalar.

    >>> rows_shape(4, (2, 3)), rows_shape(4, ())
    ((8, 3), ())
    """
    return (devices * tile[0], *tile[1:]) if tile else ()


def rows_spec(rank: int, axes: tuple[str, ...] = (AXIS,)) -> PartitionSpec:
    """The partition spec of rows over all axes of a mesh. Scalars have no dimension to cut: theirs is that of replicas,
    which may differ."""
    return PartitionSpec(axes) if rank else PartitionSpec()


def over_tiles(run: Callable[..., Any], mesh: Any, ins: Any, outs: Any) -> Callable[..., Any]:
    """A function of one device's tiles as one of whole arrays, by `jax.shard_map` over a mesh.

    JAX is not asked to check what varies between devices: tiles that a plan makes equal it cannot know to be equal.

    Args:
        run: the function of tiles.
        mesh: concrete or abstract.
        ins, outs: partition specs of arguments and results.
    """
    mapped: Callable[..., Any] = jax.shard_map(run, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)
    return mapped
