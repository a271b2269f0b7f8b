"""The devices of a distributed function: its mesh as JAX has it and as ours, and their platform."""

from __future__ import annotations

from typing import Any

import jax

from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.sharding import JaxMesh, over_first_devices
from redistrib.cost.presets import preset_of
from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh


def meshes(mesh: Any) -> tuple[JaxMesh, Mesh]:
    """A mesh as JAX has it, over the first devices unless it says which, and as ours.

    Where JAX has too few devices, or the mesh names none, it is an abstract mesh: all can be planned on it.
    """
    axes = Mesh.of(mesh)
    if isinstance(mesh, jax.sharding.Mesh):
        return mesh, axes
    return over_first_devices(axes), Mesh(axes.axes)


def require_devices(name: str, mesh: JaxMesh) -> jax.sharding.Mesh:
    """The mesh, over devices.

    Raises:
        ProgramError: if it is abstract; says how many devices are missing.
    """
    if isinstance(mesh, jax.sharding.Mesh):
        return mesh
    axes, count = Mesh.of(mesh), len(jax.devices())
    missing = axes.size - count
    raise ProgramError(
        "", "", "Place", f"{name} on mesh {axes} needs {axes.size} devices to run, and JAX has {count}: {missing} "
        f"{'is' if missing == 1 else 'are'} missing; program, memory, cost and lower() need none",
    )  # fmt: skip


def platform_of(mesh: JaxMesh) -> str:
    """The platform of the devices, as presets are called; of an abstract mesh that of the default backend."""
    return preset_of(Platform.of(mesh).name)
