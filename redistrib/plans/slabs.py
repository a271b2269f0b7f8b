"""Steps on summands as steps on slabs of their stack: backends move slabs by the code that moves tiles.

A reduction first brings every device all slabs that go into its own, in ascending order of summands; the device then
adds them up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from redistrib.plans.shares import Shares
from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Unreduce,
)
from redistrib.theory.placement import Int64, Placement

Move = DynSlice | AllGather | AllToAll | AllPermute | Exchange


def has_summands(step: Move | ReduceScatter | AllReduce | ReduceExchange | Unreduce) -> bool:
    """Whether tiles are summands before a step or after it."""
    return step.before.summands > 1 or step.after.summands > 1


def slabs_of(step: Move) -> Move:
    """A step that moves summands, as one that moves slabs: tiles get a first dimension of one element."""
    if isinstance(step, Exchange):
        label = step.before.label
        return replace(
            step,
            before=step.before.stacked(),
            after=step.after.stacked(),
            shares=_with_slab(step.shares, label[step.shares.src]),
        )
    return replace(step, before=step.before.stacked(), after=step.after.stacked())


@dataclass(frozen=True, eq=False)
class Stacking:
    """What brings together the slabs that each device adds.

    Attributes:
        step: from one slab on each device to `[most, *tile]` of them.
        counts: `[devices]` how many of these, from the first on, the device adds up; None where all of them. The
            others are not written.
    """

    step: AllToAll | Exchange
    counts: Int64 | None


def stacking(step: ReduceScatter | ReduceExchange) -> Stacking:
    """How a step brings together what each device adds up."""
    before, after = step.before, step.after
    if isinstance(step, ReduceScatter):
        label = before.label[step.groups]
        groups = np.take_along_axis(step.groups, np.argsort(label, axis=1), axis=1)
        return Stacking(AllToAll(before.stacked(), _stack(after, before.summands, after.label), groups), None)
    counts = np.diff(step.splits)
    most = max(1, int(counts.max()))
    into = np.repeat(np.arange(after.summands), counts)
    number = np.arange(before.summands) - np.array(step.splits)[into] + most * into  # of the slab of each summand
    label = number[before.label]
    stack = Placement.unchecked(
        (most * after.summands, *before.shape),
        (most * after.summands, *before.grid),
        np.concatenate([label[:, None], before.index], axis=1),
    )
    shares = _with_slab(step.shares, label[step.shares.src])
    moved = Exchange(stack, _stack(after, most * after.summands, after.label), shares, step.implementation)
    return Stacking(moved, None if (counts == most).all() else counts[after.label])


def _stack(placement: Placement, summands: int, label: Int64) -> Placement:
    """A stack cut into equal parts along its first dimension, of which each device holds the part of its number."""
    index = np.concatenate([label[:, None], placement.index], axis=1)
    return Placement.unchecked((summands, *placement.shape), (placement.summands, *placement.grid), index)


def _with_slab(shares: Shares, slab: Int64) -> Shares:
    first = slab[:, None]
    start = np.concatenate([first, shares.start.reshape(len(shares), -1)], axis=1)
    size = np.concatenate([np.ones_like(first), shares.size.reshape(len(shares), -1)], axis=1)
    return Shares(shares.src, shares.dst, start, size, shares.round)
