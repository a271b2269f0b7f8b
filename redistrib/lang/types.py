"""Distributed types: how the dimensions of an array are cut over the axes of a mesh (Figures 6 and 7b)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from redistrib.arith import as_integer
from redistrib.errors import MeshError, PartialTypeError, SpecDivisionError, SpecError, TypeFormError
from redistrib.errors import lang as errors
from redistrib.errors.base import cut, listed, shown
from redistrib.lang import notation
from redistrib.lang.mesh import Mesh, PrimeMesh
from redistrib.lang.notation import REDUCTIONS, Reduction

_LARGEST = 2**63 - 1  # offsets are held in 64 bits
_MOST_ELEMENTS = 2**512  # prices and ratios, which are floats, stay finite


@dataclass(frozen=True)
class DimType:
    """One dimension of a distributed type, `tile{axes}size`.

    Attributes:
        tile: elements of a tile along this dimension.
        axes: the mesh axes that cut it, minor to major: consecutive coordinates of the first hold neighbouring tiles.
        size: elements of the global array along this dimension.

    >>> print(DimType(3, ("x",), 12))
    3{x}12
    """

    tile: int
    axes: tuple[str, ...]
    size: int

    def __post_init__(self) -> None:
        if type(self.axes) is not tuple:
            object.__setattr__(self, "axes", tuple(self.axes))
        for what, given in (("size", self.size), ("tile", self.tile)):
            value = given if type(given) is int else as_integer(given)
            if value is None or not 0 <= value <= _LARGEST:
                raise TypeFormError("dim size", what="global size" if what == "size" else what, value=given)
            if value is not given:
                object.__setattr__(self, what, value)
        for name in self.axes:
            if not isinstance(name, str) or not name:
                raise MeshError("axis name", name=name)

    def __str__(self) -> str:
        return notation.print_dim(self.tile, self.axes, self.size)


@dataclass(frozen=True)
class DistType:
    """A distributed array type: one `DimType` for each dimension, and the axes along which tiles are summands.

    A type is a value of its own; whether it is well-formed depends on the mesh, see `check`.

    Attributes:
        dims: the dimensions.
        partial: the mesh axes along which devices hold different summands of one tile, sorted by name; none of them:
            every tile is a part of the array itself. JAX calls such an array unreduced, DTensor calls it Partial.
        reduction: what makes the array of its summands, "sum", "max" or "min"; None iff `partial` is empty.

    Raises:
        TypeFormError: axes without a kind of reduction or a kind without axes, an unknown kind, an axis given twice.

    >>> t = DistType.parse("[3{x}12, 2{y}12]")
    >>> t.global_shape, t.local_shape, t.local_size, t.axes
    ((12, 12), (3, 2), 6, ('x', 'y'))
    >>> print(DistType(t.dims[:1], ("z", "y"), "sum"))
    [3{x}12] sum{y,z}
    """

    dims: tuple[DimType, ...]
    partial: tuple[str, ...] = ()
    reduction: Reduction | None = None

    def __post_init__(self) -> None:
        dims = tuple(self.dims)
        object.__setattr__(self, "dims", dims)
        if len(dims) > notation.MOST:
            raise TypeFormError("type size", what=f"{len(dims)} dimensions", most=str(notation.MOST))
        if math.prod(max(dim.size, dim.tile, 1) for dim in dims) > _MOST_ELEMENTS:
            raise TypeFormError("type size", what="too many elements", most="2**512")
        if self.partial or self.reduction is not None:
            self._sort_partial()

    def _sort_partial(self) -> None:
        axes, kind = tuple(self.partial), self.reduction
        for name in axes:
            if not isinstance(name, str) or not name:
                raise MeshError("axis name", name=name)
        if not axes or kind not in REDUCTIONS:
            raise TypeFormError(
                "partial axes",
                f"tiles are summands along {listed(axes)} by the reduction {shown(kind)}; "
                f"give at least one axis, and one of the reductions {listed(REDUCTIONS)}",
            )
        if len(axes) > notation.MOST:
            raise TypeFormError("type size", what=f"summands along {len(axes)} axes", most=str(notation.MOST))
        if len(set(axes)) < len(axes):
            repeated = next(name for k, name in enumerate(axes) if name in axes[:k])
            raise TypeFormError(
                "partial axes",
                f"axis {shown(repeated)} is given twice in {kind}{{{cut(','.join(axes))}}}; name it once",
            )
        object.__setattr__(self, "partial", tuple(sorted(axes)))

    @classmethod
    def parse(cls, text: str) -> DistType:
        """Read the notation, `[3{x}12, 2{y}12]` or, where tiles are summands along an axis, `[3{x}12] sum{y}`.

        Raises:
            NotationError: if the text cannot be read.
            TypeFormError: if it is of no array (more than 64 dimensions, 2**63 - 1 elements along one, or 2**512
                altogether), or names an axis of summands twice.
        """
        if not isinstance(text, str):
            raise TypeFormError("type value", value=text)
        node = notation.parse_type(text)
        dims = tuple(DimType(dim.tile, tuple(axis.name for axis in dim.axes), dim.size) for dim in node.dims)
        if node.partial is None:
            return cls(dims)
        return cls(dims, tuple(axis.name for axis in node.partial.axes), node.partial.reduction)

    @classmethod
    def of(cls, value: DistType | str | Iterable[DimType]) -> DistType:
        """A type from itself, from its notation, or from its dimensions.

        Raises:
            TypeFormError: if the value describes no type; `NotationError` if the text cannot be read.
        """
        if isinstance(value, DistType):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        if isinstance(value, Iterable):
            dims = tuple(value)
            if all(isinstance(dim, DimType) for dim in dims):
                return cls(dims)
        raise TypeFormError("type value", value=value)

    def __str__(self) -> str:
        dims = ((dim.tile, dim.axes, dim.size) for dim in self.dims)
        return notation.print_type(dims, self.partial, self.reduction)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @cached_property
    def global_shape(self) -> tuple[int, ...]:
        """Shape of the whole array, in elements (globaltype of Figure 6)."""
        return tuple(dim.size for dim in self.dims)

    @cached_property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of one tile, in elements (localtype of Figure 6)."""
        return tuple(dim.tile for dim in self.dims)

    @property
    def global_size(self) -> int:
        """Elements of the whole array."""
        return math.prod(self.global_shape)

    @property
    def local_size(self) -> int:
        """Elements of one tile."""
        return math.prod(self.local_shape)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of all mesh axes that cut the array, dimension by dimension."""
        return tuple(name for dim in self.dims for name in dim.axes)

    def check(self, mesh: Mesh) -> None:
        """Check that the type is well-formed over a mesh (Figure 7b).

        Raises:
            UnknownAxisError: an axis that the mesh lacks.
            TypeFormError: an axis that cuts twice, or cuts and tells summands apart; or a dimension whose tile times
                the sizes of its axes is not its global size.
        """
        seen: set[str] = set()
        for i, dim in enumerate(self.dims):
            tiles = 1
            for name in dim.axes:
                tiles *= mesh.axis(name).size
                if name in seen:
                    raise TypeFormError("axis reused", name=name, where=f"type {self}")
                seen.add(name)
            if dim.tile * tiles != dim.size:
                raise errors.tile_product_error(str(self), i, dim.tile, tiles, dim.size, _remedy(dim, tiles))
        for name in self.partial:
            mesh.axis(name)
            if name in seen:
                raise TypeFormError(
                    "partial axes",
                    f"axis {shown(name)} both cuts the array and tells summands apart in type {cut(str(self), 200)}; "
                    "an axis may do one of the two",
                )


def _remedy(dim: DimType, tiles: int) -> str:
    if dim.size % tiles == 0:
        return f"write {DimType(dim.size // tiles, dim.axes, dim.size)}"
    return (
        f"{tiles} does not divide {dim.size}: take other axes, or pad the dimension to {-(-dim.size // tiles) * tiles}"
    )


def prime_type(dist_type: DistType, prime: PrimeMesh) -> DistType:
    """The type on the prime mesh that means what `dist_type` means on the user's mesh.

    Raises:
        TypeFormError: if the type is not well-formed over the user's mesh.

    >>> print(prime_type(DistType.parse("[3{x}12, 2{y}12]"), Mesh.of("x=4,y=6").prime()))
    [3{x0,x1}12, 2{y0,y1}12]
    """
    dist_type.check(prime.user)
    dims = tuple(
        DimType(dim.tile, tuple(part.name for name in dim.axes for part in prime.of_axis(name)), dim.size)
        for dim in dist_type.dims
    )
    partial = tuple(part.name for name in dist_type.partial for part in prime.of_axis(name))
    return DistType(dims, partial, dist_type.reduction if partial else None)


def require_whole(what: str, *types: DistType) -> None:
    """Refuse types whose tiles are summands, where only parts of the array itself are taken.

    Args:
        what: who takes whole types only, at the head of the message.

    Raises:
        PartialTypeError: for the first such type.
    """
    for dist_type in types:
        if dist_type.partial:
            raise PartialTypeError(what, str(dist_type))


# ----------------------------------------------------------------------------------------- partition specs

SpecEntry: TypeAlias = str | tuple[str, ...] | None


def _turned(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes minor to major from axes major to minor, and back.

    The one place where the order of a `PartitionSpec` (major to minor) meets ours: `P(('y', 'x'))` is `3{x,y}12`.
    """
    return axes[::-1]


def from_partition_spec(spec: Any, shape: Sequence[int], mesh: Mesh) -> DistType:
    """The type of an array of global `shape` cut by a partition spec over `mesh`.

    Args:
        spec: a `jax.sharding.PartitionSpec`, or a sequence of its entries: None, an axis name, or a tuple of axis
            names major to minor. Missing trailing entries mean None. JAX is not imported. The axes of a spec's
            `unreduced` are those along which tiles are summands; those of its `reduced` are axes like any other that
            does not cut: they say how a gradient travels and nothing of where data is.
        shape: global shape, in elements.
        mesh: the mesh whose axes the spec names.

    Raises:
        SpecError: a spec that has no meaning here; `SpecDivisionError` where axes do not divide a dimension.
        UnknownAxisError: an axis that the mesh lacks.
        TypeFormError: an axis that cuts twice, or is unreduced and cuts.

    >>> print(from_partition_spec((("y", "x"), None), (48, 5), Mesh.of("x=4,y=6")))
    [2{x,y}48, 5]
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
        if size % tiles:
            raise SpecDivisionError(i, size, _turned(axes), tiles)
        dims.append(DimType(size // tiles, axes, size))
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
