"""Errors of carrying plans out, on JAX and MPI."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RedistribError, RuleBroken, listed
from redistrib.errors.lang import SpecError
from redistrib.errors.plans import TilesError
from redistrib.errors.synthesis import ChoiceError, MeshDevicesError


class HloTextError(RedistribError):
    """Text that is not a compiled HLO module, or says something in a way not known here."""


class CommunicatorError(RedistribError):
    """A communicator that cannot run a plan: wrong size, wrong kind, or processes that do not ask for the same."""


class ArrayMismatchError(TilesError):
    """An array that is not the tile its rank should hold; raised on every rank with one message."""


class ForeignMeshError(RuleBroken):
    """A JAX mesh on which a plan cannot run: its axes are not those of the plan's mesh, or have names that XLA cannot
    read, or the plan has two meshes."""


class SourceArrayError(RuleBroken):
    """What a plan is given is no `jax.Array`, or not one of the plan's source type."""


class TracedError(RuleBroken):
    """What cannot be done to a traced array, inside `jit` or `shard_map`."""


def foreign_mesh_error(mesh: str, size: int, given: str, given_size: int) -> ForeignMeshError:
    """A JAX mesh whose axes are not those of the plan's mesh."""
    return ForeignMeshError(
        "foreign mesh",
        f"the plan is for mesh {mesh} with {size} devices, the JAX mesh is {given} with {given_size}; "
        f"pass a mesh of the same axes in the same order, or plan for this one",
        mesh=mesh,
        size=size,
        given=given,
        given_size=given_size,
    )


def axis_name_error(name: str) -> ForeignMeshError:
    """A mesh axis by whose name a compiler ends the process."""
    return ForeignMeshError(
        "axis name",
        f"XLA ends the process when it compiles for a mesh with an axis named {name!r}; name axes in ASCII "
        "without backslashes, or move arrays by redistrib.reshard outside jit, which compiles for a mesh of its own",
        name=name,
    )


def two_meshes_error(source: str, target: str) -> ForeignMeshError:
    """A plan between two meshes, where one function under one mesh is asked for."""
    return ForeignMeshError(
        "two meshes",
        f"the plan goes from mesh {source} to mesh {target}; a function under one JAX mesh needs source and target "
        f"types over the same mesh and device order, use redistrib.reshard to move between meshes",
        source=source,
        target=target,
    )


def some_devices_error(mesh: str, devices: int) -> ForeignMeshError:
    """A plan over some of its devices, where one function under one mesh is asked for."""
    return ForeignMeshError(
        "some devices",
        f"the plan has {devices} devices, of which mesh {mesh} leaves some out; a function under one JAX mesh is for "
        "all of its devices: number those of the mesh from 0, or use redistrib.reshard",
        mesh=mesh,
        devices=devices,
    )


def not_an_array_error(kind: str) -> SourceArrayError:
    """A value that is no `jax.Array`."""
    return SourceArrayError(
        "not an array",
        f"a plan runs on a jax.Array that lives on its mesh, got {kind}; "
        f"place the value first: jax.device_put(value, f.source_sharding)",
        kind=kind,
    )


def source_array_error(what: str, expected: object, given: object, remedy: str) -> SourceArrayError:
    """An array that is not of the plan's source type."""
    return SourceArrayError(
        "source array",
        f"the plan starts from an array of {what} {expected}, got {given}; {remedy}",
        what=what,
        expected=expected,
        given=given,
    )


def schedule_error(schedule: object) -> ChoiceError:
    """The name of a schedule that does not exist."""
    return ChoiceError(
        "schedule", f"there is no schedule {schedule!r}; choose 'overlap' or 'sequential'", schedule=schedule
    )


def manual_mesh_error(axes: Sequence[str]) -> TracedError:
    """A plan run inside a `shard_map` over the axes it needs."""
    return TracedError(
        "manual mesh",
        f"inside a shard_map over {listed(axes)} an array is already a tile; call the plan's function outside, "
        f"on the global array",
        axes=tuple(axes),
    )


def unreduced_axes_error(dist_type: str, axes: Sequence[str]) -> SpecError:
    """A partial type on axes along which JAX knows no summands."""
    return SpecError(
        "unreduced axes",
        f"{dist_type} has summands along {listed(axes)}, and JAX has them along Explicit axes alone; make the mesh by "
        "jax.make_mesh(..., axis_types=(AxisType.Explicit, ...)), or give all summands as a first dimension to "
        "redistrib.to_jax(..., stacked=True)",
        axes=tuple(axes),
    )


def partial_put_error(dist_type: str) -> SpecError:
    """A partial type at an end of what `jax.device_put` alone could move."""
    return SpecError(
        "unreduced put",
        f"tiles of {dist_type} are summands, and those are moved between jax.Arrays on the same devices and in the "
        "same memory alone; go by way of an array without summands there",
        dist_type=dist_type,
    )


def no_derivative_error(what: str) -> TracedError:
    """A derivative of what has none, or none here."""
    return TracedError("derivative", f"{what} has no derivative here; reduce the array inside the function instead")


class DeviceShortageError(RedistribError):
    """More devices asked for than JAX has."""

    def __init__(self, wanted: int, found: int) -> None:
        self.wanted = wanted
        self.found = found
        super().__init__(
            f"the mesh has {wanted} devices but JAX has started with {found}; start a new process, or set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted} before importing jax"
        )


class RunSizeError(RedistribError):
    """A size at which a plan cannot be run, or the links measured, in this process.

    Attributes:
        what: the size.
        given: how much of it was asked for.
        least, most: how much can be.
    """

    def __init__(self, what: str, given: int, least: int, most: int, remedy: str) -> None:
        self.what, self.given, self.least, self.most = what, given, least, most
        super().__init__(f"{what} must be from {least:,} to {most:,}, got {given:,}; {remedy}")


class PictureError(RedistribError):
    """A plan that cannot be drawn, or not into such a file."""


class TreeMismatchError(RedistribError):
    """Shardings that are neither one for all, nor a tree like the arrays', nor a prefix of it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the shardings do not match the tree: {reason}; give one sharding, a tree of them of the same structure, "
            f"or a prefix of it"
        )


class LeafError(RedistribError):
    """Something wrong with one leaf of a tree.

    Attributes:
        path: of the leaf, as JAX prints paths.
        reason: what is wrong.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"leaf {path}: {reason}" if path else reason)


class ReplicaError(LeafError):
    """Devices that should hold one tile of an array, and do not hold the same.

    Attributes:
        devices: ids of two of them.
        index: the first element that differs, in the tile.
        held: what each of the two holds there.
    """

    def __init__(self, path: str, first: int, other: int, index: tuple[int, ...], held: object, found: object) -> None:
        self.devices, self.index, self.held = (first, other), index, (held, found)
        super().__init__(
            path,
            f"devices {first} and {other} should hold the same tile, and at {index} of it one has {held}, the other "
            f"{found}; shard_map(check_vma=False) makes such arrays where out_specs leave out an axis along which "
            "tiles differ: name that axis in out_specs, reduce over it, or say unreduced={axis} if they are summands",
        )


def unknown_source_error() -> TracedError:
    """A traced array whose placement nothing tells."""
    return TracedError(
        "unknown source",
        "under jit on a mesh of Auto axes nothing says how a traced array is placed; say it with source=, a "
        "sharding or a tree of them, or use a mesh of Explicit axes",
    )


def traced_order_error(source: Sequence[int], target: Sequence[int]) -> TracedError:
    """Two meshes inside one `jit` that order their devices in two ways, or are not made of the same devices.

    Attributes:
        source, target: device ids, in mesh order.
    """
    return TracedError(
        "traced order",
        f"inside one jit all meshes have the same devices in the same order, and these have {_shown(source)} and "
        f"{_shown(target)}; call redistrib.reshard outside jit, where the order of devices is free",
        source=tuple(source),
        target=tuple(target),
    )


def between_processes_error(source: Sequence[str], target: Sequence[str]) -> MeshDevicesError:
    """A move between processes to devices, or memory, of another kind."""
    return MeshDevicesError(
        "between processes",
        f"the array is in memory of {', '.join(source)} and is to go to {', '.join(target)}, and these belong to "
        "several processes, between which an array moves among devices and memory of one kind only; give it a target "
        "there, and move it on inside each process",
        source=tuple(source),
        target=tuple(target),
    )


def traced_donation_error() -> TracedError:
    """`donate=True` inside `jit`."""
    return TracedError(
        "traced donation",
        "donate=True has no meaning for a traced array, whose memory belongs to the compiled function; "
        "donate the arguments of that function with jax.jit(..., donate_argnums=...)",
    )


def _shown(numbers: Sequence[int], most: int = 12) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return f"[{shown}]" if len(numbers) <= most else f"[{shown}, and {len(numbers) - most} more]"
