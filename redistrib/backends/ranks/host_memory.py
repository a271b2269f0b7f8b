"""Tiles in NumPy's memory, as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from redistrib.backends.ranks.protocols import Copy, View
from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import Accumulator, identity
from redistrib.plans.strided import Bytes, Strided, copy
from redistrib.theory.boxes import Box


class HostMemory:
    """The `RankMemory` of NumPy arrays."""

    word = 1

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def empty(self, words: int, like: Bytes | None = None) -> Bytes:
        return np.empty(words, np.uint8)

    def copy(self, source: Strided, target: Strided) -> Copy:
        return lambda of, to: copy(to, target, of, source)

    def view(self, tile: Box, box: Box, first: int = 0) -> View:
        at, strides = elements_of(box, tile)
        dtype, size, steps = self.dtype, box.size, tuple(stride * self.dtype.itemsize for stride in strides)
        start = first + at * dtype.itemsize if box.volume else 0
        return lambda buffer: np.ndarray(size, dtype, buffer, start, steps)

    def total(self, reduction: Reduction, accumulate: str | None, into: npt.NDArray[Any]) -> Accumulator:
        return Accumulator(into.shape, self.dtype, reduction, accumulate, into)

    def fill(self, tile: npt.NDArray[Any], reduction: Reduction) -> None:
        tile[...] = identity(reduction, self.dtype)


def elements_of(box: Box, tile: Box) -> tuple[int, tuple[int, ...]]:
    """A box of a C-ordered tile as strided memory: its first element, and the elements from one to the next."""
    strides = [1] * len(tile.size)
    for i in range(len(strides) - 2, -1, -1):
        strides[i] = strides[i + 1] * tile.size[i + 1]
    return sum(a * b for a, b in zip(box.offset_in(tile), strides, strict=True)), tuple(strides)
