"""Arguments of users as values of the library: types, meshes, element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redistrib.errors import GlobalShapeError, MeshDevicesError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.placements import are_placements, from_device_mesh, from_placements, is_device_mesh
from redistrib.lang.specs import from_named_sharding, from_partition_spec
from redistrib.lang.types import DistType
from redistrib.theory.topology import Topology, topology_of_devices


def in_order(
    function: str, args: tuple[Any, ...], keywords: Mapping[str, Any], names: Sequence[str]
) -> tuple[Any, ...]:
    """Arguments of a call by position, some of which are given by name.

    Args:
        function: its name, for errors.
        args, keywords: the arguments.
        names: of all arguments that the function takes, in order.

    Raises:
        ProgramError: for a name that the function has not, or that is given twice, and for one that is lacking.

    >>> in_order("f", (1,), {"z": 3, "y": 2}, ("x", "y", "z"))
    (1, 2, 3)
    """
    for name in keywords:
        if name not in names:
            why = f"it is no argument of the function, which takes {', '.join(names) or 'none'}"
            raise ProgramError(function, name, "Arguments", why)
        if name in names[: len(args)]:
            raise ProgramError(function, name, "Arguments", "it is given by position and by name; give it once")
    for name in names[len(args) :]:
        if keywords and name not in keywords:
            raise ProgramError(function, name, "Arguments", "it is not given; the function was made for this argument")
    return (*args, *(keywords[name] for name in names[len(args) :] if keywords))


def dtype_name(dtype: Any) -> str:
    """The name of an element type given as a name, a NumPy dtype, a scalar type or an element type of PyTorch."""
    if isinstance(dtype, str):
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype)


def is_sharding(value: Any) -> bool:
    """Whether a value is a JAX sharding over a mesh, to be told without importing JAX."""
    return hasattr(value, "spec") and hasattr(value, "mesh")


def is_spec(value: Any) -> bool:
    """Whether a value is a JAX partition spec, to be told without importing JAX."""
    return type(value).__name__ in ("PartitionSpec", "P")


def has_devices(mesh: Any) -> bool:
    """Whether a JAX mesh names devices, as an abstract one does not; to be told without importing JAX."""
    try:
        return mesh.devices is not None
    except (AttributeError, ValueError):
        return False


def typed(value: Any, mesh: Any, shape: Sequence[int] | None) -> tuple[DistType, Mesh]:
    """A type in any of its forms and its mesh; a sharding brings its own, and needs the shape of the array, as a
    partition spec does.

    Raises:
        GlobalShapeError: for a sharding or a spec without a shape, or a type of another shape.
    """
    if is_sharding(value) or is_spec(value):
        if shape is None:
            raise GlobalShapeError("missing shape", value=value)
        if is_sharding(value):
            return from_named_sharding(value, tuple(shape))
        own_mesh = as_mesh(mesh)
        return from_partition_spec(value, tuple(shape), own_mesh), own_mesh
    if are_placements(value):
        if shape is None:
            raise GlobalShapeError("missing shape", value=value)
        found_mesh = as_mesh(mesh)
        return from_placements(
            value if isinstance(value, list | tuple) else [value], tuple(shape), found_mesh
        ), found_mesh
    dist_type = DistType.of(value)
    if shape is not None and tuple(shape) != dist_type.global_shape:
        raise GlobalShapeError("other shape", value=str(dist_type), shape=tuple(shape))
    return dist_type, as_mesh(mesh)


def as_mesh(value: Any) -> Mesh:
    """A mesh in any of its forms; the devices of a DTensor's mesh are its ranks."""
    return from_device_mesh(value) if is_device_mesh(value) else Mesh.of(value)


def numbered_ranks(source: Mesh, target: Mesh) -> tuple[Mesh, Mesh]:
    """The meshes of two DTensor meshes with the ranks of both numbered from 0 in their order."""
    number = {rank: k for k, rank in enumerate(sorted({*source.devices, *target.devices}))}
    first, second = (Mesh(mesh.axes, tuple(number[rank] for rank in mesh.devices)) for mesh in (source, target))
    return first, second


def require_mesh_of(sharding: Any, mesh: Any, name: str) -> None:
    """Refuse a mesh beside a sharding that is over another.

    Raises:
        MeshDevicesError: if it has other axes.
    """
    if mesh is not None and Mesh.of(mesh).axes != Mesh.of(sharding.mesh).axes:
        sharding_mesh = str(Mesh.of(sharding.mesh))
        raise MeshDevicesError("other mesh", name=name, given=str(Mesh.of(mesh)), own=sharding_mesh)


def numbered(source: Any, target: Any, source_mesh: Mesh, target_mesh: Mesh) -> tuple[Mesh, Mesh, Topology | None]:
    """The meshes of two JAX meshes with their devices numbered, and where these stand: by their place in the source
    mesh, or where the target has others, by the order of their ids."""
    before, after = list(source.devices.flat), list(target.devices.flat)
    devices = before if set(before) == set(after) else sorted({*before, *after}, key=lambda device: int(device.id))
    number = {device: k for k, device in enumerate(devices)}
    meshes = ((source_mesh, before), (target_mesh, after))
    first, second = (Mesh(mesh.axes, tuple(number[device] for device in order)) for mesh, order in meshes)
    return first, second, topology_of_devices(devices)
