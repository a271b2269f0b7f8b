"""The devices of a distributed function: its mesh as JAX has it and as ours, and their platform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from redistrib.backends.jax.sharding import JaxMesh, over_first_devices
from redistrib.cost.presets import MachineLike, cost_model, preset_of
from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.time.constants import machine as machine_of
from redistrib.programs.time.machine import Machine


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


def machine_on(given: MachineLike | None, platform: str) -> Machine:
    """The machine for which time and memory are predicted: the one that is given, or the preset of a platform, with
    other links if only these are given.

    Raises:
        ChoiceError, ProfileError: see `cost_model`.
    """
    preset = machine_of(preset_of(platform))
    if given is None or cost_model(given).unit != "seconds":
        return preset
    named = machine_of(given)
    return named if named.rates is not None or named is given else replace(preset, links=named.links)
