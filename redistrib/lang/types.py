"""Distributed types: how mesh axes cut the dimensions of an array (Figures 6 and 7b).

Beyond the paper, tiles may be of unequal size. Where the axes of a dimension do not divide it, its axes cut one after
the other, the most major first, and each axis cuts every part separately. A balanced cut makes the first parts one
element longer than the others. A chunk cut makes every part as long as the first, until no elements are left
(`torch.chunk`). Alternatively, a dimension has padding behind its last element, and equal tiles cut the padded
dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from redistrib.arith import as_integer
from redistrib.errors import MeshError, PartialTypeError, TypeFormError, UnevenTypeError
from redistrib.errors import lang as errors
from redistrib.errors.base import cut, listed, shown
from redistrib.lang import notation
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import CUTS, REDUCTIONS, Cut, Reduction

LARGEST = 2**63 - 1  # offsets are 64-bit integers
_MOST_ELEMENTS = 2**512  # beyond it prices and ratios, which are floats, overflow


@dataclass(frozen=True)
class DimType:
    """One dimension of a distributed type, `tile{axes}size`.

    Attributes:
        tile: elements of the largest tile along this dimension.
        axes: the mesh axes that cut it, minor to major: devices that are neighbours along the first axis hold
            neighbouring tiles.
        size: elements of the global array along this dimension.
        cut: `"even"` for tiles of equal size; `"balanced"`, printed `~`, or `"chunk"`, printed `^`, for unequal tiles.
        padding: elements of the tiles behind the last element of the array, printed `+`. They hold no data.

    Raises:
        TypeFormError: a number is not an integer from 0 to 2**63 - 1, the cut is unknown, or it has padding and is not
            even.
        MeshError: the name of an axis is not a non-empty string.

    >>> print(DimType(3, ("x",), 12), DimType(3, ("x",), 11, "balanced"), DimType(3, ("x",), 11, padding=1))
    3{x}12 3~{x}11 3{x}11+1
    """

    tile: int
    axes: tuple[str, ...]
    size: int
    cut: Cut = "even"
    padding: int = 0

    def __post_init__(self) -> None:
        if type(self.axes) is not tuple:
            object.__setattr__(self, "axes", tuple(self.axes))
        for name, value in (("size", self.size), ("tile", self.tile), ("padding", self.padding)):
            integer = value if type(value) is int else as_integer(value)
            if integer is None or not 0 <= integer <= LARGEST:
                raise TypeFormError("dim size", subject="global size" if name == "size" else name, value=value)
            if integer is not value:
                object.__setattr__(self, name, integer)
        if self.uneven:
            self._check_cut()
        for name in self.axes:
            if not isinstance(name, str) or not name:
                raise MeshError("axis name", name=name)

    def _check_cut(self) -> None:
        if self.cut not in CUTS:
            raise TypeFormError("dim cut", value=self.cut, known=tuple(CUTS))
        if self.padding and self.cut != "even":
            raise TypeFormError("cut padding", dim=str(self), cut=self.cut)
        if self.padded_size > LARGEST:
            raise TypeFormError("dim size", subject="size with padding", value=self.padded_size)

    def __str__(self) -> str:
        return notation.print_dim(self.tile, self.axes, self.size, self.cut, self.padding)

    @property
    def uneven(self) -> bool:
        """Whether tiles may be of unequal size or hold padding."""
        return self.cut != "even" or self.padding > 0

    @property
    def padded_size(self) -> int:
        """Elements of the padded array along this dimension."""
        return self.size + self.padding

    def has_tiles(self, count: int) -> bool:
        """Whether `tile` is the size of the largest tile when the dimension is cut into `count` tiles."""
        if self.cut == "even":
            return self.tile * count == self.padded_size
        return self.tile == -(-self.size // count)


@dataclass(frozen=True)
class DistType:
    """A distributed array type: one `DimType` for each dimension, and the axes along which tiles are partial sums.

    A type does not name its mesh. `check` tells whether it is well-formed over a mesh.

    Attributes:
        dims: the dimensions.
        partial: the mesh axes along which devices hold different partial sums (summands) of one tile, sorted by name.
            JAX calls such an array unreduced, DTensor calls it Partial. Empty where every tile is a part of the array.
        reduction: the operation that combines partial sums into the array, "sum", "max" or "min"; None iff `partial` is
            empty.

    Raises:
        TypeFormError: partial axes without a reduction, a reduction without partial axes, an unknown reduction, a
            partial axis that appears twice, partial axes of a type with uneven tiles, or an array that is too large
            (see `parse`).

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
        if len(dims) > notation.MAX_RANK:
            raise TypeFormError("type size", subject=f"{len(dims)} dimensions", most=str(notation.MAX_RANK))
        if math.prod(max(dim.size, dim.tile, 1) for dim in dims) > _MOST_ELEMENTS:
            raise TypeFormError("type size", subject="too many elements", most="2**512")
        if self.partial or self.reduction is not None:
            self._sort_partial()
            require_even("a reduction", self)

    def _sort_partial(self) -> None:
        axes, kind = tuple(self.partial), self.reduction
        for name in axes:
            if not isinstance(name, str) or not name:
                raise MeshError("axis name", name=name)
        if not axes or kind not in REDUCTIONS:
            raise TypeFormError(
                "partial axes",
                f"the partial axes are {listed(axes)} and the reduction is {shown(kind)}; "
                f"give at least one axis, and one of the reductions {listed(REDUCTIONS)}",
            )
        if len(axes) > notation.MAX_RANK:
            raise TypeFormError("type size", subject=f"{len(axes)} partial axes", most=str(notation.MAX_RANK))
        if len(set(axes)) < len(axes):
            repeated = next(name for k, name in enumerate(axes) if name in axes[:k])
            raise TypeFormError(
                "partial axes",
                f"axis {shown(repeated)} is given twice in {kind}{{{cut(','.join(axes))}}}; name it once",
            )
        object.__setattr__(self, "partial", tuple(sorted(axes)))

    @classmethod
    def parse(cls, text: str) -> DistType:
        """Read the notation, such as `[3{x}12, 2{y}12]`, or `[3{x}12] sum{y}` for tiles that are partial sums along y.

        Raises:
            NotationError: the text cannot be read.
            TypeFormError: the array has more than 64 dimensions, 2**63 - 1 elements along one of them, or 2**512
                elements; or the text names a partial axis twice.
        """
        if not isinstance(text, str):
            raise TypeFormError("type value", value=text)
        node = notation.parse_type(text)
        return cls(tuple(DimType(*dim) for dim in node.dims), node.partial, node.reduction)

    @classmethod
    def of(cls, value: DistType | str | Iterable[DimType]) -> DistType:
        """A type from a type, from its notation, or from its dimensions.

        Raises:
            TypeFormError: the value describes no type.
            NotationError: the text cannot be read.
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

    @classmethod
    def cut(cls, shape: Sequence[int], axes: Mapping[int, Sequence[str]], mesh: Mesh) -> DistType:
        """The type of an array that mesh axes cut into equal tiles.

        Args:
            shape: global shape, in elements.
            axes: for each dimension number, the names of the axes that cut it, minor to major.
            mesh: the mesh.

        Raises:
            UnknownAxisError: the mesh lacks an axis.
            TypeFormError: the axes of a dimension do not divide it.

        >>> print(DistType.cut((12, 8), {0: ["y", "x"]}, Mesh.of("x=2,y=3")))
        [2{y,x}12, 8]
        """
        dim_axes = [tuple(axes.get(i, ())) for i in range(len(shape))]
        tiles = [math.prod(mesh.axis(name).size for name in names) for names in dim_axes]
        dims = zip(shape, tiles, dim_axes, strict=True)
        result = cls(tuple(DimType(size // count, names, size) for size, count, names in dims))
        if any(size % count for size, count in zip(shape, tiles, strict=True)):
            result.check(mesh)
        return result

    def __str__(self) -> str:
        dims = ((dim.tile, dim.axes, dim.size, dim.cut, dim.padding) for dim in self.dims)
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
        """Shape of the largest tile, in elements (localtype of Figure 6)."""
        return tuple(dim.tile for dim in self.dims)

    @cached_property
    def padded_shape(self) -> tuple[int, ...]:
        """Shape of the array with its padding, in elements."""
        return tuple(dim.padded_size for dim in self.dims)

    @cached_property
    def uneven(self) -> bool:
        """Whether tiles may be of unequal size or hold padding along some dimension."""
        return any(dim.uneven for dim in self.dims)

    @property
    def global_size(self) -> int:
        """Elements of the whole array."""
        return math.prod(self.global_shape)

    @cached_property
    def local_size(self) -> int:
        """Elements of the largest tile."""
        return math.prod(self.local_shape)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of all mesh axes that cut the array, dimension by dimension."""
        return tuple(name for dim in self.dims for name in dim.axes)

    def check(self, mesh: Mesh) -> None:
        """Check that the type is well-formed over a mesh (Figure 7b).

        Raises:
            UnknownAxisError: the mesh lacks an axis of the type.
            TypeFormError: an axis cuts twice, a partial axis cuts, or the tile size of a dimension does not fit its
                global size and axes.
        """
        seen: set[str] = set()
        for i, dim in enumerate(self.dims):
            tiles = 1
            for name in dim.axes:
                tiles *= mesh.axis(name).size
                if name in seen:
                    raise TypeFormError("axis reused", name=name, where=f"type {self}")
                seen.add(name)
            if not dim.has_tiles(tiles):
                raise _tile_error(str(self), i, dim, tiles)
        for name in self.partial:
            mesh.axis(name)
            if name in seen:
                raise TypeFormError(
                    "partial axes",
                    f"axis {shown(name)} cuts the array and is a partial axis too in type {cut(str(self), 200)}; "
                    "an axis may do one of the two",
                )


def _tile_error(dist_type: str, number: int, dim: DimType, tiles: int) -> TypeFormError:
    """The error of a dimension whose tile size does not fit its global size, with the dimension that would."""
    largest = -(-dim.size // tiles)
    if dim.cut != "even":
        remedy = f"write {replace(dim, tile=largest)}"
        return errors.largest_tile_error(dist_type, number, dim.tile, tiles, dim.size, largest, remedy)
    if dim.padding:
        remedy = f"write {replace(dim, tile=max(dim.tile, largest), padding=max(dim.tile, largest) * tiles - dim.size)}"
    elif dim.size % tiles == 0:
        remedy = f"write {replace(dim, tile=largest)}"
    else:
        remedy = (
            f"{tiles} does not divide {dim.size}: take other axes, pad the dimension to {largest * tiles}, or write "
            f"{replace(dim, tile=largest, cut='balanced')} for tiles of unequal size"
        )
    return errors.tile_product_error(dist_type, number, dim.tile, tiles, dim.padded_size, remedy)


def as_even(dist_type: DistType, mesh: Mesh) -> DistType:
    """The same type, with an even cut along every dimension that its axes divide.

    Raises:
        UnknownAxisError: the mesh lacks an axis of the type.

    >>> print(as_even(DistType.parse("[3~{x}12, 3~{y}8]"), Mesh.of("x=4,y=3")))
    [3{x}12, 3~{y}8]
    """
    tiles = (math.prod(mesh.axis(name).size for name in dim.axes) for dim in dist_type.dims)
    dims = tuple(
        replace(dim, cut="even") if dim.cut != "even" and dim.size % count == 0 else dim
        for dim, count in zip(dist_type.dims, tiles, strict=True)
    )
    return dist_type if dims == dist_type.dims else replace(dist_type, dims=dims)


def require_whole(subject: str, *types: DistType) -> None:
    """Raise an error for types whose tiles are partial sums.

    Args:
        subject: the function or algorithm that takes no partial sums, as the message names it.
        types: the types to check.

    Raises:
        PartialTypeError: the tiles of a type are partial sums; the error names the first such type.
    """
    for dist_type in types:
        if dist_type.partial:
            raise PartialTypeError(subject, str(dist_type))


def require_even(subject: str, *types: DistType) -> None:
    """Raise an error for types whose tiles are of unequal size or padded.

    Args:
        subject: the function or algorithm that takes equal tiles only, as the message names it.
        types: the types to check.

    Raises:
        UnevenTypeError: the tiles of a type are uneven; the error names the first such type.
    """
    for dist_type in types:
        if dist_type.uneven:
            raise UnevenTypeError(subject, str(dist_type))
