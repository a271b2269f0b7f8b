"""Checks of a leaf before anything moves; an error names the leaf's path."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding

from redistrib.backends.jax.virtual import is_virtual
from redistrib.errors import LeafError, RedistribError, SpecError
from redistrib.errors.base import GONE, MASKED
from redistrib.lang.mesh import Mesh
from redistrib.resharding.interrupts import SignalsPutOff
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.sharing import SharedBuffers, belongs_to_others, buffers, grouped_by_buffer

HostValue = np.ndarray | np.generic | bool | int | float | complex

_GONE = (
    f"{GONE} (arrays made of its buffers go with an array: its shards, and what jax.device_put returned where nothing "
    "had to move)"
)


def check(leaf: Leaf) -> None:
    """Refuse a leaf that is no array, or an array that cannot be moved."""
    value = leaf.value
    if isinstance(value, jax.Array | jax.ShapeDtypeStruct):
        check_array(leaf.path, value)
    elif not isinstance(value, HostValue):
        raise LeafError(leaf.path, f"{type(value).__name__} is neither an array nor a number")
    else:
        check_host_value(leaf.path, value)
    check_devices(leaf.path, leaf.target)


def check_array(path: str, array: jax.Array | jax.ShapeDtypeStruct) -> None:
    """Refuse an array that is traced, has been deleted, or is on no devices."""
    if isinstance(array, jax.core.Tracer):
        raise LeafError(path, "a traced array is on no devices yet; plan outside jit, also for a jax.ShapeDtypeStruct")
    if isinstance(array, jax.Array) and array.is_deleted():
        raise LeafError(path, _GONE)
    if array.sharding is None:
        raise LeafError(path, "a ShapeDtypeStruct must say where its array is; give it a sharding=")
    check_devices(path, array.sharding)


def check_devices(path: str, sharding: Any) -> None:
    """Refuse a sharding without devices."""
    mesh = getattr(sharding, "mesh", None)
    if isinstance(mesh, AbstractMesh):
        if mesh.size > (count := jax.device_count()):
            why = f"the sharding {sharding.spec} is over {mesh.size} devices, and JAX has {count}; give a smaller mesh"
            raise LeafError(path, why)
        raise LeafError(
            path,
            f"the sharding {sharding.spec} is over an AbstractMesh, which names no devices, and nothing else tells "
            f"{mesh.size} of them for Explicit axes; give one over a jax.sharding.Mesh",
        )


def check_planned(leaf: Leaf) -> None:
    """Refuse a leaf that `check` refuses, or one between devices of JAX and virtual ones."""
    check(leaf)
    source = getattr(leaf.value, "sharding", None)
    if source is not None:
        check_ends(leaf.path, source.device_set, leaf.target.device_set)


def check_ends(path: str, source: Collection[Any], target: Collection[Any]) -> None:
    """Refuse a plan between devices of JAX and virtual ones, which stand for those of an `AbstractMesh`."""
    here, there = ("an AbstractMesh" if is_virtual(next(iter(side))) else "devices" for side in (source, target))
    if here != there:
        raise LeafError(
            path,
            f"its source is on {here} and its target on {there}, and no plan leads from one to the other; give both "
            "over an AbstractMesh, or both over a jax.sharding.Mesh",
        )


def check_host_value(path: str, value: Any) -> None:
    """Refuse a number, or an array of NumPy, that JAX has no array for."""
    if isinstance(value, np.ma.MaskedArray):
        raise LeafError(path, f"JAX has no masked arrays; {MASKED}")
    try:
        jax.typeof(value)
    except (OverflowError, ValueError):  # the latter of integers too long to be printed
        bits = f"{int(value).bit_length()} bits"
        raise LeafError(
            path, f"an integer of {bits} does not fit JAX's {jax.dtypes.canonicalize_dtype(int)}; give an array"
        ) from None
    except TypeError:
        dtype = np.asarray(value).dtype
        raise LeafError(
            path, f"JAX has no arrays of dtype {dtype}; give an array of numbers or booleans, or leave it out"
        ) from None


def check_there(path: str, value: Any) -> None:
    """Refuse a value that describes an array of this process without values."""
    if isinstance(value, jax.ShapeDtypeStruct) and value.sharding.addressable_devices:
        raise LeafError(path, "a ShapeDtypeStruct has no values to move; pass arrays, or call reshard_plan")


def check_processes(leaves: Sequence[Leaf], devices: Sequence[Sequence[Any]]) -> None:
    """Refuse leaves that move between some of the processes under a memory limit.

    The limit decides by all live arrays how each leaf moves, so all processes would have to know all leaves.

    Args:
        leaves: all leaves.
        devices: the devices of each move; none if the leaf does not move.
    """
    groups = [{device.process_index for device in members} for members in devices]
    everyone = set().union(*groups)
    for leaf, processes in zip(leaves, groups, strict=True):
        if processes and processes != everyone:
            raise LeafError(
                leaf.path,
                f"under a memory limit all leaves that move have devices of the same processes, here "
                f"{sorted(everyone)}, and this one has some of {sorted(processes)} alone; move it in a call of its own",
            )


def shared(leaves: Sequence[tuple[str, Any]]) -> SharedBuffers:
    """The leaves that share buffers, as tied weights do, with each other or with arrays outside the tree.

    Args:
        leaves: the path and the value of each.

    Raises:
        LeafError: if a buffer of an array has been deleted.
    """
    shared_buffers = []
    with SignalsPutOff() as pause:
        for path, value in leaves:
            try:
                shared_buffers.append(buffers(value) if isinstance(value, jax.Array) else [])
            except RuntimeError:
                raise LeafError(path, _GONE) from None
            pause()
    inside = {id(value) for _, value in leaves}
    outside = {k for k, (_, value) in enumerate(leaves) if belongs_to_others(value, inside)}
    return SharedBuffers(grouped_by_buffer(shared_buffers), frozenset(outside))


@contextmanager
def placing(leaf: Leaf) -> Iterator[None]:
    """A context that adds a leaf's path to errors, and to those about a spec the whole sharding that has it."""
    with naming(leaf.path):
        try:
            yield
        except SpecError as error:
            if not leaf.path or not isinstance(leaf.target, NamedSharding):
                raise
            where = f"{leaf.target.spec} on mesh {Mesh.of(leaf.target.mesh)}, for shape {np.shape(leaf.value)}"
            raise LeafError(leaf.path, f"{error} ({where})") from error


@contextmanager
def naming(path: str) -> Iterator[None]:
    """A context that adds a leaf's path to errors."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        if isinstance(error, LeafError) or (isinstance(error, RedistribError) and not path):
            raise
        raise LeafError(path, str(error)) from error
