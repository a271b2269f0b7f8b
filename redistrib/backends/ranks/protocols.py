"""What a library of processes gives to the executor: a wire between ranks, and memory for tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from redistrib.backends.stages import Stage
from redistrib.lang.notation import Reduction
from redistrib.plans.step import GroupStep
from redistrib.plans.steps import AllReduce
from redistrib.plans.strided import Strided
from redistrib.theory.boxes import Box

Buffer: TypeAlias = Any  # a flat array of words of a library; its slices are parts of it
Tile: TypeAlias = Any  # a box of a buffer as an array of its element type
Copy: TypeAlias = Callable[[Buffer, Buffer], object]  # from the first buffer into the second
View: TypeAlias = Callable[[Buffer], Tile]  # from a buffer to the box that lies at a certain place in it
Lengths: TypeAlias = Sequence[tuple[int, int]]  # (other device, words of its message), devices ascending


class Pending(Protocol):
    """A part of a call that is under way."""

    def wait(self) -> object:
        """Return when it is done."""


@dataclass(frozen=True)
class WireCall:
    """A call of a wire, made ready once by all ranks together and started any number of times.

    Attributes:
        name: of the transport, in reports.
        start: begins the call, from the buffers that are sent and those that are received into; returns what to wait
            for before either is used again.
        joined: whether the messages of each side lie end to end in one buffer; otherwise each has a buffer.
        in_place: of a collective: whether it sends from the memory that it receives into.
    """

    name: str
    start: Callable[[Sequence[Buffer], Sequence[Buffer]], Sequence[Pending]]
    joined: bool = True
    in_place: bool = False


class Wire(Protocol):
    """The messages of one rank. All ranks make the same calls ready in the same order."""

    def exchange(self, stage: Stage, sends: Lengths, receives: Lengths) -> WireCall:
        """One message to and from each device that shares data with this one."""

    def collective(self, stage: Stage, in_place: bool) -> WireCall | None:
        """The collective of the platform that carries out a stage over groups, one buffer on each side.

        Args:
            stage: the stage.
            in_place: whether the block of this device lies where the others are received around it.

        Returns:
            The call; None where messages serve better, or the platform has no such collective.
        """

    def members(self, step: GroupStep) -> list[int]:
        """The group of this device, in the order of the blocks of a collective."""

    def scatter_and_gather(self, stage: Stage, step: AllReduce) -> tuple[WireCall, WireCall]:
        """The calls around a reduction in parts.

        In the first every member of a group gets its part of all members' tiles, end to end in the order of the group.
        In the second every member gets all parts of a tile, in place: it sends its own part of the buffer it receives
        into.
        """


class Messages(Protocol):
    """Messages of any lengths between ranks, each in a buffer of bytes of its own."""

    def start(self, sends: Sequence[tuple[int, Buffer]], receives: Sequence[tuple[int, Buffer]]) -> Sequence[Pending]:
        """Begin to send to devices, and to receive from devices; returns what to wait for."""


class Total(Protocol):
    """A tile that adds up boxes; see `plans.reduction.Accumulator`."""

    def add(self, offset: Sequence[int], part: Tile) -> None: ...

    def result(self) -> Tile: ...


class RankMemory(Protocol):
    """Flat buffers of words for tiles of one element type.

    Attributes:
        word: bytes of a word.
    """

    word: int

    def empty(self, words: int, like: Buffer) -> Buffer:
        """A buffer beside another one."""

    def words(self, buffer: Buffer, first: int, count: int) -> Buffer:
        """So many words in a buffer of bytes, from byte `first` on."""

    def copy(self, source: Strided, target: Strided) -> Copy:
        """The copy between runs of two buffers."""

    def view(self, tile: Box, box: Box, first: int = 0) -> View:
        """The view of a box of the tile that lies in a buffer from word `first` on."""

    def total(self, reduction: Reduction, accumulate: str | None, into: Tile) -> Total:
        """The reduction of boxes of a tile into it; `accumulate` is the element type to add in, None for its own."""
