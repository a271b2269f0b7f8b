"""What a step moves: who sends which box to whom, in which round, and what stays where it is.

What carries out a step, shows it or times it reads it here. Only `verify` and `reference` do not: this module is
tested against them, so they find out on their own, from the groups and from the tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    Unreduce,
)
from redistrib.theory.boxes import Box, Boxes
from redistrib.theory.placement import Int64


@dataclass(frozen=True, eq=False)
class Transfers:
    """What a step moves, as columns of one table; row k is one transfer.

    Attributes:
        sender, receiver: `[transfers]` device numbers, never equal in a row.
        boxes: `[transfers]` what travels, in global coordinates; never empty.
        round: `[transfers]` when it travels, from 0. In a round a device sends at most once and receives at most once.
        stays: `[devices]` what each device holds already of the tile that it ends with; empty where nothing. It and
            the boxes that a device receives hold every element of that tile once. Where the step adds, they hold once
            every summand that it adds (of a maximum or minimum, at least once); a box is of its sender's summand.
    """

    sender: Int64
    receiver: Int64
    boxes: Boxes
    round: Int64
    stays: Boxes

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return int(self.round.max(initial=-1)) + 1

    def sends(self, device: int) -> list[tuple[int, Box]]:
        """(receiver, box) of all that a device sends, in the order of the table."""
        mine = self.sender == device
        return list(zip(self.receiver[mine].tolist(), self.boxes[mine].rows(), strict=True))

    def receives(self, device: int) -> list[tuple[int, Box]]:
        """(sender, box) of all that a device receives, in the order of the table."""
        mine = self.receiver == device
        return list(zip(self.sender[mine].tolist(), self.boxes[mine].rows(), strict=True))


def transfers(step: Step, device: int | None = None) -> Transfers:
    """What a step moves.

    A group of n takes n - 1 rounds: in round r, member k sends to member k + r + 1, counted around the group.

    Args:
        step: any step of a correct plan.
        device: leave out what this device neither sends nor receives; by default nothing is left out.

    Raises:
        PlanFormError: for an all-reduce, which leaves to the platform what travels, and where a device gives up the
            one element of an array of rank 0.
    """
    match step:
        case DynSlice() | Unreduce():
            sender = receiver = number = np.zeros(0, dtype=np.int64)
        case AllGather() | AllToAll() | ReduceScatter():
            sender, receiver, number = _around(step, device)
        case AllPermute():
            sender, receiver, number = step.pairs[:, 0], step.pairs[:, 1], np.zeros(len(step.pairs), dtype=np.int64)
        case Exchange() | ReduceExchange():
            sender, receiver, number = step.shares.src, step.shares.dst, step.shares.round
        case AllReduce():
            raise PlanFormError(
                f"what travels in a step {step.kind} is left to the platform; "
                "a reduce_scatter and an allgather do the same and say what travels"
            )
    if isinstance(step, Exchange | ReduceExchange):
        boxes = Boxes(step.shares.start, step.shares.size)
    else:
        boxes = step.before.boxes[sender].meet(step.after.boxes[receiver])
    wanted = ~boxes.empty
    if device is not None:
        wanted &= (sender == device) | (receiver == device)
    if not wanted.all():
        sender, receiver, boxes, number = sender[wanted], receiver[wanted], boxes[wanted], number[wanted]
    return Transfers(sender, receiver, boxes, number, stays(step))


def stays(step: Step) -> Boxes:
    """What each device holds already of the tile that it ends with; all else of that tile comes from other devices."""
    kept = step.before.boxes.meet(step.after.boxes)
    match step:
        case AllPermute():
            return _without(kept, step.pairs[:, 1])  # the whole tile comes
        case ReduceExchange():
            return _without(kept, np.flatnonzero(~step.adds_own()))
        case Unreduce():
            return _without(kept, np.setdiff1d(np.arange(step.devices), step.keeps))  # neutral elements
        case Exchange() if step.before.summands > 1:  # another summand of the tile may come
            return _without(kept, np.flatnonzero(step.before.label != step.after.label))
    return kept


def _without(boxes: Boxes, rows: Int64) -> Boxes:
    """The boxes, empty in these rows."""
    if len(rows) and not boxes.size.shape[1]:
        raise PlanFormError("a box of rank 0 is never empty, so none says that a device gives up its scalar")
    boxes.size[rows] = 0
    return boxes


def _around(step: AllGather | AllToAll | ReduceScatter, device: int | None) -> tuple[Int64, Int64, Int64]:
    """(sender, receiver, round) of a step over groups, of one device's group alone if it is given."""
    groups = step.groups if device is None else np.array([step.group_of(device)])
    n = groups.shape[1]
    ahead = np.arange(1, n)[:, None]
    member = np.tile(np.arange(n), (n - 1, 1))
    if device is not None:  # it sends to those ahead, and receives from those behind
        at = groups[0].tolist().index(device)
        member = np.concatenate([np.full_like(ahead, at), (at - ahead) % n], axis=1)
    sender, receiver = (groups[:, m].swapaxes(0, 1).reshape(-1) for m in (member, (member + ahead) % n))
    return sender, receiver, np.repeat(np.arange(n - 1), len(groups) * member.shape[1])
