"""Errors of carrying plans out, on JAX and MPI."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RedistribError, listed
from redistrib.errors.plans import TilesError


class HloTextError(RedistribError):
    """Text that is not a compiled HLO module, or says something in a way not known here."""


class CommunicatorError(RedistribError):
    """A communicator that cannot run a plan: wrong size, wrong kind, or ranks that do not ask for the same."""


class ArrayMismatchError(TilesError):
    """An array that is not the tile its rank should hold; raised on every rank with one message."""


class ForeignMeshError(RedistribError):
    """A JAX mesh whose axes are not those of the plan's mesh."""

    def __init__(self, mesh: str, size: int, given: str, given_size: int) -> None:
        self.mesh, self.size, self.given, self.given_size = mesh, size, given, given_size
        super().__init__(
            f"the plan is for mesh {mesh} with {size} devices, the JAX mesh is {given} with {given_size}; "
            f"pass a mesh of the same axes in the same order, or plan for this one"
        )


class TwoMeshesError(RedistribError):
    """A plan between two meshes, where one function under one mesh is asked for."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        super().__init__(
            f"the plan goes from mesh {source} to mesh {target}; a function under one JAX mesh needs source and target "
            f"types over the same mesh and device order, use redistrib.reshard to move between meshes"
        )


class NotAnArrayError(RedistribError):
    """A value that is no `jax.Array`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"a plan runs on a jax.Array that lives on its mesh, got {kind}; "
            f"place the value first: jax.device_put(value, f.source_sharding)"
        )


class SourceArrayError(RedistribError):
    """An array that is not of the plan's source type."""

    def __init__(self, what: str, expected: object, given: object, remedy: str) -> None:
        self.what, self.expected, self.given = what, expected, given
        super().__init__(f"the plan starts from an array of {what} {expected}, got {given}; {remedy}")


class ScheduleError(RedistribError):
    """The name of a schedule that does not exist."""

    def __init__(self, schedule: object) -> None:
        self.schedule = schedule
        super().__init__(f"there is no schedule {schedule!r}; choose 'overlap' or 'sequential'")


class ManualMeshError(RedistribError):
    """A plan run inside a `shard_map` over the axes it needs."""

    def __init__(self, axes: Sequence[str]) -> None:
        self.axes = tuple(axes)
        super().__init__(
            f"inside a shard_map over {listed(axes)} an array is already a tile; call the plan's function outside, "
            f"on the global array"
        )


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


class UnknownSourceError(RedistribError):
    """A traced array whose placement nothing tells."""

    def __init__(self) -> None:
        super().__init__(
            "under jit on a mesh of Auto axes nothing says how a traced array is placed; say it with source=, a "
            "sharding or a tree of them, or use a mesh of Explicit axes"
        )


class TracedOrderError(RedistribError):
    """Two meshes inside one `jit` that order their devices in two ways, or are not made of the same devices.

    Attributes:
        source, target: device ids, in mesh order.
    """

    def __init__(self, source: Sequence[int], target: Sequence[int]) -> None:
        self.source, self.target = tuple(source), tuple(target)
        super().__init__(
            f"inside one jit all meshes have the same devices in the same order, and these have {_shown(source)} and "
            f"{_shown(target)}; call redistrib.reshard outside jit, where the order of devices is free"
        )


class TracedDonationError(RedistribError):
    """`donate=True` inside `jit`."""

    def __init__(self) -> None:
        super().__init__(
            "donate=True has no meaning for a traced array, whose memory belongs to the compiled function; "
            "donate the arguments of that function with jax.jit(..., donate_argnums=...)"
        )


def _shown(numbers: Sequence[int], most: int = 12) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return f"[{shown}]" if len(numbers) <= most else f"[{shown}, and {len(numbers) - most} more]"
