"""Reductions of tensors on an accelerator; for NumPy arrays see `plans.reduction.Accumulator`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import identity

_COMBINED: dict[Reduction, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}
_UNSIGNED = {torch.uint16: torch.int32, torch.uint32: torch.int64}  # PyTorch does not add these unsigned numbers


class TensorAccumulator:
    """The reduction of partial sums of boxes of a tile.

    A maximum or minimum with a NaN is a NaN. Of two zeros of different sign the device takes either.

    Args:
        kind: NumPy's element type of the tile and of the partial sums.
        reduction: of the partial sums.
        wide: element type of the accumulator, rounded once; None for theirs.
        into: memory for the tile.
    """

    def __init__(self, kind: np.dtype[Any], reduction: Reduction, wide: torch.dtype | None, into: torch.Tensor) -> None:
        self._kind, self._reduction, self._into, self._rounded = kind, reduction, into, None
        shape, dtype = into.shape, into.dtype
        within = wide or _UNSIGNED.get(dtype, dtype)
        if dtype.itemsize == 1 and dtype.is_floating_point:
            within, self._rounded = torch.float32, dtype  # added in float32 and rounded after each addition
        self._total = torch.empty(shape, dtype=within, device=into.device)
        self._begun = torch.zeros(shape, dtype=torch.bool, device=into.device)

    def add(self, offset: Sequence[int], part: torch.Tensor) -> None:
        """Combine a box at an offset with the tile. The first value of an element is written, not added to zero."""
        window = tuple(slice(o, o + n) for o, n in zip(offset, part.shape, strict=True))
        sofar, begun = self._total[window], self._begun[window]
        values = part.to(sofar.dtype)
        combined = _COMBINED[self._reduction](sofar, values)
        if self._rounded is not None:
            combined = combined.to(self._rounded).to(combined.dtype)
        sofar.copy_(torch.where(begun, combined, values))
        begun.fill_(True)

    def result(self) -> torch.Tensor:
        """The tile; elements without a value are the identity of the reduction."""
        if self._into.numel():
            self._into.copy_(torch.where(self._begun, self._total, self._identity()).to(self._into.dtype))
        return self._into

    def _identity(self) -> torch.Tensor:
        value = np.array(identity(self._reduction, self._kind), self._kind).reshape(1).view(np.uint8)
        return torch.from_numpy(value).view(self._into.dtype).to(self._total)
