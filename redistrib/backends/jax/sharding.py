"""Conversion between JAX shardings and types, and constraints on traced arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax.contexts import entered
from redistrib.errors import ForeignMeshError, SpecError
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import spec_entries, to_partition_entries, to_unreduced
from redistrib.lang.types import DimType, DistType

JaxMesh: TypeAlias = "jax.sharding.Mesh | jax.sharding.AbstractMesh"


def partition_spec(dist_type: DistType) -> PartitionSpec:
    """The partition spec of a type; one entry for each dimension.

    >>> tuple(partition_spec(DistType.parse("[2{x,y}48, 5]")))
    (('y', 'x'), None)
    """
    unreduced = to_unreduced(dist_type)
    return PartitionSpec(*to_partition_entries(dist_type), **({"unreduced": unreduced} if unreduced else {}))


def stacked_type(dist_type: DistType, mesh: Mesh) -> DistType:
    """The type of the array of all partial sums, `[summands, *shape]`; the type itself without partial sums.

    >>> print(stacked_type(DistType.parse("[2{x}8] sum{y,z}"), Mesh.of("x=4,y=2,z=3")))
    [1{y,z}6, 2{x}8]
    """
    if not dist_type.partial:
        return dist_type
    summands = math.prod(mesh.axis(name).size for name in dist_type.partial)
    return DistType((DimType(1, dist_type.partial, summands), *dist_type.dims))


def named_sharding(dist_type: DistType, mesh: Mesh, jax_mesh: JaxMesh) -> NamedSharding:
    """The sharding of a type over `mesh`, on a JAX mesh of the same axes.

    Raises:
        ForeignMeshError: if the JAX mesh has other axes than `mesh`, or in another order, or XLA cannot read a name.
        MeshError: if it is no mesh.
        TypeFormError: if the type is not well-formed over the mesh.
        SpecError: if JAX has no such sharding: of maxima and minima, and of partial sums along Auto axes.
    """
    foreign = Mesh.of(jax_mesh)
    if (foreign.names, foreign.shape) != (mesh.names, mesh.shape):
        sizes = {"size": mesh.size, "given_size": foreign.size}
        raise ForeignMeshError("foreign mesh", mesh=str(mesh), given=str(foreign), **sizes)
    check_names(jax_mesh)
    dist_type.check(mesh)
    spec = partition_spec(dist_type)
    kinds = dict(zip(jax_mesh.axis_names, jax_mesh.axis_types, strict=True))
    unable = [name for name in dist_type.partial if kinds[name] != AxisType.Explicit]
    if unable:
        raise SpecError("unreduced axes", dist_type=str(dist_type), axes=tuple(unable))
    return NamedSharding(jax_mesh, spec)


def over_first_devices(mesh: Mesh) -> JaxMesh:
    """A mesh over the first devices, or an abstract one where JAX has too few; its axes are Auto."""
    kinds = (AxisType.Auto,) * len(mesh.names)
    devices = np.array(jax.devices()[: mesh.size])
    if len(devices) < mesh.size:
        return jax.sharding.AbstractMesh(mesh.shape, mesh.names, axis_types=kinds)
    return jax.sharding.Mesh(devices.reshape(mesh.shape), mesh.names, axis_types=kinds)


def text_of(sharding: Sharding) -> str:
    """A sharding as text, with its devices in their order, equal in processes that have the same one."""
    mesh: Any = getattr(sharding, "mesh", None)
    ordered = isinstance(mesh, jax.sharding.Mesh)
    devices: Any = mesh.devices.flat if ordered else sorted(sharding.device_set, key=lambda device: device.id)
    return f"{sharding} on {[device.id for device in devices]}"


def check_names(mesh: Any) -> None:
    """Refuse a JAX mesh, concrete or abstract, for which XLA cannot compile: its partitioner reads axes by name.

    Raises:
        ForeignMeshError: if the name of an axis is not ASCII, or has a backslash.
    """
    for name in mesh.axis_names:
        if not name.isascii() or "\\" in name:
            raise ForeignMeshError("axis name", name=name)


def constrained(array: jax.Array, mesh: Any, spec: PartitionSpec) -> jax.Array:
    """A traced array under a partition spec over a mesh; XLA moves it there if necessary.

    Explicit axes are of the array's type, and Auto axes are not; a mesh may have both.
    """
    kinds = set(mesh.axis_types)
    with entered(mesh):
        if AxisType.Explicit in kinds:
            explicit = spec if len(kinds) == 1 else _along(spec, mesh, AxisType.Explicit)
            array = jax.sharding.reshard(array, NamedSharding(mesh, explicit))
        if kinds != {AxisType.Explicit}:
            auto = spec if len(kinds) == 1 else _along(spec, mesh, AxisType.Auto)
            array = lax.with_sharding_constraint(array, NamedSharding(mesh, auto))
    return array


def _along(spec: PartitionSpec, mesh: Any, kind: AxisType) -> PartitionSpec:
    """A partition spec without the axes of other kinds."""
    names = {name for name, of in zip(mesh.axis_names, mesh.axis_types, strict=True) if of == kind}
    entries = [(entry,) if isinstance(entry, str) else tuple(entry or ()) for entry in spec_entries(spec)]
    marks = {mark: frozenset(getattr(spec, mark, None) or ()) & names for mark in ("unreduced", "reduced")}
    kept = [tuple(name for name in entry if name in names) or None for entry in entries]
    return PartitionSpec(*kept, **{mark: axes for mark, axes in marks.items() if axes})


def with_axes(mesh: Any, kind: AxisType) -> Any:
    """The mesh with all axes of one kind."""
    kinds = (kind,) * len(mesh.axis_names)
    if isinstance(mesh, jax.sharding.Mesh):
        return jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=kinds)
    return mesh.update_axis_types(dict(zip(mesh.axis_names, kinds, strict=True)))


@contextmanager
def alone_on(mesh: jax.sharding.Mesh) -> Iterator[None]:
    """A context with this mesh alone, even if the caller has set another."""
    try:
        context: Any = jax.set_mesh(mesh)
    except ValueError:  # while something is traced only the abstract mesh can be set
        context = entered(mesh)
    with context:
        yield
