"""The messages of one side of a call: boxes end to end, in the tile itself where they lie so, else in staging memory.

Nothing at all lies in the tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.backends.ranks.protocols import Buffer, Copy, RankMemory
from redistrib.plans.strided import runs_in, runs_in_both, start_if_contiguous
from redistrib.theory.boxes import Box


class Message:
    """Boxes that travel together.

    Attributes:
        count: words.
        start: first word in the tile, if the boxes lie end to end there; None if they are in staging memory.
        in_staging: words of staging memory.
    """

    def __init__(
        self, boxes: Sequence[Box], tile: Box, itemsize: int, memory: RankMemory, receives: bool, aside: bool = False
    ) -> None:
        """`aside`: whether the boxes go through staging memory in any case."""
        self.count = sum(box.volume for box in boxes) * itemsize // memory.word
        first = start_if_contiguous([runs_in(box, tile, itemsize) for box in boxes]) if self.count else 0
        self.start = None if aside or first is None else first // memory.word
        self.in_staging = self.count if self.start is None else 0
        self.copies: list[Copy] = []
        at = 0
        for box in boxes if self.in_staging else ():
            in_tile, in_stage = runs_in_both(box, tile, box, itemsize, 0, at)
            self.copies.append(memory.copy(in_stage, in_tile) if receives else memory.copy(in_tile, in_stage))
            at += box.volume * itemsize

    def run_copies(self, source: Buffer, target: Buffer) -> None:
        """Pack the boxes of a tile into staging memory, or unpack them."""
        for copy in self.copies:
            copy(source, target)


class MessageSide:
    """The messages of one side, each with its place: in the tile, or from a certain word of staging memory on.

    Attributes:
        in_staging: words of staging memory.
    """

    def __init__(self, messages: Sequence[Message], at: int = 0) -> None:
        """`at` is the first word of staging memory that is theirs."""
        self._places: list[tuple[bool, slice]] = []
        self._copying: list[tuple[int, list[Copy]]] = []
        self.in_staging = sum(message.in_staging for message in messages)
        for k, message in enumerate(messages):
            first = at if message.start is None else message.start
            self._places.append((message.start is None, slice(first, first + message.count)))
            at += message.in_staging
            if message.copies:
                self._copying.append((k, message.copies))

    def places(self, tile: Buffer, staging: Buffer) -> list[Buffer]:
        """The buffers of the messages."""
        return [staging[words] if is_in_staging else tile[words] for is_in_staging, words in self._places]

    def pack(self, tile: Buffer, places: Sequence[Buffer]) -> None:
        """Copy the boxes that go through staging memory out of the tile."""
        for k, copies in self._copying:
            for copy in copies:
                copy(tile, places[k])

    def unpack(self, places: Sequence[Buffer], tile: Buffer) -> None:
        """Copy the boxes that go through staging memory into the tile."""
        for k, copies in self._copying:
            for copy in copies:
                copy(places[k], tile)
