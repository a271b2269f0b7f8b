"""Partial arrays as stacks of their summands, and back.

A stack has one dimension more, the summands, of which every device holds one slab. So what `exchange` and `grouping`
know of moving tiles they know of moving slabs; and where the first dimension is cut less afterwards, receivers add.
"""

from __future__ import annotations

import numpy as np

from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    Shares,
    Step,
)
from redistrib.theory.placement import Int64, Placement


def stack_of(placement: Placement, height: int) -> Placement:
    """The tiles of a placement as slabs of a stack of `height` summands, which its own number of summands divides."""
    index = np.concatenate([placement.label[:, None], placement.index], axis=1)
    return Placement.unchecked((height, *placement.shape), (placement.summands, *placement.grid), index)


def unstacked(stack: Placement, like: Placement) -> Placement:
    """The placement that a stack is of, by the reduction of `like`."""
    return relabelled(stack.index[:, 1:], stack.grid[1:], stack.index[:, 0], stack.grid[0], like)


def relabelled(index: Int64, grid: tuple[int, ...], label: Int64, summands: int, like: Placement) -> Placement:
    """Tiles on a grid as numbered summands of the array that `like` is of; whole tiles if there is one summand."""
    if summands == 1:
        return Placement.unchecked(like.shape, grid, np.ascontiguousarray(index))
    return Placement(like.shape, grid, index, label, summands, like.reduction)


def whole(placement: Placement) -> Placement:
    """The same tiles as parts of the array itself."""
    return Placement.unchecked(placement.shape, placement.grid, placement.index)


def moved(steps: list[Step], like: Placement) -> list[Step] | None:
    """Steps that move slabs, as steps on the tiles; None where a device would hold several slabs on the way."""
    if like.summands == 1:
        return steps
    result: list[Step] = []
    for step in steps:
        if (step.before.grid[0], step.after.grid[0]) != (like.summands, like.summands):
            return None
        before, after = unstacked(step.before, like), unstacked(step.after, like)
        match step:
            case DynSlice():
                result.append(DynSlice(before, after))
            case AllGather():
                result.append(AllGather(before, after, step.groups))
            case AllToAll():
                result.append(AllToAll(before, after, step.groups))
            case AllPermute():
                result.append(AllPermute(before, after, step.pairs))
            case Exchange():
                result.append(Exchange(before, after, without_slab(step.shares), step.implementation))
            case _:
                return None
    return result


def added(step: Exchange, before: Placement, after: Placement, splits: tuple[int, ...] = ()) -> ReduceExchange:
    """An exchange of slabs whose receivers add what goes into one summand of theirs."""
    return ReduceExchange(before, after, without_slab(step.shares), step.implementation, splits)


def without_slab(shares: Shares) -> Shares:
    """Boxes of slabs as boxes of tiles."""
    return Shares(shares.src, shares.dst, shares.start[:, 1:], shares.size[:, 1:], shares.round)
