"""JAX shardings as types, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from redistrib.errors.backends import foreign_mesh_error, not_an_array_error
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType, from_named_sharding, to_partition_entries, to_unreduced


def partition_spec(dist_type: DistType) -> PartitionSpec:
    """The partition spec that means a type; one entry for each dimension.

    >>> tuple(partition_spec(DistType.parse("[2{x,y}48, 5]")))
    (('y', 'x'), None)
    """
    unreduced = to_unreduced(dist_type)
    entries = to_partition_entries(dist_type)
    return PartitionSpec(*entries, unreduced=unreduced) if unreduced else PartitionSpec(*entries)


def named_sharding(dist_type: DistType, mesh: Mesh, jax_mesh: jax.sharding.Mesh) -> NamedSharding:
    """The sharding that means `dist_type`, a type over `mesh`, on a JAX mesh of the same axes.

    Raises:
        ForeignMeshError: if the JAX mesh has other axes than `mesh`.
        TypeFormError: if the type is not well-formed over the mesh.
    """
    check_same_axes(mesh, jax_mesh)
    dist_type.check(mesh)
    return NamedSharding(jax_mesh, partition_spec(dist_type))


def check_same_axes(mesh: Mesh, jax_mesh: Any) -> None:
    """Check that a JAX mesh has the axes of `mesh`, in order.

    Raises:
        ForeignMeshError: if not.
        MeshError: if the value is no mesh.
    """
    given = Mesh.of(jax_mesh)
    if (given.names, given.shape) != (mesh.names, mesh.shape):
        raise foreign_mesh_error(str(mesh), mesh.size, str(given), given.size)


def type_and_mesh(sharding: Any, shape: Sequence[int]) -> tuple[DistType, Mesh]:
    """The type and the mesh of an array of global `shape` under a `NamedSharding`.

    Devices are numbered by their row-major position in the sharding's mesh.

    Raises:
        SpecError: another kind of sharding, or a spec that has no meaning as a type.
        UnknownAxisError, TypeFormError: a spec that does not fit the mesh.
    """
    return from_named_sharding(sharding, shape)


def type_of(array: Any) -> tuple[DistType, Mesh]:
    """The type and the mesh of a `jax.Array`, from its sharding.

    Raises:
        SourceArrayError: if the value is no `jax.Array`.
        SpecError: see `type_and_mesh`.
    """
    if not isinstance(array, jax.Array):
        raise not_an_array_error(type(array).__name__)
    return type_and_mesh(array.sharding, array.shape)
