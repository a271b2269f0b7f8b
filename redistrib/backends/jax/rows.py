"""Tiles as rows: an array of one tile for each device, cut along its first dimension over a line of devices.

The shards of any array become such rows without a copy, so a program of tiles runs on them whatever the array's mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax.contexts import entered

AXIS = "devices"


def line_of(devices: Iterable[Any]) -> jax.sharding.Mesh:
    """The mesh of devices along one axis named `AXIS`."""
    return jax.sharding.Mesh(np.array(list(devices)), (AXIS,), axis_types=(AxisType.Auto,))


def by_process(devices: Iterable[Any]) -> list[Any]:
    """The devices in order, those of a process side by side."""
    return sorted(devices, key=lambda device: (device.process_index, device.id))


def rows_shape(devices: int, tile: Sequence[int]) -> tuple[int, ...]:
    """The shape of the array of rows of so many devices; () for scalars.

    >>> rows_shape(4, (2, 3)), rows_shape(4, ())
    ((8, 3), ())
    """
    return (devices * tile[0], *tile[1:]) if tile else ()


def rows_spec(rank: int) -> PartitionSpec:
    """The partition spec of rows; rows of scalars are replicas that may differ."""
    return PartitionSpec((AXIS,)) if rank else PartitionSpec()


def over_tiles(run: Callable[..., Any], mesh: Any, ins: Any, outs: Any) -> Callable[..., Any]:
    """A function of one device's tiles as a function of global arrays, by `jax.shard_map` over a mesh.

    JAX does not check which results vary between devices, because it cannot know that a plan makes tiles equal.

    Args:
        run: the function of tiles.
        mesh: concrete or abstract; it need not be the one that `jax.set_mesh` has set.
        ins, outs: partition specs of arguments and results.
    """
    mapped: Callable[..., Any] = jax.shard_map(run, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)

    def call(*arrays: jax.Array) -> Any:
        with entered(mesh):
            return mapped(*arrays)

    return call


def over_program_tiles(
    run: Callable[..., Any], mesh: Any, ins: Sequence[PartitionSpec], outs: Any
) -> Callable[..., Any]:
    """As `over_tiles`, for arguments that are arrays, one spec for each; they may all lack elements.

    XLA does not compile a function of two or more arguments that all lack elements (jaxlib 0.10). So these are made
    inside then.
    """
    mapped = over_tiles(run, mesh, tuple(ins), outs)

    def call(*arrays: jax.Array) -> Any:
        has_keys = any(jnp.issubdtype(array.dtype, jax.dtypes.extended) for array in arrays)
        if len(arrays) < 2 or has_keys or any(array.size for array in arrays):
            return mapped(*arrays)
        tiles = [NamedSharding(mesh, spec).shard_shape(array.shape) for array, spec in zip(arrays, ins, strict=True)]

        def of_nothing() -> Any:
            return run(*(jnp.zeros(tile, array.dtype) for tile, array in zip(tiles, arrays, strict=True)))

        return over_tiles(of_nothing, mesh, (), outs)()

    return call
