"""The least that plans with tiles of one size receive for partial sums, by enumeration."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment

from redistrib.theory.placement import Placement


def least_in_two_steps(before: Placement, after: Placement) -> int:
    """The least number of elements received by plans of two steps, over all tile sizes and assignments of tiles.

    The first step reduces summands to tiles of one size, one tile per device. The second sends the sums to their
    targets. The elements that a device receives depend on its tile alone, and every tile needs a device.
    """
    devices, best = before.devices, math.inf
    for grid in _grids(before.shape, devices):
        tile = math.prod(size // count for size, count in zip(before.shape, grid, strict=True))
        cost = before.summands * tile - _overlaps(before, grid) - _overlaps(after, grid)
        free = np.repeat(cost.min(axis=1, keepdims=True), devices - cost.shape[1], axis=1)
        table = np.concatenate([cost, free], axis=1)
        best = min(best, table[linear_sum_assignment(table)].sum() + devices * after.tile_size)
    return round(best)


def _grids(shape: tuple[int, ...], most: int) -> Iterator[tuple[int, ...]]:
    """Every grid of at most `most` equal tiles."""
    if not shape:
        yield ()
        return
    for count in range(1, most + 1):
        if shape[0] % count == 0:
            for rest in _grids(shape[1:], most // count):
                yield (count, *rest)


def _overlaps(placement: Placement, grid: tuple[int, ...]) -> np.ndarray:
    """`[devices, tiles]` elements of each tile of the grid, in row-major order, that each device holds."""
    table = np.ones((placement.devices, 1))
    for size, count, start, extent in zip(placement.shape, grid, placement.start.T, placement.tile, strict=True):
        low = np.arange(count) * (size // count)
        along = np.minimum.outer(start + extent, low + size // count) - np.maximum.outer(start, low)
        table = (table[:, :, None] * np.maximum(along, 0)[:, None, :]).reshape(placement.devices, -1)
    return table
