"""Conversion between JAX's partition specs or shardings and distributed types. JAX is not imported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from redistrib.errors import SpecError, TypeFormError
from redistrib.errors import lang as errors
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import REDUCTIONS, Cut, Reduction
from redistrib.lang.types import DimType, DistType

SpecEntry: TypeAlias = str | tuple[str, ...] | None


def _reverse_order(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes minor to major from axes major to minor, and back.

    Only this function converts between the order of a `PartitionSpec` (major to minor) and the order of a type (minor
    to major): `P(('y', 'x'))` is `3{x,y}12`.
    """
    return axes[::-1]


def from_partition_spec(spec: Any, shape: Sequence[int], mesh: Mesh, cut: Cut = "even") -> DistType:
    """The type of an array of global `shape` cut by a partition spec over `mesh`.

    Args:
        spec: a `jax.sharding.PartitionSpec`, or a sequence of its entries: None, an axis name, or a tuple of axis
            names major to minor. Missing trailing entries mean None. The axes of its `unreduced` become the partial
            axes of the type. The axes of its `reduced` cut nothing: they concern gradients, not the placement of data.
        shape: global shape, in elements.
        mesh: the mesh whose axes the spec names.
        cut: how to cut a dimension that its axes do not divide: `"even"` raises SpecError, `"balanced"` and `"chunk"`
            make tiles of unequal size.

    Raises:
        SpecError: the spec has no meaning as a type, or its axes do not divide a dimension and `cut` is `"even"`.
        UnknownAxisError: the mesh lacks an axis of the spec.
        TypeFormError: an axis cuts twice, or an unreduced axis cuts.

    >>> print(from_partition_spec((("y", "x"), None), (48, 5), Mesh.of("x=4,y=6")))
    [2{x,y}48, 5]
    >>> print(from_partition_spec(("x", "y"), (10, 12), Mesh.of("x=4,y=6"), cut="balanced"))
    [3~{x}10, 2{y}12]
    """
    entries = spec_entries(spec)
    replicated = DistType(tuple(DimType(size, (), size) for size in shape))
    if len(entries) > replicated.rank:
        raise errors.spec_rank_error(len(entries), replicated.global_shape)
    dim_axes = [_reverse_order(_entry_axes(i, entry)) for i, entry in enumerate(entries)]
    dim_axes += [()] * (replicated.rank - len(entries))
    seen: set[str] = set()
    dims = []
    for i, (axes, size) in enumerate(zip(dim_axes, replicated.global_shape, strict=True)):
        for name in axes:
            mesh.axis(name)
            if name in seen:
                raise TypeFormError("axis reused", name=name, where=f"partition spec {entries}")
            seen.add(name)
        tiles = math.prod(mesh.axis(name).size for name in axes)
        if size % tiles and cut == "even":
            raise errors.spec_division_error(i, size, _reverse_order(axes), tiles)
        dims.append(DimType(-(-size // tiles), axes, size, cut if size % tiles else "even"))
    for name in getattr(spec, "reduced", None) or ():
        mesh.axis(name)
    unreduced = tuple(getattr(spec, "unreduced", None) or ())
    if not unreduced:
        return DistType(tuple(dims))
    dist_type = DistType(tuple(dims), unreduced, _spec_reduction(spec, unreduced))
    dist_type.check(mesh)
    return dist_type


def _spec_reduction(spec: Any, unreduced: Sequence[str]) -> Reduction:
    """The reduction of a spec: the name of its `unreduced_kind`, or a sum before JAX 0.11, which lacks that field."""
    kind = getattr(spec, "unreduced_kind", None)
    name = "sum" if kind is None else str(getattr(kind, "name", kind)).lower()
    if name not in REDUCTIONS:
        raise SpecError("unreduced spec", reduction=name, axes=tuple(sorted(unreduced)))
    return name


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """The entries of a partition spec, one for each dimension that it names.

    `PartitionSpec.partitions` came with JAX 0.10. Since then a spec with unreduced axes refuses to be iterated; before,
    every spec can be.

    Raises:
        SpecError: the value is neither a spec nor a tuple or list of entries.
    """
    entries = getattr(spec, "partitions", spec)
    if type(entries).__name__ == "PartitionSpec":
        return tuple(entries)
    if not isinstance(entries, tuple | list):
        raise SpecError("spec form", value=spec)
    return tuple(entries)


def to_partition_entries(dist_type: DistType) -> tuple[SpecEntry, ...]:
    """The entries of the partition spec that means `dist_type`, one for each dimension: `PartitionSpec(*entries)`.

    >>> to_partition_entries(DistType.parse("[2{x,y}48, 3{x}12, 5]"))
    (('y', 'x'), 'x', None)
    """
    return tuple(_entry(_reverse_order(dim.axes)) for dim in dist_type.dims)


def to_unreduced(dist_type: DistType) -> frozenset[str]:
    """The axes of `unreduced` in the partition spec that means `dist_type`; empty unless its tiles are partial sums.

    Raises:
        SpecError: for partial maxima or minima, since a partition spec before JAX 0.11 has only sums.

    >>> sorted(to_unreduced(DistType.parse("[2{x}8] sum{y,z}")))
    ['y', 'z']
    """
    if dist_type.reduction in (None, "sum"):
        return frozenset(dist_type.partial)
    raise SpecError("unreduced spec", reduction=str(dist_type.reduction), axes=dist_type.partial)


def _entry(axes: tuple[str, ...]) -> SpecEntry:
    if len(axes) > 1:
        return axes
    return axes[0] if axes else None


def _entry_axes(dim: int, entry: object) -> tuple[str, ...]:
    if entry is None:
        return ()
    if isinstance(entry, str):
        return (entry,)
    if isinstance(entry, tuple | list) and all(isinstance(name, str) for name in entry):
        return tuple(entry)
    # PartitionSpec.UNCONSTRAINED is recognised by the name of its class, because JAX is not imported
    if type(entry).__name__ == "UnconstrainedSingleton":
        raise SpecError("unconstrained spec", dim=dim)
    raise SpecError("spec entry", dim=dim, entry=entry)


def from_named_sharding(sharding: Any, shape: Sequence[int]) -> tuple[DistType, Mesh]:
    """The type and the mesh of an array of global `shape` under a `jax.sharding.NamedSharding`.

    Devices are numbered by their row-major position in the sharding's mesh.

    Raises:
        SpecError: the sharding is not a NamedSharding.
        UnknownAxisError, TypeFormError: see `from_partition_spec`.
        MeshError: if the sharding's mesh cannot be read.
    """
    if not hasattr(sharding, "mesh") or not hasattr(sharding, "spec"):
        raise SpecError("sharding form", value=sharding)
    mesh = Mesh.of(sharding.mesh)
    return from_partition_spec(sharding.spec, shape, mesh), mesh


def with_padding(dist_type: DistType, shape: Sequence[int]) -> DistType:
    """The type of an array of global `shape` that fills the front of a larger, padded array of type `dist_type`.

    >>> print(with_padding(DistType.parse("[6283{x}50264, 768]"), (50257, 768)))
    [6283{x}50257+7, 768]
    """
    dims = (replace(dim, size=size, padding=dim.size - size) for dim, size in zip(dist_type.dims, shape, strict=True))
    return DistType(tuple(dims), dist_type.partial, dist_type.reduction)
