"""Boxes of elements of a global array, their intersections and exact volumes.

A box has a first element and an extent along each dimension, both in elements, so tiles may be of any size. A box with
an extent of 0 is empty. `Box` is a single box; `Boxes` is a table of boxes, usually with one row for each device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from redistrib.arith import Int64

Edges: TypeAlias = tuple[tuple[int, int], ...]  # of a box: the first element and one past the last of each dimension


@dataclass(frozen=True)
class Box:
    """One box: first element and extent, in elements."""

    start: tuple[int, ...]
    size: tuple[int, ...]

    @staticmethod
    def whole(shape: Sequence[int]) -> Box:
        """All elements of an array."""
        return Box((0,) * len(shape), tuple(shape))

    @staticmethod
    def between(edges: Iterable[tuple[int, int]]) -> Box:
        """The box from a first element to one past the last along each dimension."""
        several = tuple(edges)
        return Box(tuple(a for a, _ in several), tuple(b - a for a, b in several))

    @staticmethod
    def at(index: Sequence[slice] | None, shape: Sequence[int]) -> Box:
        """The box of slices in an array, as JAX gives them for the tiles of a sharding."""
        return Box.between(part.indices(size)[:2] for part, size in zip(index or (), shape, strict=True))

    @property
    def edges(self) -> Edges:
        """The first element and one past the last along each dimension."""
        return tuple((s, s + n) for s, n in zip(self.start, self.size, strict=True))

    @property
    def volume(self) -> int:
        """Elements in the box."""
        return math.prod(self.size)

    def meet(self, other: Box) -> Box:
        """The intersection of two boxes; of volume 0 if they are disjoint."""
        start = tuple(map(max, self.start, other.start))
        stop = (min(a + m, b + n) for a, m, b, n in zip(self.start, self.size, other.start, other.size, strict=True))
        return Box(start, tuple(max(0, e - s) for s, e in zip(start, stop, strict=True)))

    def lies_in(self, other: Box) -> bool:
        """Whether another box contains this one, edges included."""
        return all(c <= a and b <= d for (a, b), (c, d) in zip(self.edges, other.edges, strict=True))

    def slices(self, within: Box | None = None) -> tuple[slice, ...]:
        """The box as an index of the array, or of the elements of a box that contains it."""
        start = self.start if within is None else self.offset_in(within)
        return tuple(slice(s, s + n) for s, n in zip(start, self.size, strict=True))

    def cut_to(self, shape: Sequence[int]) -> Box:
        """The part of the box inside an array; empty, at the array's end, where it lies beyond."""
        cut = ((min(max(a, 0), n), min(max(b, 0), n)) for (a, b), n in zip(self.edges, shape, strict=True))
        return Box.between(cut)

    def with_edge(self, dim: int, edge: tuple[int, int]) -> Box:
        """The box with another first element, and one past the last, along one dimension."""
        edges = self.edges
        return Box.between((*edges[:dim], edge, *edges[dim + 1 :]))

    def offset_in(self, other: Box) -> tuple[int, ...]:
        """Elements from the start of another box to the start of this one, along each dimension."""
        return tuple(a - b for a, b in zip(self.start, other.start, strict=True))

    def within(self, other: Box) -> Box:
        """The box in the coordinates of another one that contains it."""
        return Box(self.offset_in(other), self.size)

    def moved(self, by: tuple[int, ...]) -> Box:
        """The box translated by `by` elements along each dimension."""
        return Box(tuple(s + d for s, d in zip(self.start, by, strict=True)), self.size)


def boxes_of(sharding: Any, shape: tuple[int, ...], here: bool = False) -> dict[Any, Box]:
    """The box of each device of a JAX sharding, or of those of this process alone, in the sharding's order.

    Raises:
        ValueError: if the sharding does not divide the shape.
    """
    indices = sharding.addressable_devices_indices_map(shape) if here else sharding.devices_indices_map(shape)
    return {device: Box.at(index, shape) for device, index in indices.items()}


def rows_around(shape: tuple[int, ...], boxes: Sequence[Box]) -> Box:
    """The least rows of an array, each whole, that contain all of some boxes."""
    edges = [box.edges[:1] for box in boxes]
    rows = [(min(a for ((a, _),) in edges), max(b for ((_, b),) in edges))] if shape else []
    return Box.between((*rows, *((0, size) for size in shape[1:])))


def runs_of(shape: Sequence[int], box: Box) -> tuple[Int64, int]:
    """The longest contiguous runs of a box in an array that is stored row by row.

    Returns:
        The first element of each run, ascending, and the elements of each.

    >>> starts, length = runs_of((4, 6), Box((1, 0), (2, 6)))
    >>> starts.tolist(), length
    ([6], 12)
    >>> starts, length = runs_of((4, 6), Box((1, 2), (2, 2)))
    >>> starts.tolist(), length
    ([8, 14], 2)
    """
    if 0 in box.size:
        return np.zeros(0, np.int64), 0
    whole = len(shape)  # dimensions from here on are whole
    while whole and box.size[whole - 1] == shape[whole - 1]:
        whole -= 1
    last = max(0, whole - 1)  # a run is a range of this dimension
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    starts = np.zeros(1, np.int64)
    for k in range(last):
        steps = np.arange(box.size[k], dtype=np.int64) + box.start[k]
        starts = (starts[:, None] + steps * strides[k]).reshape(-1)
    if not shape:
        return starts, 1
    return starts + box.start[last] * strides[last], box.size[last] * strides[last]


@dataclass(frozen=True, eq=False)
class Boxes:
    """A table of boxes in one array.

    Attributes:
        start: `[boxes, rank]` first element.
        size: `[boxes, rank]` extent, at least 0.
    """

    start: Int64
    size: Int64

    @staticmethod
    def of(boxes: Sequence[Box]) -> Boxes:
        """A table of single boxes, at least one, of one rank."""
        start, size = (np.array(each, dtype=np.int64) for each in zip(*((b.start, b.size) for b in boxes), strict=True))
        return Boxes(start, size)

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
