"""JAX shardings as types and back, and arrays known to be placed by them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, use_abstract_mesh

from redistrib.errors import ForeignMeshError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType, to_partition_entries, to_unreduced


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
        ForeignMeshError: if the JAX mesh has other axes than `mesh`, or in another order.
        MeshError: if it is no mesh.
        TypeFormError: if the type is not well-formed over the mesh.
    """
    given = Mesh.of(jax_mesh)
    if (given.names, given.shape) != (mesh.names, mesh.shape):
        sizes = {"size": mesh.size, "given_size": given.size}
        raise ForeignMeshError("foreign mesh", mesh=str(mesh), given=str(given), **sizes)
    dist_type.check(mesh)
    return NamedSharding(jax_mesh, partition_spec(dist_type))


def constrained(array: jax.Array, mesh: Any, spec: PartitionSpec) -> jax.Array:
    """A traced array, known to be placed by a spec over a mesh; XLA moves it there if it is not."""
    if AxisType.Explicit in mesh.axis_types:
        with use_abstract_mesh(abstract(mesh)):
            moved: jax.Array = jax.sharding.reshard(array, NamedSharding(mesh, spec))
    else:
        moved = lax.with_sharding_constraint(array, NamedSharding(mesh, spec))
    return moved


def abstract(mesh: Any) -> Any:
    """The mesh without its devices."""
    return mesh.abstract_mesh if isinstance(mesh, jax.sharding.Mesh) else mesh


@contextmanager
def alone_on(mesh: jax.sharding.Mesh) -> Iterator[None]:
    """A context in which no other mesh, such as one that the caller has set, is taken for ours."""
    try:
        context: Any = jax.set_mesh(mesh)
    except ValueError:  # while something is traced only the abstract mesh can be set
        context = use_abstract_mesh(mesh.abstract_mesh)
    with context:
        yield
