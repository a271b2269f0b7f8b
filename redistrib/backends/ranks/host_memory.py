"""Tiles in NumPy's memory, as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from redistrib.backends.ranks.protocols import Copy
from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import Accumulator, identity, view
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

    def view(self, buffer: Bytes, tile: Box, box: Box) -> npt.NDArray[Any]:
        whole = buffer[: tile.volume * self.dtype.itemsize].view(self.dtype).reshape(tile.size)
        return view(whole, box.offset_in(tile), box.size)

    def total(self, reduction: Reduction, accumulate: str | None, into: npt.NDArray[Any]) -> Accumulator:
        return Accumulator(into.shape, self.dtype, reduction, accumulate, into)

    def fill(self, tile: npt.NDArray[Any], reduction: Reduction) -> None:
        tile[...] = identity(reduction, self.dtype)
