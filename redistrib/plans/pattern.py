"""Test patterns: partial sums that differ in every element, and whose sum is exact in their element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from redistrib.plans.data import PlanData
from redistrib.plans.reduction import Tile
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Placement

Words = npt.NDArray[np.uint64]


def source_tile(plan: PlanData, device: int, dtype: np.dtype[Any]) -> Tile:
    """The source tile of a device: a different number for every partial sum of every element."""
    return _numbers(plan, plan.before.box(device), int(plan.before.label[device]), dtype).astype(dtype)


def reduced(plan: PlanData, box: Box, dtype: np.dtype[Any]) -> Tile:
    """A box of the array whose partial sums are the tiles of `source_tile`."""
    combine = {"max": np.maximum, "min": np.minimum}.get(plan.before.reduction or "sum", np.add)
    total = _numbers(plan, box, 0, dtype)
    for summand in range(1, plan.before.summands):
        total = combine(total, _numbers(plan, box, summand, dtype))
    return total.astype(dtype)


def _numbers(plan: PlanData, box: Box, summand: int, dtype: np.dtype[Any]) -> Tile:
    """Partial sums that add without rounding: integers that wrap as the element type does, or small integers."""
    words = _words(plan.before, box, summand) % _span(plan, dtype)
    return words.astype(dtype) if dtype.kind in "iu" else words.astype(np.int64)


def _words(placement: Placement, box: Box, summand: int) -> Words:
    """A hash of the position of each element and the number of the partial sum."""
    number = np.zeros(box.size, np.uint64)
    for i, (start, size, whole) in enumerate(zip(box.start, box.size, placement.shape, strict=True)):
        line = np.arange(start, start + size, dtype=np.uint64)
        number = number * np.uint64(max(1, whole)) + line.reshape([-1 if k == i else 1 for k in range(len(box.size))])
    return mixed(number * np.uint64(placement.summands) + np.uint64(summand))


def mixed(number: Words) -> Words:
    """A bijection of 64-bit words that maps neighbours to unrelated words."""
    with np.errstate(over="ignore"):  # scalars warn where arrays wrap
        words = (number ^ (number >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    result: Words = words ^ (words >> np.uint64(32))
    return result


def _span(plan: PlanData, dtype: np.dtype[Any]) -> np.uint64:
    """Number of different values in the pattern."""
    if dtype.kind in "iu":
        return np.uint64(2**63)
    if dtype.kind == "b":
        return np.uint64(2)
    sums = plan.before.summands if plan.before.reduction in ("sum", None) else 1
    return np.uint64(max(2, _exact_integers(dtype) // sums))


def _exact_integers(dtype: np.dtype[Any]) -> int:
    """A power of two up to which an element type represents every integer."""
    power = 1
    while power < 2**52 and all(int(complex(np.array(n).astype(dtype)).real) == n for n in (2 * power - 1, 2 * power)):
        power *= 2
    return power
