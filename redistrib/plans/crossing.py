"""How many elements a step moves from side to side: from host to host, or to devices that did not hold the source."""

from __future__ import annotations

import math

from redistrib.errors import PlanFormError
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.theory.placement import Int64


def crossing(step: Step, side: Int64) -> int:
    """Elements that a step moves between devices of different sides, shares in rounds as large as they travel.

    Args:
        step: a step of a correct plan, over tiles that are no summands.
        side: `[devices]` the side of each device.

    Raises:
        PlanFormError: for a step that makes sums or summands.
    """
    match step:
        case DynSlice():
            return 0
        case AllGather():
            return _apart(side[step.groups]) * step.before.tile_size
        case AllToAll():
            return _apart(side[step.groups]) * math.prod(step.share)
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


def _apart(side: Int64) -> int:
    """Ordered pairs of members of one group that are on different sides; `side` is `[groups, members]`."""
    return int((side[:, :, None] != side[:, None, :]).sum()) if side.size else 0
