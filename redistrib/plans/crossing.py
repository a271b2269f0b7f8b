"""The elements that a step moves between sides: between hosts, or to devices outside the source."""

from __future__ import annotations

import math

from redistrib.errors import PlanFormError
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
)
from redistrib.theory.placement import Int64


def crossing(step: Step, side: Int64) -> int:
    """Elements that a step moves between devices of different sides, with the padding of rounds.

    Args:
        step: a step of a correct plan, on whole tiles.
        side: `[devices]` the side of each device.

    Raises:
        PlanFormError: for a step that adds or makes partial sums.
    """
    match step:
        case DynSlice():
            return 0
        case AllGather():
            return _crossing_pairs(side[step.groups]) * step.before.tile_size
        case AllToAll():
            return _crossing_pairs(side[step.groups]) * math.prod(step.share)
        case AllPermute():
            return int((side[step.pairs[:, 0]] != side[step.pairs[:, 1]]).sum()) * step.before.tile_size
        case Exchange():
            shares = step.shares
            away = (side[shares.src] != side[shares.dst]).tolist()
            if step.implementation == "ragged":
                sizes = shares.volumes()
            else:
                largest = step.round_sizes()
                sizes = [largest[number] for number in shares.round.tolist()]
            return sum(size for size, crosses in zip(sizes, away, strict=True) if crosses)
        case _:
            raise PlanFormError(f"a step {step.kind} moves sums, of which it is not known what crosses")


def crosses(step: Step, side: Int64) -> bool:
    """Whether a step, which may add or make partial sums, sends anything between devices of different sides."""
    match step:
        case AllGather() | AllToAll() | ReduceScatter() | AllReduce():
            return bool((side[step.groups] != side[step.groups[:, :1]]).any())
        case AllPermute():
            return bool((side[step.pairs[:, 0]] != side[step.pairs[:, 1]]).any())
        case Exchange() | ReduceExchange():
            return bool((side[step.shares.src] != side[step.shares.dst]).any())
        case _:
            return False


def _crossing_pairs(side: Int64) -> int:
    """Number of ordered pairs of members of one group on different sides; `side` is `[groups, members]`."""
    return int((side[:, :, None] != side[:, None, :]).sum()) if side.size else 0
