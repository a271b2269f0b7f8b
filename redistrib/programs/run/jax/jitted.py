"""A program on one place as a jitted function of arrays on its devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding

from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.rows import over_program_tiles
from redistrib.backends.jax.sharding import partition_spec, stacked_type
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.value import Place, Value
from redistrib.programs.run.jax.program import Compiled, run_local


def mesh_of(place: Place, devices: Sequence[Any]) -> jax.sharding.Mesh:
    """The JAX mesh of a place; a place without axes gets one of size 1."""
    members = np.array([devices[number] for number in place.devices])
    shape, names = (place.mesh.shape, place.mesh.names) if place.mesh.names else ((1,), ("one",))
    return jax.sharding.Mesh(members.reshape(shape), names, axis_types=(AxisType.Auto,) * len(names))


def sharding_of(value: Value, mesh: jax.sharding.Mesh) -> NamedSharding:
    """The sharding of a value on the mesh of its place; partial sums are stacked along a first dimension."""
    return NamedSharding(mesh, partition_spec(stacked_type(value.type, value.place.mesh)))


def array_of(value: Value, mesh: jax.sharding.Mesh) -> jax.ShapeDtypeStruct:
    """Shape, element type and sharding of a value as an array; see `sharding_of`."""
    shape = stacked_type(value.type, value.place.mesh).global_shape
    return jax.ShapeDtypeStruct(shape, value.dtype, sharding=sharding_of(value, mesh))


def jitted(
    program: ProgramData, mesh: jax.sharding.Mesh, compute: Compiled | None = None
) -> Callable[..., list[jax.Array]]:
    """A program on one place as a jitted function of its inputs, one `shard_map` over the mesh of the place.

    Args:
        program: the operations.
        mesh: of the place, see `mesh_of`.
        compute: see `redistrib.programs.run.jax.program.mapped`.
    """
    flat = inlined(program)
    outputs = [flat.values[name] for name in flat.outputs]
    platform = Platform.of(mesh)

    def local(*tiles: jax.Array) -> list[jax.Array]:
        whole = [tile[0] if value.type.partial else tile for value, tile in zip(flat.inputs, tiles, strict=True)]
        results = run_local(flat, whole, platform, compute=compute)
        return [tile[None] if value.type.partial else tile for value, tile in zip(outputs, results, strict=True)]

    specs, ends = ([sharding_of(value, mesh).spec for value in side] for side in (flat.inputs, outputs))
    mapped = over_program_tiles(local, mesh, specs, ends)

    def call(*arrays: jax.Array) -> list[jax.Array]:
        results: list[jax.Array] = mapped(*arrays)
        return results

    call.__name__ = program.name
    return jax.jit(call)
