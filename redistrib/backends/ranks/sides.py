"""The messages of one side of a call: boxes end to end, in the tile itself where they lie so, else in staging memory.

Nothing at all lies in the tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.backends.ranks.protocols import Buffer, Copy, Memory
from redistrib.plans.strided import runs_in, runs_in_both, start_if_contiguous
from redistrib.theory.boxes import Box


class Message:
    """Boxes that travel together.

    Attributes:
        count: words.
        staged: words of staging memory: `count`, or 0 where the boxes lie end to end in the tile.
    """

    def __init__(
        self, boxes: Sequence[Box], tile: Box, itemsize: int, memory: Memory, receives: bool, aside: bool = False
    ) -> None:
        """`aside`: whether the boxes are staged in any case."""
        self.count = sum(box.volume for box in boxes) * itemsize // memory.word
        first = start_if_contiguous([runs_in(box, tile, itemsize) for box in boxes]) if self.count else 0
        first = None if aside else first
        self._start = None if first is None else first // memory.word
        self.staged = self.count if first is None else 0
        self._copies: list[Copy] = []
        at = 0
        for box in boxes if self.staged else ():
            in_tile, in_stage = runs_in_both(box, tile, box, itemsize, 0, at)
            self._copies.append(memory.copy(in_stage, in_tile) if receives else memory.copy(in_tile, in_stage))
            at += box.volume * itemsize

    @property
    def in_tile(self) -> bool:
        """Whether the boxes lie end to end in the tile."""
        return self._start is not None

    def place(self, tile: Buffer, staging: Buffer, at: int) -> Buffer:
        """The words of the message: in the tile, or from word `at` of staging memory on."""
        first = at if self._start is None else self._start
        return (staging if self._start is None else tile)[first : first + self.count]

    def run_copies(self, source: Buffer, target: Buffer) -> None:
        """Pack the boxes of a tile into staging memory, or unpack them, if they are staged."""
        for copy in self._copies:
            copy(source, target)


class Side:
    """All messages of one side: one after the other in one buffer, or each in its own.

    Attributes:
        staged: words of staging memory.
    """

    def __init__(
        self,
        peers: Sequence[Sequence[Box]],
        tile: Box,
        itemsize: int,
        memory: Memory,
        receives: bool,
        joined: bool,
        aside: bool = False,
    ) -> None:
        """`peers` are the boxes of each message; the other arguments those of `Message`."""
        groups = [[box for boxes in peers for box in boxes]] if joined else peers
        self.messages = [Message(boxes, tile, itemsize, memory, receives, aside) for boxes in groups]
        self.staged = sum(message.staged for message in self.messages)

    def places(self, tile: Buffer, staging: Buffer, at: int) -> list[Buffer]:
        """The buffers of the messages; those that are staged, from word `at` of staging memory on."""
        places = []
        for message in self.messages:
            places.append(message.place(tile, staging, at))
            at += message.staged
        return places

    def pack(self, tile: Buffer, places: Sequence[Buffer]) -> None:
        """Copy the boxes that are staged out of the tile."""
        for message, place in zip(self.messages, places, strict=True):
            message.run_copies(tile, place)

    def unpack(self, places: Sequence[Buffer], tile: Buffer) -> None:
        """Copy the boxes that are staged into the tile."""
        for message, place in zip(self.messages, places, strict=True):
            message.run_copies(place, tile)
