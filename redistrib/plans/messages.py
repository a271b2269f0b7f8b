"""The messages of a step: sender, receiver, box and round, and the boxes that stay where they are.

Backends, the table of a plan and its explanation read the messages here. `verify` and `reference` do not: tests hold
this module against them, so they work out the messages from the groups and the tiles themselves.
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
class Messages:
    """The messages of a step, as columns of one table; row k is one message.

    Attributes:
        sender, receiver: `[messages]` device numbers, never equal in a row.
        box: `[messages]` the elements that travel, in global coordinates; never empty.
        round: `[messages]` round number, from 0. In a round a device sends at most once and receives at most once.
        retained: `[devices]` the part of its tile after the step that a device does not receive, or an empty box. The
            retained box and the received boxes hold every element of the tile once. Where the step adds, they hold
            every partial sum of the tile once (of a maximum or minimum, at least once); a message holds the partial
            sum of its sender.
    """

    sender: Int64
    receiver: Int64
    box: Boxes
    round: Int64
    retained: Boxes

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return int(self.round.max(initial=-1)) + 1

    def sends(self, device: int) -> list[tuple[int, Box]]:
        """(receiver, box) of every message from a device, in the order of the table."""
        rows = self.sender == device
        return list(zip(self.receiver[rows].tolist(), self.box[rows].rows(), strict=True))

    def receives(self, device: int) -> list[tuple[int, Box]]:
        """(sender, box) of every message to a device, in the order of the table."""
        rows = self.receiver == device
        return list(zip(self.sender[rows].tolist(), self.box[rows].rows(), strict=True))


def messages(step: Step, device: int | None = None) -> Messages:
    """The messages of a step.

    A group of n takes n - 1 rounds: in round r, member k sends to member k + r + 1, modulo n.

    Args:
        step: any step of a correct plan.
        device: keep only the messages from and to this device; by default keep all.

    Raises:
        PlanFormError: for an all-reduce, whose messages the platform chooses, and where a device gives up the one
            element of an array of rank 0.
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
    rows = ~boxes.empty
    if device is not None:
        rows &= (sender == device) | (receiver == device)
    if not rows.all():
        sender, receiver, boxes, number = sender[rows], receiver[rows], boxes[rows], number[rows]
    return Messages(sender, receiver, boxes, number, retained(step))


def retained(step: Step) -> Boxes:
    """`[devices]` the part of its tile after the step that a device keeps; it receives the rest of that tile."""
    boxes = step.before.boxes.meet(step.after.boxes)
    match step:
        case AllPermute():
            return _without(boxes, step.pairs[:, 1])  # the whole tile arrives
        case ReduceExchange():
            return _without(boxes, np.flatnonzero(~step.adds_own()))
        case Unreduce():
            return _without(boxes, np.setdiff1d(np.arange(step.devices), step.keeps))  # identity elements
        case Exchange() if step.before.summands > 1:  # another partial sum of the tile may arrive
            return _without(boxes, np.flatnonzero(step.before.label != step.after.label))
    return boxes


def _without(boxes: Boxes, rows: Int64) -> Boxes:
    """The boxes, empty in these rows."""
    if len(rows) and not boxes.size.shape[1]:
        raise PlanFormError("a box of rank 0 is never empty, so none says that a device gives up its scalar")
    boxes.size[rows] = 0
    return boxes


def _around(step: AllGather | AllToAll | ReduceScatter, device: int | None) -> tuple[Int64, Int64, Int64]:
    """(sender, receiver, round) of a step over groups; with `device`, only the messages from and to it."""
    groups = step.groups if device is None else np.array([step.group_of(device)])
    n = groups.shape[1]
    ahead = np.arange(1, n)[:, None]
    member = np.tile(np.arange(n), (n - 1, 1))
    if device is not None:  # it sends to those ahead, and receives from those behind
        at = groups[0].tolist().index(device)
        member = np.concatenate([np.full_like(ahead, at), (at - ahead) % n], axis=1)
    sender, receiver = (groups[:, m].swapaxes(0, 1).reshape(-1) for m in (member, (member + ahead) % n))
    return sender, receiver, np.repeat(np.arange(n - 1), len(groups) * member.shape[1])
