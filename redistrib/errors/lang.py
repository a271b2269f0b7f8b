"""Errors of the notation, of meshes, types and partition specs."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RedistribError, cut, listed, shown

# ---------------------------------------------------------------------------------------------- notation


class NotationError(RedistribError):
    """Text that is not in the notation of types or meshes.

    >>> from redistrib.lang.types import DistType
    >>> DistType.parse("[3{x}12, 2{y 12]")
    Traceback (most recent call last):
        ...
    redistrib.errors.NotationError: expected ',' or '}' after an axis name, found '12' (characters 13 to 15)
        [3{x}12, 2{y 12]
                     ^^

    Attributes:
        text: the whole text.
        start, end: the offending span, in characters; both `len(text)` at the end of the text.
        expected: what would have been right.
        found: what stood there.
    """

    def __init__(self, text: str, start: int, end: int, expected: str, found: str) -> None:
        self.text, self.start, self.end, self.expected, self.found = text, start, end, expected, found
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line_end = line_end if line_end >= 0 else len(text)
        first, last = max(line_start, start - _CONTEXT), min(line_end, start + _CONTEXT)
        before, after = "..." * (first > line_start), "..." * (last < line_end)
        caret = " " * (len(before) + start - first) + "^" * max(1, min(end, last) - start)
        where = f"characters {start} to {end}" if end > start else f"character {start}"
        line = "".join(c if c.isprintable() else " " for c in text[first:last])
        super().__init__(f"expected {expected}, found {cut(found)} ({where})\n    {before}{line}{after}\n    {caret}")


_CONTEXT = 200  # characters of a long line that a message shows before and after the fault


# ------------------------------------------------------------------------------------------------ meshes


class MeshError(RedistribError):
    """A mesh that cannot be."""


class MeshValueError(MeshError):
    """A value that does not describe a mesh."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{shown(value)} does not describe a mesh; give a Mesh, a dict such as {{'x': 4, 'y': 6}}, "
            f"the text 'x=4,y=6', or a jax.sharding.Mesh"
        )


class AxisNameError(MeshError):
    """An axis name that is not a non-empty string."""

    def __init__(self, name: object) -> None:
        self.name = name
        super().__init__(
            f"the axis name {shown(name)} is not a non-empty string; name mesh axes by strings such as 'x'"
        )


class AxisSizeError(MeshError):
    """An axis size that is not a positive integer, or larger than any mesh; `most` is the largest, where it is that."""

    def __init__(self, name: str, size: object, most: int | None = None) -> None:
        self.name, self.size, self.most = name, size, most
        rule = "a positive integer number of" if most is None else f"at most {most}"
        super().__init__(f"axis {shown(name)} has size {shown(size)}; a mesh axis has {rule} devices")


class DuplicateAxisError(MeshError):
    """Two axes of a mesh with one name."""

    def __init__(self, name: str, mesh: str) -> None:
        self.name, self.mesh = name, mesh
        super().__init__(
            f"axis {shown(name)} appears twice in mesh {cut(mesh, 200)}; give every axis of a mesh its own name"
        )


class MeshSizeError(MeshError):
    """A mesh of more devices than can be listed, or of more axes than an array of devices can have.

    Attributes:
        mesh: the mesh.
        size: how many it has of `what`.
        most: how many are possible.
        what: "devices" or "axes".
    """

    def __init__(self, mesh: str, size: int, most: int, what: str = "devices") -> None:
        self.mesh, self.size, self.most, self.what = mesh, size, most, what
        super().__init__(
            f"mesh {cut(mesh, 200)} has {shown(size)} {what} and at most {most} are possible; take a smaller mesh"
        )


class DeviceOrderError(MeshError):
    """A device order that is not a permutation of the device numbers."""

    def __init__(self, mesh: str, size: int, devices: Sequence[object]) -> None:
        self.mesh, self.size, self.devices = mesh, size, tuple(devices)
        given = shown(list(devices[:16]), 400) + (f" and {len(devices) - 16} more" if len(devices) > 16 else "")
        super().__init__(
            f"mesh {cut(mesh, 200)} needs each device number from 0 to {size - 1} exactly once, got {given}; "
            f"leave the device order out to number devices row by row"
        )


# ------------------------------------------------------------------------------------------------- types


class TypeFormError(RedistribError):
    """A type that is not well-formed over a mesh (Figure 7b)."""


class TypeValueError(TypeFormError):
    """A value that does not describe a distributed type."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{shown(value)} does not describe a distributed type; give a DistType, its notation such as "
            f"'[3{{x}}12, 24]', or a sequence of DimType"
        )


class TypeSizeError(TypeFormError):
    """A type of more dimensions or more elements than any array has."""

    def __init__(self, what: str, most: str) -> None:
        self.what, self.most = what, most
        super().__init__(f"the type has {what}, and at most {most} are possible; take a smaller array")


class DimSizeError(TypeFormError):
    """A tile or global size that is not an integer from 0 to 2**63 - 1."""

    def __init__(self, what: str, value: object) -> None:
        self.what, self.value = what, value
        super().__init__(f"the {what} {shown(value)} of a dimension is not an integer from 0 to 2**63 - 1")


class UnknownAxisError(MeshError, TypeFormError):
    """An axis that the mesh lacks.

    >>> from redistrib.lang.mesh import Mesh
    >>> Mesh.of("x=4,y=6").axis("z")
    Traceback (most recent call last):
        ...
    redistrib.errors.UnknownAxisError: mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'
    """

    def __init__(self, name: object, mesh: str, names: Sequence[str]) -> None:
        self.name, self.mesh, self.names = name, mesh, tuple(names)
        super().__init__(f"mesh {cut(mesh, 200)} has no axis {shown(name)}; its axes are {listed(names)}")


class AxisReusedError(TypeFormError):
    """An axis that cuts an array twice."""

    def __init__(self, name: str, where: str) -> None:
        self.name, self.where = name, where
        super().__init__(
            f"axis {shown(name)} is used twice in {cut(where, 200)}; a mesh axis may cut at most one dimension, once"
        )


class TileProductError(TypeFormError):
    """A dimension whose tile times its axes is not its global size (wf-dim of Figure 7b).

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> DistType.parse("[5{x}12]").check(Mesh.of("x=4"))
    Traceback (most recent call last):
        ...
    redistrib.errors.TileProductError: dimension 0 of [5{x}12]: 4 tiles of 5 make 20 elements, not 12; write 3{x}12
    """

    def __init__(self, dist_type: str, dim: int, tile: int, tiles: int, size: int, remedy: str) -> None:
        self.dist_type, self.dim, self.tile, self.tiles, self.size = dist_type, dim, tile, tiles, size
        super().__init__(
            f"dimension {dim} of {cut(dist_type, 200)}: {tiles} tile{'s' if tiles != 1 else ''} of {tile} "
            f"make{'s' if tiles == 1 else ''} {tile * tiles} elements, not {size}; {remedy}"
        )


class PartialAxesError(TypeFormError):
    """Axes of summands that cannot be: an axis that also cuts, one given twice, or no kind of reduction for them."""


class PartialTypeError(TypeFormError):
    """A type whose tiles are summands, given to what takes whole tiles only.

    Attributes:
        dist_type: the type.
    """

    def __init__(self, what: str, dist_type: str) -> None:
        self.dist_type = dist_type
        super().__init__(
            f"{what} takes arrays whose tiles are parts of the array, and those of {cut(dist_type, 200)} are summands; "
            "reduce it first, for example with jax.lax.psum or MPI's Allreduce"
        )


class SpecError(TypeFormError):
    """A partition spec that has no meaning as a distributed type."""


class SpecFormError(SpecError):
    """A value that is no sequence of entries."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{shown(value)} is no partition spec; give a jax.sharding.PartitionSpec, or a tuple with one entry "
            f"for each dimension: None, an axis name, or a tuple of axis names from major to minor"
        )


class ShardingFormError(SpecError):
    """A sharding that is not a mesh and a partition spec."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{shown(value)} has no mesh and partition spec; give a jax.sharding.NamedSharding, "
            f"the one kind of sharding that a distributed type can say"
        )


class SpecEntryError(SpecError):
    """An entry of a partition spec that is neither None, nor an axis name, nor a tuple of axis names."""

    def __init__(self, dim: int, entry: object) -> None:
        self.dim, self.entry = dim, entry
        super().__init__(
            f"entry {dim} of the partition spec is {shown(entry)}; "
            f"an entry is None, an axis name, or a tuple of axis names from major to minor"
        )


class UnconstrainedSpecError(SpecError):
    """An entry of a partition spec that leaves the choice to the compiler."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        super().__init__(
            f"entry {dim} of the partition spec is UNCONSTRAINED, which leaves the cut to the compiler; "
            f"say how dimension {dim} is cut: None, an axis name, or a tuple of axis names"
        )


class UnreducedSpecError(SpecError):
    """A partition spec, or a type to become one, of summands that are reduced by something specs cannot say.

    Attributes:
        reduction: its name.
        axes: the axes along which tiles are summands.
    """

    def __init__(self, reduction: str, axes: Sequence[str]) -> None:
        self.reduction, self.axes = reduction, tuple(axes)
        super().__init__(
            f"a partition spec that is unreduced over {listed(axes)} by the reduction {shown(reduction)} "
            "cannot be said by both JAX and a distributed type; both know sums, so reduce these axes first"
        )


class SpecRankError(SpecError):
    """A partition spec with more entries than the array has dimensions."""

    def __init__(self, entries: int, shape: Sequence[int]) -> None:
        self.entries, self.shape = entries, tuple(shape)
        super().__init__(
            f"the partition spec has {entries} entries and the shape {self.shape} only {len(self.shape)} "
            f"dimension{'s' if len(self.shape) != 1 else ''}; give at most one entry for each dimension"
        )


class SpecDivisionError(SpecError):
    """A dimension that the axes of its entry do not divide.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import from_partition_spec
    >>> from_partition_spec(("x",), (10,), Mesh.of("x=4"))
    Traceback (most recent call last):
        ...
    redistrib.errors.SpecDivisionError: dimension 0 has 10 elements, which axis 'x' cannot cut into 4 equal tiles; \
take other axes, or pad the dimension to 12
    """

    def __init__(self, dim: int, size: int, axes: Sequence[str], tiles: int) -> None:
        self.dim, self.size, self.axes, self.tiles = dim, size, tuple(axes), tiles
        super().__init__(
            f"dimension {dim} has {size} elements, which {'axis' if len(axes) == 1 else 'axes'} {listed(axes)} cannot "
            f"cut into {tiles} equal tiles; take other axes, or pad the dimension to {-(-size // tiles) * tiles}"
        )
