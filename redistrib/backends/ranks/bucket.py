"""Plans that a rank runs together: in every stage one message from rank to rank carries the parts of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from redistrib.backends.ranks.move import RankMove
from redistrib.backends.ranks.protocols import Buffer, Copy, Messages, Pending
from redistrib.backends.ranks.sides import Message
from redistrib.backends.stages import Memory as Name
from redistrib.backends.stages import Stage, by_device
from redistrib.plans.plan import Plan

_ALIGNED = 16  # bytes; a plan's part of a message begins at a multiple, so that it can be viewed as words


def can_share_a_launch(plan: Plan) -> bool:
    """Whether a plan moves tiles only; reductions do not share a launch."""
    return max(plan.before.summands, plan.after.summands) == 1


class _Part(NamedTuple):
    """The part of a message that belongs to the move of a number: bytes from `start` on."""

    move: int
    stage: Stage
    message: Message
    start: int


class _Launch(NamedTuple):
    """One exchange of messages.

    Attributes:
        sends, receives: for each other rank the parts of the message to it, and of that from it, and its bytes.
        copies: boxes that stay on this rank, each with the number of its move and the stage.
    """

    sends: dict[int, tuple[list[_Part], int]]
    receives: dict[int, tuple[list[_Part], int]]
    copies: list[tuple[int, Stage, Copy]]


class RankBucket:
    """Moves that run together; their plans move tiles only."""

    def __init__(self, moves: Sequence[RankMove]) -> None:
        self._moves = moves
        self._launches = [self._launch(k) for k in range(max((len(move.plan.stages) for move in moves), default=0))]

    def _launch(self, number: int) -> _Launch:
        """The messages and copies of the stages of a number."""
        launch = _Launch({}, {}, [])
        for k, move in enumerate(self._moves):
            memory = move.memory
            for stage in move.plan.stages[number : number + 1]:
                ends = (launch.sends, stage.sends, stage.source), (launch.receives, stage.receives, stage.target())
                for side, boxes_of, tile in ends:
                    receives = side is launch.receives
                    for peer, boxes in by_device(boxes_of):
                        message = Message(boxes, tile, stage.itemsize, memory, receives, aside=True)
                        parts, start = side.get(peer, ([], 0))
                        parts.append(_Part(k, stage, message, start))
                        side[peer] = parts, -(-(start + message.count * memory.word) // _ALIGNED) * _ALIGNED
                launch.copies.extend((k, stage, memory.copy(*copy)) for copy in stage.local_copies())
        return launch

    def run(
        self, memories: Sequence[Mapping[Name, Buffer]], empty: Callable[[int], Buffer], messages: Messages
    ) -> Iterator[Pending]:
        """Run all moves; yields what to wait for.

        Args:
            memories: of each move the buffers of the source, of the target and between them, by name.
            empty: a new buffer of so many bytes.
            messages: those of this rank.
        """
        for launch in self._launches:
            yield from self._run(launch, memories, empty, messages)
        for move, memory in zip(self._moves, memories, strict=True):
            move.copy_last(memory)

    def _run(
        self,
        launch: _Launch,
        memories: Sequence[Mapping[Name, Buffer]],
        empty: Callable[[int], Buffer],
        messages: Messages,
    ) -> Iterator[Pending]:
        sends, receives = (
            {peer: empty(nbytes) for peer, (_, nbytes) in side.items()} for side in (launch.sends, launch.receives)
        )
        for peer, (parts, _) in launch.sends.items():
            for part in parts:
                part.message.run_copies(memories[part.move][part.stage.reads], self._words(part, sends[peer]))
        pending = messages.start(list(sends.items()), list(receives.items()))
        for k, stage, copy in launch.copies:
            copy(memories[k][stage.reads], memories[k][stage.writes])
        yield from pending
        for peer, (parts, _) in launch.receives.items():
            for part in parts:
                part.message.run_copies(self._words(part, receives[peer]), memories[part.move][part.stage.writes])

    def _words(self, part: _Part, buffer: Buffer) -> Buffer:
        """The words of a part of a message."""
        return self._moves[part.move].memory.words(buffer, part.start, part.message.count)
