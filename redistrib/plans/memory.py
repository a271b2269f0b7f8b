"""The memory certificate: how many bytes a plan keeps alive per device, predicted from its steps.

Peak = source + target + scratch, where scratch is what the worst step needs besides: tiles between the first and the
last, and the buffers its collective packs into. Backends hold their own figures against this prediction.
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

# Of the larger tile: what rounds in sequence may use, one part of a share on its way out and one on its way in.
SEQUENTIAL_SCRATCH = 0.48


def buffers(step: Step, sequential: bool = False) -> int:
    """Elements that the collective of a step packs into, besides its tiles before and after.

    Args:
        step: any step.
        sequential: whether rounds run one after the other, in parts; otherwise as many at once as fit in a tile.
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
            # A share on its way out and one on its way in, for every round in flight; a ragged one has all in flight.
            return 2 * (sum(sizes) if step.implementation == "ragged" else min(sum(sizes), largest))


def _gathers_leading(step: AllGather) -> bool:
    grown = [i for i, (b, a) in enumerate(zip(step.before.grid, step.after.grid, strict=True)) if b != a]
    return len(grown) <= 1 and all(step.before.tile[i] == 1 for i in range(max(grown, default=0)))


def scratch(steps: Sequence[Step], sequential: bool = False) -> int:
    """Elements of scratch per device: the worst step's buffers and the intermediate tiles alive with them."""
    worst = 0
    for k, step in enumerate(steps):
        alive = buffers(step, sequential)
        alive += step.before.tile_size if k > 0 else 0
        alive += step.after.tile_size if k < len(steps) - 1 else 0
        worst = max(worst, alive)
    return worst


def peak_bytes(
    steps: Sequence[Step], source_tile: int, target_tile: int, itemsize: int, sequential: bool = False
) -> int:
    """Bytes per device that source, target and scratch take together, at the worst moment."""
    return (source_tile + target_tile + scratch(steps, sequential)) * itemsize


def peak_in_parts(steps: Sequence[Step], part: Sequence[Step], itemsize: int) -> int:
    """The same for a plan in parts, of which each takes the steps `part`.

    A part in every step may be under way at once, and tiles between steps are whole at the worst moment.
    """
    tiles = sum(step.after.tile_size for step in steps) + steps[0].before.tile_size
    ends = part[0].before.tile_size + part[-1].after.tile_size  # cut out of the source, not yet written
    return (tiles + ends + sum(map(buffers, part))) * itemsize
