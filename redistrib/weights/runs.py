"""Boxes of an array as runs of bytes in a file."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Box = tuple[tuple[int, int], ...]  # for each dimension the first element and one past the last


def box_of(index: Sequence[slice], shape: Sequence[int]) -> Box:
    """The box of a tuple of slices, as JAX gives them for the tiles of a sharding."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def shape_of(box: Box) -> tuple[int, ...]:
    """The shape of a box, in elements."""
    return tuple(stop - start for start, stop in box)


def runs_of(shape: Sequence[int], box: Box) -> tuple[np.ndarray, int]:
    """The longest contiguous runs of a box in an array that is stored row by row.

    Returns:
        The first element of each run, ascending, and the elements of each.

    >>> starts, length = runs_of((4, 6), ((1, 3), (0, 6)))
    >>> starts.tolist(), length
    ([6], 12)
    >>> starts, length = runs_of((4, 6), ((1, 3), (2, 4)))
    >>> starts.tolist(), length
    ([8, 14], 2)
    """
    if 0 in shape_of(box):
        return np.zeros(0, np.int64), 0
    whole = len(shape)  # dimensions from here on are whole
    while whole and box[whole - 1] == (0, shape[whole - 1]):
        whole -= 1
    last = max(0, whole - 1)  # a run is a range of this dimension
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    starts = np.zeros(1, np.int64)
    for k in range(last):
        steps = np.arange(*box[k], dtype=np.int64) * strides[k]
        starts = (starts[:, None] + steps).reshape(-1)
    if not shape:
        return starts, 1
    start, stop = box[last]
    return starts + start * strides[last], (stop - start) * strides[last]
