"""Recognition of collectives: consecutive moves without a plan that have the effect of one collective."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal, TypeAlias

from redistrib.programs.ir.direct import direct_transfers
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import renames
from redistrib.programs.ir.program import Move, Program

SendsKind: TypeAlias = Literal["send", "permute", "broadcast", "scatter", "gather", "allgather", "alltoall", "sends"]
_Box: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]  # of which value, where, how large


@dataclass(frozen=True)
class Sends:
    """Consecutive moves without a plan, and their effect together.

    Attributes:
        kind: the collective; `"send"` for a single message, `"sends"` if it is no collective.
        first, last: numbers of the first and last of the moves among the program's operations, calls inlined.
        devices: that take part, ascending.
        messages: boxes that travelled from device to device, those passed on counted each time.
    """

    kind: SendsKind
    first: int
    last: int
    devices: tuple[int, ...]
    messages: int


def recognised(program: Program) -> list[Sends]:
    """The runs of sends in a program, each with its collective.

    A collective is recognised by the devices that hold a box before and after the run, by any route: a
    ring that passes tiles on is an all-gather.

    >>> from redistrib import Mesh, ir
    >>> b, places = ir.Builder(), [ir.Place(Mesh(()), (device,)) for device in range(3)]
    >>> a = b.input("a", "[8]", places[0])
    >>> sent = b.move(a, place=places[1])
    >>> recognised(b.build(b.move(sent, place=places[2])))  # passed on: 0 to 1 to 2
    [Sends(kind='broadcast', first=0, last=1, devices=(0, 1, 2), messages=2)]
    """
    flat = inlined(program)
    recognised_runs = []
    run: list[int] = []
    for k, op in enumerate([*flat.ops, None]):
        if isinstance(op, Move) and op.plan is None:
            if not renames(op, flat):
                run.append(k)
        elif run:
            recognised_runs.append(_together(flat, run))
            run = []
    return recognised_runs


def _together(flat: Program, run: list[int]) -> Sends:
    began: dict[str, str] = {}  # for every value the one that it is a copy of
    origin: dict[_Box, set[int]] = {}
    reached: dict[_Box, set[int]] = defaultdict(set)
    devices: set[int] = set()
    messages = 0
    for k in run:
        op = flat.ops[k]
        assert isinstance(op, Move)
        root = began[op.out.name] = began.get(op.value, op.value)
        for send in direct_transfers(flat.values[op.value], op.out).rows():
            box = (root, send.box.start, send.box.size)
            if box not in origin:
                tile = flat.values[root]
                origin[box] = {send.sender} if send.sender in tile.place.devices else set(tile.place.devices)
            reached[box].add(send.receiver)
            if send.sender != send.receiver:
                messages += 1
                devices |= {send.sender, send.receiver}
    travelled = {}
    for box, receivers in reached.items():
        if receivers - origin[box]:
            travelled[min(origin[box]), box] = frozenset(receivers - origin[box])
    return Sends(_kind(travelled), run[0], run[-1], tuple(sorted(devices)), messages)


def _kind(travelled: dict[tuple[int, _Box], frozenset[int]]) -> SendsKind:
    """The collective in which each box goes from one device to others."""
    senders = [sender for sender, _ in travelled]
    receivers = frozenset[int]().union(*travelled.values())
    ends = [frozenset(ends) for ends in travelled.values()]
    group = receivers | {*senders}
    one_each = len({*senders}) == len(senders)
    to_one = all(len(end) == 1 for end in ends)
    pairs = [(sender, *end) for (sender, _), end in travelled.items() if len(end) == 1]
    if len(travelled) == 1 and to_one:
        return "send"
    if len({*senders}) == 1:
        if len({*ends}) == 1 and not to_one:
            return "broadcast"
        if to_one and len({*ends}) == len(ends):
            return "scatter"
    if to_one and len(receivers) == 1 and one_each:
        return "gather"
    if to_one and one_each and len(receivers) == len(ends):
        return "permute"
    if one_each and all(end == group - {sender} for sender, end in zip(senders, ends, strict=True)):
        return "allgather"
    if to_one and sorted(pairs) == sorted((a, b) for a in group for b in group if a != b):
        return "alltoall"
    return "sends"
