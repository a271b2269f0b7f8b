"""The memory certificate: the peak bytes of a plan per device, predicted from its steps.

Peak = source + target + scratch. Scratch is the largest sum, over the steps, of the intermediate tiles and the buffers
of the collective. Backends compare their measurements with this prediction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Step,
    Unreduce,
)

# Scratch of rounds in sequence, as a fraction of the larger tile: one part of a share sent and one received.
SEQUENTIAL_SCRATCH = 0.48


def scratch_elements(step: Step, sequential: bool = False) -> int:
    """Elements of the buffers of a step's collective, besides its tiles before and after.

    Args:
        step: any step.
        sequential: whether rounds run one after the other, in parts; otherwise rounds of one tile overlap.
    """
    match step:
        case DynSlice() | Unreduce():
            return 0
        case AllGather():
            return 0 if _gathers_leading(step) else step.after.tile_size
        case AllToAll():
            return 2 * step.group_size * math.prod(step.share)
        case ReduceScatter():
            return step.before.tile_size * (1 if step.implementation == "native" else 2)
        case AllPermute() | AllReduce():
            return step.before.tile_size
        case Exchange() | ReduceExchange():
            sizes = step.round_sizes()
            largest = max(step.before.tile_size, step.after.tile_size)
            if sequential:
                return min(2 * max(sizes, default=0), math.ceil(SEQUENTIAL_SCRATCH * largest))
            # A share sent and one received, for every round in flight; a ragged exchange has all rounds in flight.
            return 2 * (sum(sizes) if step.implementation == "ragged" else min(sum(sizes), largest))


def _gathers_leading(step: AllGather) -> bool:
    grown = [i for i, (b, a) in enumerate(zip(step.before.grid, step.after.grid, strict=True)) if b != a]
    return len(grown) <= 1 and all(step.before.tile[i] == 1 for i in range(max(grown, default=0)))


def scratch(steps: Sequence[Step], sequential: bool = False) -> int:
    """Elements of scratch per device: the buffers of the worst step and the intermediate tiles alive with them."""
    sizes = [(scratch_elements(step, sequential), step.before.tile_size, step.after.tile_size) for step in steps]
    return beside_ends(sizes)


def beside_ends(sizes: Sequence[tuple[int, int, int]]) -> int:
    """The most that steps need beside source and target, of each step's buffers and tiles before and after.

    >>> beside_ends([(2, 8, 4), (1, 4, 8)])  # the tile between is alive in both steps
    6
    """
    last = len(sizes) - 1
    alive = (
        buffers + (before if k else 0) + (after if k < last else 0) for k, (buffers, before, after) in enumerate(sizes)
    )
    return max(alive, default=0)


def peak_bytes(
    steps: Sequence[Step], source_tile: int, target_tile: int, itemsize: int, sequential: bool = False
) -> int:
    """Bytes per device that source, target and scratch take together, at the worst moment."""
    return (source_tile + target_tile + scratch(steps, sequential)) * itemsize
