"""Distributed types: how the dimensions of an array are cut over the axes of a mesh (Figures 6 and 7b).

Beyond the paper, tiles may be of unequal size. Where the axes of a dimension do not divide it, it is cut axis by axis,
the most major first, every part on its own: balanced, so that the first parts have one element more than the others, or
in chunks, so that every part has as many as the first while there are any (`torch.chunk`). Or tiles are those of an
array with padding behind its last element, of which only those before it are the array's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from redistrib.arith import as_integer
from redistrib.errors import MeshError, PartialTypeError, TypeFormError, UnevenTypeError
from redistrib.errors import lang as errors
from redistrib.errors.base import cut, listed, shown
from redistrib.lang import notation
from redistrib.lang.mesh import Mesh, PrimeMesh
from redistrib.lang.notation import CUTS, REDUCTIONS, Cut, Reduction

_LARGEST = 2**63 - 1  # offsets are held in 64 bits
_MOST_ELEMENTS = 2**512  # prices and ratios, which are floats, stay finite


@dataclass(frozen=True)
class DimType:
    """One dimension of a distributed type, `tile{axes}size`.

    Attributes:
        tile: elements of a tile along this dimension; of the largest one where they differ.
        axes: the mesh axes that cut it, minor to major: consecutive coordinates of the first hold neighbouring tiles.
        size: elements of the global array along this dimension.
        cut: how the axes cut it: `"even"`, or into tiles of unequal size `"balanced"`, printed `~`, or `"chunk"`,
            printed `^`.
        padding: elements that the tiles have, all together, beyond the last of the array, printed `+`; they are no
            part of it.

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
        for what, given in (("size", self.size), ("tile", self.tile), ("padding", self.padding)):
            value = given if type(given) is int else as_integer(given)
            if value is None or not 0 <= value <= _LARGEST:
                raise TypeFormError("dim size", what="global size" if what == "size" else what, value=given)
            if value is not given:
                object.__setattr__(self, what, value)
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
        if self.padded_size > _LARGEST:
            raise TypeFormError("dim size", what="size with padding", value=self.padded_size)

    def __str__(self) -> str:
        return notation.print_dim(self.tile, self.axes, self.size, self.cut, self.padding)

    @property
    def uneven(self) -> bool:
        """Whether tiles may be of unequal size, or hold elements that are not the array's."""
        return self.cut != "even" or self.padding > 0

    @property
    def padded_size(self) -> int:
        """Elements of the array that the tiles make, those beyond its last one counted."""
        return self.size + self.padding

    def tile_over(self, tiles: int) -> bool:
        """Whether so many tiles are of the size told."""
        if self.cut == "even":
            return self.tile * tiles == self.padded_size
        return self.tile == -(-self.size // tiles)


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
            require_even("a reduction", self)

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
        dims = tuple(
            DimType(dim.tile, tuple(axis.name for axis in dim.axes), dim.size, dim.cut, dim.padding)
            for dim in node.dims
        )
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
        """Shape of one tile, in elements (localtype of Figure 6); of the largest where they differ."""
        return tuple(dim.tile for dim in self.dims)

    @cached_property
    def padded_shape(self) -> tuple[int, ...]:
        """Shape of the array that the tiles make, those elements counted that are not the array's."""
        return tuple(dim.padded_size for dim in self.dims)

    @cached_property
    def uneven(self) -> bool:
        """Whether tiles may be of unequal size along some dimension, or hold elements that are not the array's."""
        return any(dim.uneven for dim in self.dims)

    @property
    def global_size(self) -> int:
        """Elements of the whole array."""
        return math.prod(self.global_shape)

    @cached_property
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
            if not dim.tile_over(tiles):
                raise _tile_error(str(self), i, dim, tiles)
        for name in self.partial:
            mesh.axis(name)
            if name in seen:
                raise TypeFormError(
                    "partial axes",
                    f"axis {shown(name)} both cuts the array and tells summands apart in type {cut(str(self), 200)}; "
                    "an axis may do one of the two",
                )


def _tile_error(dist_type: str, number: int, dim: DimType, tiles: int) -> TypeFormError:
    """A dimension that has not as many elements as its tiles make, or is not cut into tiles as large as it says."""
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
    """The same type, said as one of equal tiles along every dimension that its axes divide.

    Raises:
        UnknownAxisError: an axis that the mesh lacks.

    >>> print(as_even(DistType.parse("[3~{x}12, 3~{y}8]"), Mesh.of("x=4,y=3")))
    [3{x}12, 3~{y}8]
    """
    tiles = (math.prod(mesh.axis(name).size for name in dim.axes) for dim in dist_type.dims)
    dims = tuple(
        replace(dim, cut="even") if dim.cut != "even" and dim.size % count == 0 else dim
        for dim, count in zip(dist_type.dims, tiles, strict=True)
    )
    return dist_type if dims == dist_type.dims else replace(dist_type, dims=dims)


def prime_type(dist_type: DistType, prime: PrimeMesh) -> DistType:
    """The type on the prime mesh that means what `dist_type` means on the user's mesh.

    Raises:
        TypeFormError: if the type is not well-formed over the user's mesh.
        UnevenTypeError: if its tiles are of unequal size; axis by axis, these are not those of the axes' factors.

    >>> print(prime_type(DistType.parse("[3{x}12, 2{y}12]"), Mesh.of("x=4,y=6").prime()))
    [3{x0,x1}12, 2{y0,y1}12]
    """
    require_even("a type on prime axes", dist_type)
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


def require_even(what: str, *types: DistType) -> None:
    """Refuse types whose tiles are of unequal size, or padded, where only tiles of one size are taken.

    Args:
        what: who takes equal tiles only, at the head of the message.

    Raises:
        UnevenTypeError: for the first such type.
    """
    for dist_type in types:
        if dist_type.uneven:
            raise UnevenTypeError(what, str(dist_type))
