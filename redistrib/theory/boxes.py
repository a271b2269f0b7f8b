"""Boxes of elements of a global array, their intersections and exact volumes.

A box has a first element and an extent along each dimension, both in elements, so tiles may be of any size. A box with
an extent of 0 is empty. `Box` is a single box; `Boxes` is a table of boxes, usually with one row for each device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redistrib.arith import Int64


@dataclass(frozen=True)
class Box:
    """One box: first element and extent, in elements."""

    start: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def volume(self) -> int:
        """Elements in the box."""
        return math.prod(self.size)

    def meet(self, other: Box) -> Box:
        """The intersection of two boxes; of volume 0 if they are disjoint."""
        start = tuple(map(max, self.start, other.start))
        stop = (min(a + m, b + n) for a, m, b, n in zip(self.start, self.size, other.start, other.size, strict=True))
        return Box(start, tuple(max(0, e - s) for s, e in zip(start, stop, strict=True)))

    def offset_in(self, other: Box) -> tuple[int, ...]:
        """Elements from the start of another box to the start of this one, along each dimension."""
        return tuple(a - b for a, b in zip(self.start, other.start, strict=True))

    def moved(self, by: tuple[int, ...]) -> Box:
        """The box translated by `by` elements along each dimension."""
        return Box(tuple(s + d for s, d in zip(self.start, by, strict=True)), self.size)


@dataclass(frozen=True, eq=False)
class Boxes:
    """A table of boxes in one array.

    Attributes:
        start: `[boxes, rank]` first element.
        size: `[boxes, rank]` extent, at least 0.
    """

    start: Int64
    size: Int64

    def __getitem__(self, rows: Int64 | npt.NDArray[np.bool_]) -> Boxes:
        """The boxes of the given row numbers or mask."""
        return Boxes(self.start[rows], self.size[rows])

    def row(self, number: int) -> Box:
        """The box of one row."""
        return Box(tuple(self.start[number].tolist()), tuple(self.size[number].tolist()))

    def rows(self) -> list[Box]:
        """The boxes as a list."""
        return [Box(tuple(a), tuple(n)) for a, n in zip(self.start.tolist(), self.size.tolist(), strict=True)]

    @property
    def empty(self) -> npt.NDArray[np.bool_]:
        """`[boxes]` whether each box is empty."""
        mask: npt.NDArray[np.bool_] = (self.size == 0).any(axis=1)
        return mask

    def meet(self, other: Boxes) -> Boxes:
        """The intersection of box k of both tables, for every k; empty where they are disjoint."""
        start = np.maximum(self.start, other.start)
        stop = np.minimum(self.start + self.size, other.start + other.size)
        return Boxes(start, np.maximum(stop - start, 0))

    def volumes(self) -> list[int]:
        """Elements of each box, exactly."""
        return volumes(self.size)


def volumes(extent: Int64) -> list[int]:
    """Elements of each box, exactly, from extents `[boxes, rank]`."""
    result: list[int] = _volumes(extent, 1).tolist()
    return result


def summed_volumes(extent: Int64, owner: Int64, owners: int) -> list[int]:
    """Elements of all boxes of each owner, exactly: box k has extent `extent[k]` and belongs to `owner[k]`."""
    volume = _volumes(extent, len(extent))
    total = np.zeros(owners, dtype=volume.dtype)
    np.add.at(total, owner, volume)
    result: list[int] = total.tolist()
    return result


def _volumes(extent: Int64, terms: int) -> npt.NDArray[Any]:
    """Volumes of boxes; Python integers if the sum of `terms` of them may exceed 64 bits, as at rank 6 of 4096 each."""
    if len(extent) and math.prod(extent.max(axis=0).tolist()) * terms >= 2**63:
        extent = extent.astype(object)
    volume: npt.NDArray[Any] = extent.prod(axis=1)
    return volume
