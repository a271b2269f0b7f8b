"""Stacks of partial sums: a step on partial sums is a step on the slabs of their stack.

A stack has one dimension more than the array, of one slab for every partial sum. Every device holds one slab. So
synthesis and backends move slabs by the code that moves tiles. For a reduction, an exchange or an all-to-all first
brings every device all slabs of its partial sum, in ascending order; the device then adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redistrib.plans.steps import AllToAll, Exchange, ReduceExchange, ReduceScatter, Step
from redistrib.plans.transfers import Transfers
from redistrib.theory.placement import Int64, Placement


def tiles_of_slabs(steps: Sequence[Step], like: Placement) -> list[Step] | None:
    """Steps on slabs as steps on partial sums of the array of `like`; None where a device would hold several slabs."""
    if like.summands == 1:
        return list(steps)
    result: list[Step] = []
    for step in steps:
        if step.reduces or (step.before.grid[0], step.after.grid[0]) != (like.summands, like.summands):
            return None
        before, after = unstacked(step.before, like), unstacked(step.after, like)
        result.append(step.placed(before, after, boxes=Transfers.unstacked))
    return result


def unstacked(stack: Placement, like: Placement) -> Placement:
    """The placement whose stack this is, with the reduction of `like`."""
    return relabelled(stack.index[:, 1:], stack.grid[1:], stack.index[:, 0], stack.grid[0], like)


def relabelled(index: Int64, grid: tuple[int, ...], label: Int64, summands: int, like: Placement) -> Placement:
    """Tiles on a grid as numbered partial sums of the array of `like`; whole tiles if `summands` is 1."""
    if summands == 1:
        return Placement.unchecked(like.shape, grid, np.ascontiguousarray(index))
    return Placement(like.shape, grid, index, label, summands, like.reduction)


@dataclass(frozen=True, eq=False)
class Stacking:
    """A step that brings every device the slabs that it adds.

    Attributes:
        step: from one slab on each device to `[most, *tile]` of them.
        counts: `[devices]` number of slabs, from the first on, that the device adds; None where it adds all. The
            others are not written.
    """

    step: AllToAll | Exchange
    counts: Int64 | None


def stacking(step: ReduceScatter | ReduceExchange) -> Stacking:
    """The step that brings every device the slabs that it adds in a reduction."""
    before, after = step.before, step.after
    if isinstance(step, ReduceScatter):
        label = before.label[step.groups]
        groups = np.take_along_axis(step.groups, np.argsort(label, axis=1), axis=1)
        return Stacking(AllToAll(before.stacked(), after.stacked(before.summands), groups), None)
    counts = np.diff(step.splits)
    most = max(1, int(counts.max()))
    height = most * after.summands
    into = np.repeat(np.arange(after.summands), counts)
    number = np.arange(before.summands) - np.array(step.splits)[into] + most * into  # slab of each partial sum
    label = number[before.label]
    index = np.concatenate([label[:, None], before.index], axis=1)
    stack = Placement.unchecked((height, *before.shape), (height, *before.grid), index)
    shares = step.shares.stacked(label[step.shares.sender])
    exchange = Exchange(stack, after.stacked(height), shares, step.implementation)
    return Stacking(exchange, None if (counts == most).all() else counts[after.label])
