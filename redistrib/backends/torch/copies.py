"""Copies between boxes of tiles, and messages as the boxes that they carry, on flat tensors of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from redistrib.plans.strided import Strided, runs_in, runs_in_both, start_if_contiguous
from redistrib.theory.boxes import Box


@dataclass(frozen=True)
class Runs:
    """Runs of words in a flat tensor; `plans.strided.Strided` in words instead of bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, runs: Strided, word: int) -> Runs:
        """The runs in words of so many bytes."""
        strides = (*(stride // word for stride in runs.strides), 1)
        return cls((*runs.shape, runs.run // word), strides, runs.offset // word)

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """The runs inside a flat tensor."""
        return flat.as_strided(self.shape, self.strides, flat.storage_offset() + self.offset)


@dataclass(frozen=True)
class Copy:
    """A copy from one flat tensor to another."""

    source: Runs
    target: Runs

    @classmethod
    def of(cls, source: Strided, target: Strided, word: int) -> Copy:
        """The copy between two sets of equally long runs."""
        return cls(Runs.of(source, word), Runs.of(target, word))

    def run(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self.target.view(target).copy_(self.source.view(source))


class Message:
    """The boxes of a message, end to end: in place if they lie so in the tile, else in staging memory.

    Attributes:
        peer: the device that sends or receives it.
        count: number of words.
        start: first word in the tile of a message in place; None for a staged message.
    """

    def __init__(self, peer: int, boxes: Sequence[Box], tile: Box, itemsize: int, word: int) -> None:
        self.peer = peer
        self.count = sum(box.volume for box in boxes) * itemsize // word
        first = start_if_contiguous([runs_in(box, tile, itemsize) for box in boxes])
        self.start = None if first is None else first // word
        self._copies: list[Copy] = []
        at = 0
        for box in boxes:
            self._copies.append(Copy.of(*runs_in_both(box, tile, box, itemsize, 0, at), word))
            at += box.volume * itemsize

    @property
    def staged(self) -> int:
        """Words of staging memory."""
        return self.count if self.start is None else 0

    def place(self, tile: torch.Tensor, staging: torch.Tensor, at: int) -> torch.Tensor:
        """The words of the message: in the tile, or from word `at` of staging memory on."""
        if self.start is None:
            return staging[at : at + self.count]
        return tile[self.start : self.start + self.count]

    def pack(self, tile: torch.Tensor, place: torch.Tensor) -> None:
        """Copy the boxes from the tile into staging memory, if they are not in place."""
        if self.start is None:
            self.pack_into(tile, place)

    def pack_into(self, tile: torch.Tensor, place: torch.Tensor) -> None:
        """Copy the boxes from the tile into other memory."""
        for copy in self._copies:
            copy.run(tile, place)

    def unpack(self, place: torch.Tensor, tile: torch.Tensor) -> None:
        """Copy the boxes from staging memory into the tile, if they are not in place."""
        if self.start is None:
            self.unpack_from(place, tile)

    def unpack_from(self, place: torch.Tensor, tile: torch.Tensor) -> None:
        """Copy the boxes from other memory into the tile."""
        for copy in self._copies:
            copy.source.view(tile).copy_(copy.target.view(place))
