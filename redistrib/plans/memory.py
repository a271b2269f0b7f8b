"""The memory certificate: the peak bytes of a plan per device, predicted from its steps.

Peak = source + target + scratch. Scratch is the largest sum, over the steps, of the intermediate tiles and the buffers
of the collective. Backends compare their measurements with this prediction.
"""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.plans.step import Step


def scratch(steps: Sequence[Step], sequential: bool = False) -> int:
    """Elements of scratch per device: the buffers of the worst step and the intermediate tiles alive with them."""
    sizes = [(step.scratch(sequential), step.before.tile_size, step.after.tile_size) for step in steps]
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
