"""Boxes of tiles as strided memory, for copies and for datatypes of messages.

A tile is a C-ordered block of bytes. A box inside it is a contiguous run of bytes, repeated along outer dimensions.
NumPy copies a short run several times faster as one opaque item than element by element, so views have runs as items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from redistrib.theory.boxes import Box

Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = tuple[int, ...]

# Bytes of the longest run that is copied as one item; for longer runs a contiguous inner loop is as fast.
LONGEST_ITEM = 2048


@dataclass(frozen=True)
class Strided:
    """Equally long runs of bytes in a flat buffer.

    Attributes:
        run: bytes in one run.
        shape: number of runs along each outer dimension.
        strides: bytes from one run to the next along each outer dimension.
        offset: first byte.
    """

    run: int
    shape: Ints
    strides: Ints
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes covered."""
        return self.run * math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the runs lie end to end."""
        expected = self.run
        for count, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if count != 1 and stride != expected:
                return False
            expected *= count
        return True

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        """The runs inside a buffer, as an array of items or of bytes."""
        if self.run > LONGEST_ITEM:
            return np.ndarray((*self.shape, self.run), np.uint8, buffer, self.offset, (*self.strides, 1))
        return np.ndarray(self.shape, _item(self.run), buffer, self.offset, self.strides)


def _item(run: int) -> np.dtype[Any]:
    return np.dtype({1: "u1", 2: "u2", 4: "u4", 8: "u8"}.get(run, f"V{run}"))


def _suffix(box: Box, shape: Ints) -> int:
    """The first dimension from which the box is one contiguous run of a tile of this shape."""
    first = len(shape)
    while first > 0:
        first -= 1
        if box.size[first] != shape[first]:
            break
    return first


def runs_in_both(
    box: Box, a: Box, b: Box, itemsize: int, a_offset: int = 0, b_offset: int = 0
) -> tuple[Strided, Strided]:
    """The runs of one box inside two tiles, equally long in both.

    Args:
        box: the box to copy, inside both tiles.
        a, b: the boxes of the two tiles.
        itemsize: bytes per element.
        a_offset, b_offset: first byte of each tile in its buffer.
    """
    first = max(_suffix(box, a.size), _suffix(box, b.size))
    return _strided(box, a, itemsize, first, a_offset), _strided(box, b, itemsize, first, b_offset)


def runs_in(box: Box, tile: Box, itemsize: int) -> Strided:
    """The longest contiguous runs of a box inside a tile."""
    return _strided(box, tile, itemsize, _suffix(box, tile.size), 0)


def _strided(box: Box, tile: Box, itemsize: int, first: int, base: int) -> Strided:
    offset, steps = elements_in(box, tile, itemsize)
    run = itemsize * math.prod(box.size[first:])
    shape, strides = _merged(box.size[:first], steps[:first])
    return Strided(run, shape, strides, base + offset)


def elements_in(box: Box, tile: Box, itemsize: int) -> tuple[int, Ints]:
    """The first byte of a box inside a tile, and the bytes from one element to the next along each dimension."""
    steps = [itemsize] * len(tile.size)
    for i in range(len(steps) - 2, -1, -1):
        steps[i] = steps[i + 1] * tile.size[i + 1]
    return sum(a * b for a, b in zip(box.offset_in(tile), steps, strict=True)), tuple(steps)


def _merged(shape: Ints, strides: Ints) -> tuple[Ints, Ints]:
    dims = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    return tuple(n for n, _ in dims), tuple(s for _, s in dims)


def copy(target: Bytes, to: Strided, source: Bytes, of: Strided) -> None:
    """Copy runs from one buffer into another."""
    np.copyto(to.view(target), of.view(source))


def start_if_contiguous(parts: Sequence[Strided]) -> int | None:
    """The first byte of parts that follow one another in one buffer without a gap; None if they do not."""
    if not parts:
        return None
    at = parts[0].offset
    for part in parts:
        if not part.contiguous or part.offset != at:
            return None
        at += part.nbytes
    return parts[0].offset
