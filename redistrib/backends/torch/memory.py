"""Tiles in tensors: flat tensors of words, copied as words, and added by NumPy on the host or by the device."""

from __future__ import annotations

from collections.abc import Callable
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


def _runs_of_words(runs: Strided, word: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The view of runs inside a flat tensor of words of so many bytes."""
    shape, strides = (*runs.shape, runs.run // word), (*(stride // word for stride in runs.strides), 1)
    offset = runs.offset // word
    return lambda flat: flat.as_strided(shape, strides, flat.storage_offset() + offset)


def _words_end_to_end(runs: Strided, word: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The view of contiguous runs inside a flat tensor of words of so many bytes, as one line."""
    first, count = runs.offset // word, runs.nbytes // word
    return lambda flat: flat if flat.numel() == count else flat[first : first + count]


class TensorMemory:
    """The `RankMemory` of tensors of one element type, on any device."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.word = word_bytes(dtype.itemsize)
        self._host, self._dtype = HostMemory(dtype), torch_dtype(dtype.name)
        self._word_type = word_of(self._dtype)

    def empty(self, words: int, like: torch.Tensor) -> torch.Tensor:
        return torch.empty(words, dtype=self._word_type, device=like.device)

    def words(self, buffer: torch.Tensor, first: int, count: int) -> torch.Tensor:
        return buffer[first : first + count * self.word].view(self._word_type)

    def copy(self, source: Strided, target: Strided) -> Copy:
        view = _words_end_to_end if source.contiguous and target.contiguous else _runs_of_words
        of, to = (view(runs, self.word) for runs in (source, target))
        return lambda a, b: to(b).copy_(of(a))

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
