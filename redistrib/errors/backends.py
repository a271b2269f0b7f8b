"""Errors of the backends, which run plans on JAX and MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from redistrib.errors.base import GONE, RedistribError, RuleBroken

# The ends of the range of JAX that tests run with; see `make test-jax`.
OLDEST_JAX, NEWEST_JAX = "0.8.0", "0.12.0.1"


class HloTextError(RedistribError):
    """Text that is not a compiled HLO module, or has a form that the reader does not know.

    >>> from redistrib.explain.profiling.hlo import parse_module
    >>> parse_module("ENTRY main")
    Traceback (most recent call last):
        ...
    redistrib.errors.HloTextError: the text holds no line that starts with 'HloModule'; pass compiled.as_text()
    """


class MissingPackageError(RedistribError, ModuleNotFoundError):
    """A package that a feature needs is not installed.

    >>> from redistrib.extras import to_install
    >>> raise MissingPackageError("jax", to_install("jax"))
    Traceback (most recent call last):
        ...
    redistrib.errors.MissingPackageError: this needs jax, which is not installed; install it with \
pip install 'redistrib[jax]'

    Attributes:
        name: the module that cannot be imported.
    """

    def __init__(self, name: str, source: str, feature: str = "this") -> None:
        needed = "the programs part" if name.startswith("redistrib.") else name
        super().__init__(f"{feature} needs {needed}, which is not installed; install it with pip install {source}")
        self.name = name


class JaxVersionError(RedistribError):
    """A JAX that lacks what the library needs of it, and has no other way to it.

    >>> raise JaxVersionError("the mesh that jax.set_mesh has set", "0.99.0")
    Traceback (most recent call last):
        ...
    redistrib.errors.JaxVersionError: JAX 0.99.0 does not say the mesh that jax.set_mesh has set; give that \
explicitly, or install another JAX: redistrib is tested with 0.8.0 to 0.12.0.1

    Attributes:
        version: of JAX.
    """

    def __init__(self, subject: str, version: str) -> None:
        super().__init__(
            f"JAX {version} does not say {subject}; give that explicitly, or install another JAX: redistrib is tested "
            f"with {OLDEST_JAX} to {NEWEST_JAX}"
        )
        self.version = version


class CommunicatorError(RedistribError):
    """A communicator that cannot run a plan: of the wrong size or kind, or with processes that run different plans.

    >>> from mpi4py import MPI
    >>> import redistrib as rd
    >>> try:
    ...     rd.to_mpi(rd.synthesize("[4{x}8]", "[8]", "x=2"), MPI.COMM_SELF)
    ... except CommunicatorError as error:
    ...     print(str(error).partition(";")[0])
    the plan is for 2 devices and the communicator has 1 rank
    """


class ForeignMeshError(RuleBroken):
    """A JAX mesh on which a plan cannot run.

    Its axes differ from those of the plan's mesh, or XLA cannot read their names. Or the plan has two meshes, or its
    mesh has a subset of the devices.

    >>> import jax
    >>> import redistrib as rd
    >>> rd.to_jax(rd.synthesize("[4{x}8]", "[8]", "x=2"), jax.make_mesh((4,), ("x",)))
    Traceback (most recent call last):
        ...
    redistrib.errors.ForeignMeshError: the plan is for mesh {x:2} with 2 devices, the JAX mesh is {x:4} with 4; pass \
a mesh of the same axes in the same order, or plan for this one
    """

    wordings: ClassVar = {
        "foreign mesh": "the plan is for mesh {mesh} with {size} devices, the JAX mesh is {given} with {given_size}; "
        "pass a mesh of the same axes in the same order, or plan for this one",
        "two meshes": "the plan goes from mesh {source} to mesh {target}; a function under one JAX mesh needs source "
        "and target types over the same mesh and device order, use redistrib.reshard to move between meshes",
        "axis name": "XLA ends the process when it compiles for a mesh with an axis named {name!r}; name axes in ASCII "
        "without backslashes, or move arrays by redistrib.reshard outside jit, which compiles for a mesh of its own",
        "some devices": "the plan has {devices} devices, of which mesh {mesh} leaves some out; a function under one "
        "JAX mesh is for all of its devices: number those of the mesh from 0, or use redistrib.reshard",
    }


class SourceArrayError(RuleBroken):
    """The argument of a plan is not a `jax.Array` of the plan's source type.

    >>> import jax
    >>> import redistrib as rd
    >>> rd.to_jax(rd.synthesize("[4{x}8]", "[8]", "x=2"), jax.make_mesh((2,), ("x",)))([1.0] * 8)
    Traceback (most recent call last):
        ...
    redistrib.errors.SourceArrayError: a plan runs on a jax.Array or a value of NumPy, got list; place the value \
first: jax.device_put(value, f.source_sharding)
    """

    wordings: ClassVar = {
        "not an array": "a plan runs on a jax.Array or a value of NumPy, got {kind}; "
        "place the value first: jax.device_put(value, f.source_sharding)",
        "deleted": GONE,
        "source array": "the plan starts from an array of {subject} {expected}, got {given}; {remedy}",
    }


class TracedError(RuleBroken):
    """An operation that is impossible on a traced array, inside `jit` or `shard_map`.

    >>> import jax
    >>> import redistrib as rd
    >>> from jax.sharding import NamedSharding, PartitionSpec
    >>> there = NamedSharding(jax.make_mesh((2,), ("x",)), PartitionSpec("x"))
    >>> try:
    ...     jax.jit(lambda array: rd.reshard(array, there, donate=True))(jax.numpy.zeros(8))
    ... except rd.errors.TracedError as error:
    ...     print(error)
    donate=True has no meaning for a traced array, whose memory belongs to the compiled \
function; donate the arguments of that function with jax.jit(..., donate_argnums=...)
    """

    wordings: ClassVar = {
        "manual mesh": "inside a shard_map over {axes!l} an array is already a tile; call the plan's function outside, "
        "on the global array",
        "manual reshard": "inside a shard_map over {axes!l} an array is already a tile along them; call "
        "redistrib.reshard outside, on the global array, or give a partition spec over Explicit axes beside them, "
        "without a memory limit, for an array that is no partial sum",
        "plan across a batch": "under this jax.vmap batches are cut along {axes!l}, and the plan moves between devices "
        "that have different examples; plan for the whole batch, call redistrib.reshard, or leave spmd_axis_name out",
        "batch axis": "under this jax.vmap batches are cut along {axes!l}, so no dimension can be cut by {spec}; take "
        "other axes",
        "mesh of another size": "the current mesh has {current} devices, and inside a traced function nothing moves on "
        "{size}; call it under jax.set_mesh(mesh) with a mesh of the devices of the arrays, or under none",
        "unknown source": "under jit on a mesh of Auto axes XLA chooses where this array lies, and {wanted} needs a "
        "plan from there; say it with source=, a sharding or a tree of them, or use a mesh of Explicit axes",
        "memory kind": "under jit arrays lie in the devices' own memory or in {host}, and {kind} is neither; give one "
        "of these, or call redistrib.reshard outside",
        "memory of CPUs": "JAX {version} keeps no array of CPU devices in {kind} under jit; call redistrib.reshard "
        "outside, or take JAX 0.10.2",
        "empty sums": "JAX {version} returns no partial sums without elements from jit, here of shape {shape} on "
        "{spec}; call redistrib.reshard outside, or give a target without unreduced axes",
        "traced donation": "donate=True has no meaning for a traced array, whose memory belongs to the compiled "
        "function; donate the arguments of that function with jax.jit(..., donate_argnums=...)",
        "no plan back": "from {source!c} to {target!c} arrays change their padding, so only a plan knows the way of a "
        "cotangent back; give one as reverse=",
        "derivative": "{subject} has no derivative here; reduce the array inside the function instead",
    }


class RunSizeError(RuleBroken):
    """A plan or a measurement is too large for this process, or needs more devices than it has.

    >>> from redistrib.explain.profiling.compare import virtual_cpu_devices
    >>> virtual_cpu_devices(1000)
    Traceback (most recent call last):
        ...
    redistrib.errors.RunSizeError: the number of virtual devices must be from 1 to 256, got 1,000; run on a smaller \
mesh, or through MPI
    """

    wordings: ClassVar = {
        "run size": "{subject} must be from {least:,} to {most:,}, got {given:,}; {remedy}",
        "device shortage": "the mesh has {wanted} devices but JAX has started with {found}; start a new process, or "
        "set XLA_FLAGS=--xla_force_host_platform_device_count={wanted} before importing jax",
        "accelerator shortage": "links lie between {wanted} devices or more, and JAX has {found} of {kind}; run where "
        "there are more, or set JAX_PLATFORMS=cpu for virtual devices",
    }


class PictureError(RedistribError):
    """A plan that cannot be drawn, or a file format that cannot be written.

    >>> import redistrib as rd
    >>> from redistrib.explain import weak_graph
    >>> weak_graph(rd.synthesize("[0{x}0]", "[0]", "x=2"))
    Traceback (most recent call last):
        ...
    redistrib.errors.PictureError: a weak graph is of arrays with elements, this one has the shape (0,)
    """


class ViewError(RedistribError):
    """A value of which there is no page.

    >>> import redistrib as rd
    >>> rd.view(3)
    Traceback (most recent call last):
        ...
    redistrib.errors.ViewError: there is no page of int; give a Plan, TreePlan, Program, Diagnosis or Simulation, or \
what distribute or search returns
    """

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"there is no page of {kind}; give a Plan, TreePlan, Program, Diagnosis or Simulation, or what distribute "
            "or search returns"
        )


class LeafError(RedistribError):
    """A leaf of a tree that breaks a rule, or a tree of shardings that is no prefix of the tree of arrays.

    >>> import jax
    >>> import redistrib as rd
    >>> from jax.sharding import NamedSharding, PartitionSpec
    >>> rd.reshard({"w": "text"}, NamedSharding(jax.make_mesh((2,), ("x",)), PartitionSpec("x")))
    Traceback (most recent call last):
        ...
    redistrib.errors.LeafError: leaf w: str is neither an array nor a number

    Attributes:
        path: path of the leaf, its keys with `/` between them; empty if the error concerns no single leaf.
        reason: the broken rule and the way out.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"leaf {path}: {reason}" if path else reason)


class ReplicaError(LeafError):
    """Two devices that hold different values of the same tile.

    Attributes:
        devices: ids of the two devices.
        index: index of the first different element in the tile.
        held: the value of this element on each of the two devices.

    >>> import jax
    >>> from redistrib.testing import check_replicas
    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> f = jax.shard_map(lambda: jax.lax.axis_index("x"), mesh=mesh, out_specs=jax.P(), check_vma=False)
    >>> try:
    ...     check_replicas(f())
    ... except ReplicaError as error:
    ...     print(error.devices, [int(value) for value in error.held])
    (0, 1) [0, 1]
    """

    def __init__(
        self, path: str, first: int, other: int, index: tuple[int, ...], first_value: object, other_value: object
    ) -> None:
        self.devices, self.index, self.held = (first, other), index, (first_value, other_value)
        super().__init__(
            path,
            f"devices {first} and {other} should hold the same tile, and at {index} of it one has {first_value}, "
            f"the other {other_value}; shard_map(check_vma=False) makes such arrays where out_specs leave out an "
            "axis along which tiles differ: name that axis in out_specs, reduce over it, or say unreduced={axis} if "
            "they are partial sums",
        )


def traced_order_error(source: Sequence[int], target: Sequence[int]) -> TracedError:
    """The error of two meshes inside one `jit` with different devices or different device orders.

    Args:
        source, target: device ids, in mesh order.
    """
    return TracedError(
        "traced order",
        f"inside one jit all meshes have the same devices in the same order, and these have {_shown(source)} and "
        f"{_shown(target)}; call redistrib.reshard outside jit, where the order of devices is free",
        source=tuple(source),
        target=tuple(target),
    )


def _shown(numbers: Sequence[int], most: int = 12) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return f"[{shown}]" if len(numbers) <= most else f"[{shown}, and {len(numbers) - most} more]"
