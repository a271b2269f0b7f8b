"""Every exception of the library: one class per broken rule, the offending values as attributes.

All derive from `RedistribError`, itself a `ValueError`. A message names the value, the rule it breaks and the
way out. Meshes and types are held as their notation, so this module depends on nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RedistribError(ValueError):
    """Base class of every error that the library raises on purpose.

    Errors survive pickling with all their attributes, so they may cross process boundaries.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, dict(self.__dict__))


def _restore(kind: type[RedistribError], args: tuple[Any, ...], values: dict[str, Any]) -> RedistribError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(values)
    return error


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) if names else "none"


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
        super().__init__(f"mesh {mesh} has no axis {name!r}; its axes are {_listed(names)}")


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


# ------------------------------------------------------------------------ placements, steps and plans


class PlacementError(RedistribError):
    """A placement whose grid or indices do not fit the global shape."""


class StepFormError(RedistribError):
    """A step whose tables have the wrong form."""


class PlanFormError(RedistribError):
    """A plan whose parts do not fit together."""


# --------------------------------------------------------------------------------------- the JAX backend


class HloTextError(RedistribError):
    """Text that is not a compiled HLO module, or says something in a way not known here."""
