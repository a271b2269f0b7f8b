"""Windows: the elements that neighbouring points read together, and the halos of a device.

A point of a convolution reads elements that its neighbours read too. Where the points are cut, the array is cut in the
same way, and a device needs besides its tile some elements of its neighbours' tiles, its halo.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from redistrib.lang.types import DimType


class Reach(NamedTuple):
    """The overlapping tiles of an array dimension on devices: of equal size, in even steps.

    Attributes:
        step: elements from the first of one device to the first of the next.
        start: the first element of the first device. It, and others, may lie beyond the array: there zeros are held.
        length: elements of a device.
    """

    step: int
    start: int
    length: int

    def __str__(self) -> str:
        return f"({self.step} {self.start} {self.length})"


class Stencil(NamedTuple):
    """The elements of an array dimension that points read together.

    Points `a` to `b`, both included, read from `scale * ceil((a * stride + first) / spacing) + low` up to
    `scale * floor((b * stride + last) / spacing) + high`. Elements beyond the array are read as zero.

    Attributes:
        extent: of the array dimension, in elements.
        first, last: of point 0, with zeros between elements counted.
        stride: from point to point, counted so too.
        spacing: from element to element, counted so too.
        scale, low, high: where the elements found so are windows of another array, their stride and their ends.

    A window of 3 around each point, of which a device has 4:

    >>> Stencil(16, -1, 1).reach(4)
    Reach(step=4, start=-1, length=6)
    """

    extent: int
    first: int
    last: int
    stride: int = 1
    spacing: int = 1
    scale: int = 1
    low: int = 0
    high: int = 0

    def __str__(self) -> str:
        return f"({' '.join(map(str, self))})"

    def reach(self, points: int) -> Reach | None:
        """The elements that tiles of so many points read; None where their numbers differ, or are 0."""
        if points * self.stride % self.spacing:
            return None
        start = self.scale * -(-self.first // self.spacing) + self.low
        end = self.scale * (((points - 1) * self.stride + self.last) // self.spacing) + self.high
        reach = Reach(self.scale * (points * self.stride // self.spacing), start, end - start + 1)
        return reach if reach.length > 0 else None


Window: TypeAlias = "int | Stencil"  # of an access; an integer counts the elements from the index of a point on
Held: TypeAlias = "int | Reach"  # of a value, likewise; 1 where tiles do not overlap


def refusal(stencil: Stencil, points: int, whole: int) -> str:
    """Why an array with this window cannot be cut into so many points of the whole; empty if it can."""
    parts, reach = whole // max(1, points), stencil.reach(points)
    if parts < 2:
        return ""
    if stencil.extent % parts:
        return f"{parts} parts do not divide the {stencil.extent} elements that its windows read"
    if reach is None:
        return f"parts of {points} points do not begin alike between the elements that they read"
    if reach.length > stencil.extent:
        return f"the windows of {points} points reach over all of the {stencil.extent} elements"
    return ""


class Reading(Protocol):
    """An access, see `redistrib.programs.ir.nest.Access`."""

    @property
    def dims(self) -> tuple[tuple[str, ...], ...]:
        """For every array dimension the iteration dimensions."""

    @property
    def windows(self) -> tuple[Window, ...]:
        """For every array dimension the elements that are read at a point."""


def slides(access: Reading, cut: Iterable[str]) -> bool:
    """Whether windows slide along a cut iteration dimension: a part of it may need a halo."""
    names = {*cut}
    return any(
        isinstance(window, Stencil) and names & {*dim} for window, dim in zip(access.windows, access.dims, strict=False)
    )


def unfit(dims: Sequence[Sequence[str]], windows: Sequence[Window]) -> str:
    """Why windows do not fit the dimensions of an array; empty if they do."""
    if len(windows) == len(dims) and all(
        bool(dim) if isinstance(n, Stencil) else n == 1 or (n > 1 and dim) for n, dim in zip(windows, dims, strict=True)
    ):
        return ""
    return (
        f"windows {windows} do not fit {len(dims)} dimensions; give one of at least 1 for each, and 1 for one that is "
        f"read whole"
    )


def cut_by(stencil: Stencil, points: DimType) -> DimType:
    """The type of an array dimension of which points that are cut so read windows."""
    parts = points.size // max(1, points.tile)
    return DimType(stencil.extent // max(1, parts), points.axes, stencil.extent)


def halos_held(
    dims: Sequence[Sequence[str]], windows: Sequence[Window], cut: Mapping[str, DimType]
) -> tuple[Held, ...]:
    """The halos of devices besides their tiles of an array, along each dimension; empty where there are none.

    Args:
        dims, windows: how it is read, see `redistrib.programs.ir.nest.Access`.
        cut: of every iteration dimension.
    """
    held: list[Held] = []
    for names, window in zip(dims, windows, strict=False):
        if isinstance(window, Stencil):
            points, whole = (math.prod(getattr(cut[name], side) for name in names) for side in ("tile", "size"))
            tile = window.extent // max(1, whole // max(1, points))
            reach = window.reach(points)
            held.append(1 if reach is None or points == whole or reach == (tile, 0, tile) else reach)
        else:
            held.append(window)
    return tuple(held) if any(one != 1 for one in held) else ()


def reached(points: tuple[int, ...], windows: tuple[Window | Held, ...]) -> tuple[int, ...]:
    """Elements of an array that so many neighbouring points read along each dimension.

    Args:
        points: along each dimension.
        windows: of an access, or of a value, whose points are elements where it has a `Reach`.

    >>> reached((4, 8), (2, 1))
    (5, 8)
    """
    return tuple(map(_reached, points, windows)) if windows else points


def is_inside(inner: Sequence[Held], outer: Sequence[Held], tile: Sequence[int]) -> bool:
    """Whether devices with these tiles find the elements of some windows in those of others."""
    for one, other, size in zip(inner, outer, tile, strict=True):
        a, b = (held if isinstance(held, Reach) else Reach(size, 0, size) for held in (one, other))
        if a.step != b.step or a.start < b.start or a.start + a.length > b.start + b.length:
            return False
    return True


def held_shape(tile: Sequence[int], windows: Sequence[Held]) -> tuple[int, ...]:
    """Elements that a device with so many points, or elements, holds along each dimension."""
    shape = reached(tuple(tile), tuple(windows))
    return tuple(held.length if isinstance(held, Reach) else n for n, held in zip(shape, windows or shape, strict=True))


def _reached(points: int, window: Window | Held) -> int:
    match window:
        case Stencil():
            return window.extent
        case Reach():
            return points
        case _:
            return points + window - 1
