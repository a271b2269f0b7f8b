"""Tiles in NumPy's memory, as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from redistrib.backends.ranks.protocols import Copy, View
from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import Accumulator
from redistrib.plans.strided import Bytes, Strided, copy, elements_in
from redistrib.theory.boxes import Box


class HostMemory:
    """The `RankMemory` of NumPy arrays."""

    word = 1

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def empty(self, words: int, like: Bytes | None = None) -> Bytes:
        return np.empty(words, np.uint8)

    def words(self, buffer: Bytes, first: int, count: int) -> Bytes:
        return buffer[first : first + count]

    def copy(self, source: Strided, target: Strided) -> Copy:
        return lambda of, to: copy(to, target, of, source)

    def view(self, tile: Box, box: Box, first: int = 0) -> View:
        at, steps = elements_in(box, tile, self.dtype.itemsize)
        dtype, size, start = self.dtype, box.size, first + at if box.volume else 0
        return lambda buffer: np.ndarray(size, dtype, buffer, start, steps)

    def total(self, reduction: Reduction, accumulate: str | None, into: npt.NDArray[Any]) -> Accumulator:
        return Accumulator(into.shape, self.dtype, reduction, accumulate, into)
