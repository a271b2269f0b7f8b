"""Arrays whose elements are their row-major numbers, so that every misplaced element of a result is visible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST = 8388593  # the largest prime below 2**23: float32 represents all smaller integers


def numbered(shape: Sequence[int], index: Sequence[slice], most: int = MOST) -> np.ndarray:
    """The box `index` of a float32 array of `shape`; each element is its row-major number modulo `most`."""
    total = np.zeros((), dtype=np.int64)
    for size, part in zip(shape, index, strict=True):
        total = total[..., None] * size + np.arange(*part.indices(size))
    return (total % most).astype(np.float32)
