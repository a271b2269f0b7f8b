"""Tiles in tensors: flat tensors of words, copied as words, and added by NumPy on the host or by the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from redistrib.backends.ranks.host_memory import HostMemory
from redistrib.backends.ranks.protocols import Copy, Tile, Total, View
from redistrib.backends.torch.dtypes import torch_dtype, word_bytes, word_of
from redistrib.backends.torch.sums import TensorAccumulator
from redistrib.lang.notation import Reduction
from redistrib.plans.strided import Strided, elements_in
from redistrib.theory.boxes import Box


@dataclass(frozen=True)
class Runs:
    """Runs of words in a flat tensor; `plans.strided.Strided` in words instead of bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, runs: Strided, word: int) -> Runs:
        """The runs in words of so many bytes."""
        strides = (*(stride // word for stride in runs.strides), 1)
        return cls((*runs.shape, runs.run // word), strides, runs.offset // word)

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """The runs inside a flat tensor."""
        return flat.as_strided(self.shape, self.strides, flat.storage_offset() + self.offset)


class TensorMemory:
    """The `RankMemory` of tensors of one element type, on any device."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.word = word_bytes(dtype.itemsize)
        self._host, self._dtype = HostMemory(dtype), torch_dtype(dtype.name)
        self._word_type = word_of(dtype.itemsize)

    def empty(self, words: int, like: torch.Tensor) -> torch.Tensor:
        return torch.empty(words, dtype=self._word_type, device=like.device)

    def copy(self, source: Strided, target: Strided) -> Copy:
        of, to = Runs.of(source, self.word), Runs.of(target, self.word)
        return lambda a, b: to.view(b).copy_(of.view(a))

    def view(self, tile: Box, box: Box, first: int = 0) -> View:
        """A NumPy array over memory of the host, a tensor over that of a device."""
        on_host = self._host.view(tile, box, first * self.word)
        at, steps = elements_in(box, tile, 1)
        at += first * self.word // self._host.dtype.itemsize

        def view(buffer: torch.Tensor) -> Tile:
            if buffer.is_cpu:
                return on_host(buffer.numpy())
            flat = buffer.view(self._dtype)
            return flat.as_strided(box.size, steps, flat.storage_offset() + at if box.volume else 0)

        return view

    def total(self, reduction: Reduction, accumulate: str | None, into: Tile) -> Total:
        if isinstance(into, np.ndarray):
            return self._host.total(reduction, accumulate, into)
        wide = None if accumulate is None else torch_dtype(accumulate)
        return TensorAccumulator(self._host.dtype, reduction, wide, into)
