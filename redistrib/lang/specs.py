"""Partition specs and shardings of JAX as distributed types, and back; JAX is not imported."""

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


def _turned(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes minor to major from axes major to minor, and back.

    The one place where the order of a `PartitionSpec` (major to minor) meets ours: `P(('y', 'x'))` is `3{x,y}12`.
    """
    return axes[::-1]


def from_partition_spec(spec: Any, shape: Sequence[int], mesh: Mesh, cut: Cut = "even") -> DistType:
    """The type of an array of global `shape` cut by a partition spec over `mesh`.

    Args:
        spec: a `jax.sharding.PartitionSpec`, or a sequence of its entries: None, an axis name, or a tuple of axis
            names major to minor. Missing trailing entries mean None. JAX is not imported. The axes of a spec's
            `unreduced` are those along which tiles are summands; those of its `reduced` are axes like any other that
            does not cut: they say how a gradient travels and nothing of where data is.
        shape: global shape, in elements.
        mesh: the mesh whose axes the spec names.
        cut: what becomes of dimensions that their axes do not divide: `"even"` refuses them, `"balanced"` and
            `"chunk"` cut them so.

    Raises:
        SpecError: a spec that has no meaning here, or whose axes do not divide a dimension.
        UnknownAxisError: an axis that the mesh lacks.
        TypeFormError: an axis that cuts twice, or is unreduced and cuts.

    >>> print(from_partition_spec((("y", "x"), None), (48, 5), Mesh.of("x=4,y=6")))
    [2{x,y}48, 5]
    >>> print(from_partition_spec(("x", "y"), (10, 12), Mesh.of("x=4,y=6"), cut="balanced"))
    [3~{x}10, 2{y}12]
    """
    entries = _spec_entries(spec)
    whole = DistType(tuple(DimType(size, (), size) for size in shape))
    if len(entries) > whole.rank:
        raise errors.spec_rank_error(len(entries), whole.global_shape)
    cuts = [_turned(_entry_axes(i, entry)) for i, entry in enumerate(entries)]
    cuts += [()] * (whole.rank - len(entries))
    seen: set[str] = set()
    dims = []
    for i, (axes, size) in enumerate(zip(cuts, whole.global_shape, strict=True)):
        for name in axes:
            mesh.axis(name)
            if name in seen:
                raise TypeFormError("axis reused", name=name, where=f"partition spec {entries}")
            seen.add(name)
        tiles = math.prod(mesh.axis(name).size for name in axes)
        if size % tiles and cut == "even":
            raise errors.spec_division_error(i, size, _turned(axes), tiles)
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
    """The kind of reduction of a spec: the name of its `unreduced_kind`, which JAX has from 0.11 on, else a sum."""
    kind = getattr(spec, "unreduced_kind", None)
    name = "sum" if kind is None else str(getattr(kind, "name", kind)).lower()
    if name not in REDUCTIONS:
        raise SpecError("unreduced spec", reduction=name, axes=tuple(sorted(unreduced)))
    return name


def _spec_entries(spec: Any) -> tuple[object, ...]:
    entries = getattr(spec, "partitions", spec)
    if not isinstance(entries, tuple | list):
        raise SpecError("spec form", value=spec)
    return tuple(entries)


def to_partition_entries(dist_type: DistType) -> tuple[SpecEntry, ...]:
    """The entries of the partition spec that means `dist_type`, one for each dimension: `PartitionSpec(*entries)`.

    >>> to_partition_entries(DistType.parse("[2{x,y}48, 3{x}12, 5]"))
    (('y', 'x'), 'x', None)
    """
    return tuple(_entry(_turned(dim.axes)) for dim in dist_type.dims)


def to_unreduced(dist_type: DistType) -> frozenset[str]:
    """What `unreduced` is in the partition spec that means `dist_type`, empty where tiles are no summands.

    Raises:
        SpecError: for a maximum or minimum, which specs cannot say before JAX 0.11.

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
    # JAX has one such value, PartitionSpec.UNCONSTRAINED; its class is recognised by name, JAX not being imported
    if type(entry).__name__ == "UnconstrainedSingleton":
        raise SpecError("unconstrained spec", dim=dim)
    raise SpecError("spec entry", dim=dim, entry=entry)


def from_named_sharding(sharding: Any, shape: Sequence[int]) -> tuple[DistType, Mesh]:
    """The type and the mesh of an array of global `shape` under a `jax.sharding.NamedSharding`.

    Devices are numbered by their row-major position in the sharding's mesh.

    Raises:
        SpecError: another kind of sharding.
        UnknownAxisError, TypeFormError: see `from_partition_spec`.
        MeshError: if the sharding's mesh cannot be read.
    """
    if not hasattr(sharding, "mesh") or not hasattr(sharding, "spec"):
        raise SpecError("sharding form", value=sharding)
    mesh = Mesh.of(sharding.mesh)
    return from_partition_spec(sharding.spec, shape, mesh), mesh


def with_padding(dist_type: DistType, shape: Sequence[int]) -> DistType:
    """The type of an array of global `shape` that is kept at the front of a larger one, which is of `dist_type`.

    >>> print(with_padding(DistType.parse("[6283{x}50264, 768]"), (50257, 768)))
    [6283{x}50257+7, 768]
    """
    dims = (replace(dim, size=size, padding=dim.size - size) for dim, size in zip(dist_type.dims, shape, strict=True))
    return DistType(tuple(dims), dist_type.partial, dist_type.reduction)
