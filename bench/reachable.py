"""The least bytes of plans with tiles of one size, where tiles are summands: by trying every plan."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment

from redistrib.theory.placement import Placement


def least_in_two_steps(before: Placement, after: Placement) -> int:
    """Elements received where summands are reduced to whole tiles of one size in one step, each device to a tile of
    its own choice, and the sums are sent to where they are wanted: the least over all tile sizes and choices.

    The bytes that a device receives depend on its own tile alone, and every tile must be some device's choice.
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
    """Every way to cut into at most so many equal tiles."""
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
