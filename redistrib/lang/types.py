"""Distributed types: how the dimensions of an array are cut over the axes of a mesh (Figures 6 and 7b)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from redistrib.arith import as_integer
from redistrib.errors import (
    AxisNameError,
    AxisReusedError,
    DimSizeError,
    ShardingFormError,
    SpecDivisionError,
    SpecEntryError,
    SpecFormError,
    SpecRankError,
    TileProductError,
    TypeSizeError,
    TypeValueError,
    UnconstrainedSpecError,
    UnreducedSpecError,
)
from redistrib.lang import notation
from redistrib.lang.mesh import Mesh, PrimeMesh

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
                raise DimSizeError("global size" if what == "size" else what, given)
            if value is not given:
                object.__setattr__(self, what, value)
        for name in self.axes:
            if not isinstance(name, str) or not name:
                raise AxisNameError(name)

    def __str__(self) -> str:
        return notation.print_dim(self.tile, self.axes, self.size)


@dataclass(frozen=True)
class DistType:
    """A distributed array type: one `DimType` for each dimension.

    A type is a value of its own; whether it is well-formed depends on the mesh, see `check`.

    >>> t = DistType.parse("[3{x}12, 2{y}12]")
    >>> t.global_shape, t.local_shape, t.local_size, t.axes
    ((12, 12), (3, 2), 6, ('x', 'y'))
    """

    dims: tuple[DimType, ...]

    def __post_init__(self) -> None:
        dims = tuple(self.dims)
        object.__setattr__(self, "dims", dims)
        if len(dims) > notation.MOST:
            raise TypeSizeError(f"{len(dims)} dimensions", str(notation.MOST))
        if math.prod(max(dim.size, dim.tile, 1) for dim in dims) > _MOST_ELEMENTS:
            raise TypeSizeError("too many elements", "2**512")

    @classmethod
    def parse(cls, text: str) -> DistType:
        """Read the notation, `[3{x}12, 2{y}12]`.

        Raises:
            NotationError: if the text cannot be read.
            TypeFormError: if it is of no array: more than 64 dimensions, 2**63 - 1 elements along one, or 2**512
                altogether.
        """
        if not isinstance(text, str):
            raise TypeValueError(text)
        dims = notation.parse_type(text).dims
        return cls(tuple(DimType(dim.tile, tuple(axis.name for axis in dim.axes), dim.size) for dim in dims))

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
        raise TypeValueError(value)

    def __str__(self) -> str:
        return notation.print_type((dim.tile, dim.axes, dim.size) for dim in self.dims)

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
            AxisReusedError: an axis that cuts twice.
            TileProductError: a dimension whose tile times the sizes of its axes is not its global size.
        """
        seen: set[str] = set()
        for i, dim in enumerate(self.dims):
            tiles = 1
            for name in dim.axes:
                tiles *= mesh.axis(name).size
                if name in seen:
                    raise AxisReusedError(name, f"type {self}")
                seen.add(name)
            if dim.tile * tiles != dim.size:
                raise TileProductError(str(self), i, dim.tile, tiles, dim.size, _remedy(dim, tiles))


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
    return DistType(
        tuple(
            DimType(dim.tile, tuple(part.name for name in dim.axes for part in prime.of_axis(name)), dim.size)
            for dim in dist_type.dims
        )
    )


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
            names major to minor. Missing trailing entries mean None. JAX is not imported.
        shape: global shape, in elements.
        mesh: the mesh whose axes the spec names.

    Raises:
        SpecError: a subclass for each kind of spec that has no meaning here.
        UnknownAxisError: an axis that the mesh lacks.
        AxisReusedError: an axis that appears twice.

    >>> print(from_partition_spec((("y", "x"), None), (48, 5), Mesh.of("x=4,y=6")))
    [2{x,y}48, 5]
    """
    entries = _spec_entries(spec)
    whole = DistType(tuple(DimType(size, (), size) for size in shape))
    if len(entries) > whole.rank:
        raise SpecRankError(len(entries), whole.global_shape)
    cuts = [_turned(_entry_axes(i, entry)) for i, entry in enumerate(entries)]
    cuts += [()] * (whole.rank - len(entries))
    seen: set[str] = set()
    dims = []
    for i, (axes, size) in enumerate(zip(cuts, whole.global_shape, strict=True)):
        for name in axes:
            mesh.axis(name)
            if name in seen:
                raise AxisReusedError(name, f"partition spec {entries}")
            seen.add(name)
        tiles = math.prod(mesh.axis(name).size for name in axes)
        if size % tiles:
            raise SpecDivisionError(i, size, _turned(axes), tiles)
        dims.append(DimType(size // tiles, axes, size))
    return DistType(tuple(dims))


def _spec_entries(spec: Any) -> tuple[object, ...]:
    for what in ("unreduced", "reduced"):
        summed = getattr(spec, what, None)
        if summed:
            raise UnreducedSpecError(what, sorted(summed))
    entries = getattr(spec, "partitions", spec)
    if not isinstance(entries, tuple | list):
        raise SpecFormError(spec)
    return tuple(entries)


def to_partition_entries(dist_type: DistType) -> tuple[SpecEntry, ...]:
    """The entries of the partition spec that means `dist_type`, one for each dimension: `PartitionSpec(*entries)`.

    >>> to_partition_entries(DistType.parse("[2{x,y}48, 3{x}12, 5]"))
    (('y', 'x'), 'x', None)
    """
    return tuple(_entry(_turned(dim.axes)) for dim in dist_type.dims)


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
        raise UnconstrainedSpecError(dim)
    raise SpecEntryError(dim, entry)


def from_named_sharding(sharding: Any, shape: Sequence[int]) -> tuple[DistType, Mesh]:
    """The type and the mesh of an array of global `shape` under a `jax.sharding.NamedSharding`.

    Devices are numbered by their row-major position in the sharding's mesh.

    Raises:
        ShardingFormError: another kind of sharding.
        SpecError, UnknownAxisError, AxisReusedError: see `from_partition_spec`.
        MeshError: if the sharding's mesh cannot be read.
    """
    if not hasattr(sharding, "mesh") or not hasattr(sharding, "spec"):
        raise ShardingFormError(sharding)
    mesh = Mesh.of(sharding.mesh)
    return from_partition_spec(sharding.spec, shape, mesh), mesh
