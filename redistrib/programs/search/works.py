"""The computations, moves and buffers of a schedule, and how far they run beside each other: the terms of `overlap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from redistrib.programs.ir.loops import INNER, Edge
from redistrib.programs.lower.shifts import Shift
from redistrib.programs.schedule.overlap import Overlap


class ShiftedMove(NamedTuple):
    """A move that a step of a loop may make ahead, or behind.

    Attributes:
        shift: which of the two.
        name: of what is moved.
        dtype: its element type.
        sizes: bytes of what is like `STACK`, `BEFORE` and `AFTER`.
    """

    shift: Shift
    name: str
    dtype: str
    sizes: Sequence[int]

    def size(self, array: str) -> int:
        """Bytes of an array of the description."""
        return self.sizes[self.shift.forms[array]]


class PricedWork(NamedTuple):
    """A computation of a walk, or a move.

    Attributes:
        number: of the operation, or of the one that it is moved for.
        phase: 0 before that operation, 1 the operation itself, 2 after it.
        scope: the loop in whose steps it runs, by number.
        seconds: once.
        reads: numbers of the works that make its operands; `leaving(loop)` for the results of a loop.
        moves: whether it is a move.
        taken, freed: bytes of the results of a move, and of its operands if it is their last reader.
        shifted: of a move that a step may make ahead or behind what that takes; None for all else.
        scratch: bytes that it needs while it runs.
    """

    number: int
    phase: int
    scope: int | None
    seconds: float
    reads: tuple[int, ...]
    moves: bool = False
    taken: int = 0
    freed: int = 0
    shifted: ShiftedMove | None = None
    scratch: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Sorts works as the program has them."""
        return self.number, self.phase


class WorkBuffer(NamedTuple):
    """Bytes of a device that hold a value, from the start of its maker until all its readers are done.

    Attributes:
        size: bytes.
        scope: the loop in whose steps they are held, by number; None for none.
        makers: works that make it, `leaving(loop)` for a result of a loop; empty for a value that is there before.
        readers: works that read it.
        begins: loops whose carried values take the bytes when they begin.
        stays: whether it is held to the end, of the program or of a step.
        edge: of a loop, for the values that its steps begin with; it holds what it carries all the while.
        copies: of an input that stands for those of several layers their number.
    """

    size: int
    scope: int | None
    makers: tuple[int, ...]
    readers: tuple[int, ...]
    begins: tuple[int, ...] = ()
    stays: bool = False
    edge: Edge = INNER
    copies: int = 1


class Beside(NamedTuple):
    """The two streams of a schedule.

    Attributes:
        overlap: how far moves run beside computations.
        seconds: until both are done.
        peak: finds the bytes that a device holds at the worst moment, and the operation that runs then, by number.
    """

    overlap: Overlap
    seconds: float
    peak: Callable[[], tuple[int, int]]


def leaving(loop: int) -> int:
    """The number under which works read the results of a loop."""
    return -2 - loop


def loop_of(read: int) -> int:
    """The loop whose results are read under a number."""
    return -2 - read
