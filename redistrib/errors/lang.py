"""Errors of the notation, of meshes, types and partition specs."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RedistribError, listed

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
        line = text[line_start : line_end if line_end >= 0 else len(text)]
        caret = " " * (start - line_start) + "^" * max(1, min(end, line_start + len(line)) - start)
        where = f"characters {start} to {end}" if end > start else f"character {start}"
        shown = "".join(c if c.isprintable() else " " for c in line)
        super().__init__(f"expected {expected}, found {found} ({where})\n    {shown}\n    {caret}")


# ------------------------------------------------------------------------------------------------ meshes


class MeshError(RedistribError):
    """A mesh that cannot be."""


class MeshValueError(MeshError):
    """A value that does not describe a mesh."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r} does not describe a mesh; give a Mesh, a dict such as {{'x': 4, 'y': 6}}, "
            f"the text 'x=4,y=6', or a jax.sharding.Mesh"
        )


class AxisNameError(MeshError):
    """An axis name that is not a non-empty string."""

    def __init__(self, name: object) -> None:
        self.name = name
        super().__init__(f"the axis name {name!r} is not a non-empty string; name mesh axes by strings such as 'x'")


class AxisSizeError(MeshError):
    """An axis size that is not a positive integer."""

    def __init__(self, name: str, size: object) -> None:
        self.name, self.size = name, size
        super().__init__(f"axis {name!r} has size {size!r}; a mesh axis has a positive integer number of devices")


class DuplicateAxisError(MeshError):
    """Two axes of a mesh with one name."""

    def __init__(self, name: str, mesh: str) -> None:
        self.name, self.mesh = name, mesh
        super().__init__(f"axis {name!r} appears twice in mesh {mesh}; give every axis of a mesh its own name")


class MeshSizeError(MeshError):
    """A mesh of more devices than can be listed."""

    def __init__(self, mesh: str, size: int, most: int) -> None:
        self.mesh, self.size, self.most = mesh, size, most
        super().__init__(f"mesh {mesh} has {size} devices and at most {most} are possible; take a smaller mesh")


class DeviceOrderError(MeshError):
    """A device order that is not a permutation of the device numbers."""

    def __init__(self, mesh: str, size: int, devices: Sequence[object]) -> None:
        self.mesh, self.size, self.devices = mesh, size, tuple(devices)
        shown = repr(list(devices)) if len(devices) <= 16 else f"{list(devices[:16])!r} and {len(devices) - 16} more"
        super().__init__(
            f"mesh {mesh} needs each device number from 0 to {size - 1} exactly once, got {shown}; "
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
            f"{value!r} does not describe a distributed type; give a DistType, its notation such as "
            f"'[3{{x}}12, 24]', or a sequence of DimType"
        )


class DimSizeError(TypeFormError):
    """A tile or global size that is not an integer from 0 to 2**63 - 1."""

    def __init__(self, what: str, value: object) -> None:
        self.what, self.value = what, value
        super().__init__(f"the {what} {value!r} of a dimension is not an integer from 0 to 2**63 - 1")


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
        super().__init__(f"mesh {mesh} has no axis {name!r}; its axes are {listed(names)}")


class AxisReusedError(TypeFormError):
    """An axis that cuts an array twice."""

    def __init__(self, name: str, where: str) -> None:
        self.name, self.where = name, where
        super().__init__(f"axis {name!r} is used twice in {where}; a mesh axis may cut at most one dimension, once")


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
            f"dimension {dim} of {dist_type}: {tiles} tile{'s' if tiles != 1 else ''} of {tile} "
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
            f"{what} takes arrays whose tiles are parts of the array, and those of {dist_type} are summands; "
            "reduce it first, for example with jax.lax.psum or MPI's Allreduce"
        )


class SpecError(TypeFormError):
    """A partition spec that has no meaning as a distributed type."""


class SpecFormError(SpecError):
    """A value that is no sequence of entries."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r} is no partition spec; give a jax.sharding.PartitionSpec, or a tuple with one entry "
            f"for each dimension: None, an axis name, or a tuple of axis names from major to minor"
        )


class ShardingFormError(SpecError):
    """A sharding that is not a mesh and a partition spec."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r} has no mesh and partition spec; give a jax.sharding.NamedSharding, "
            f"the one kind of sharding that a distributed type can say"
        )


class SpecEntryError(SpecError):
    """An entry of a partition spec that is neither None, nor an axis name, nor a tuple of axis names."""

    def __init__(self, dim: int, entry: object) -> None:
        self.dim, self.entry = dim, entry
        super().__init__(
            f"entry {dim} of the partition spec is {entry!r}; "
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
            f"a partition spec that is unreduced over {listed(axes)} by the reduction {reduction!r} cannot be said "
            "by both JAX and a distributed type; both know sums, so reduce these axes first"
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
