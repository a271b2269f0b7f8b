"""The computations and moves of a schedule, and how far they run beside each other: the terms of `overlap`."""

from __future__ import annotations

from typing import NamedTuple


class WalkTask(NamedTuple):
    """A computation of a walk, or a move.

    Attributes:
        number: of the operation, or of the one that it is moved for.
        phase: 0 before that operation, 1 the operation itself, 2 after it.
        scope: the loop in whose steps it runs, by number.
        seconds: once.
        reads: numbers of the works that make its operands; `leaving(loop)` for the results of a loop.
        moves: whether it is a move.
        taken, freed: bytes of the results of a move, with its scratch, and of its operands if it is their last reader.
        entry: of a move of an entry of an array: the entry's name, bytes and element type of the array's tile; None for
            all else.
        result: of a move of a stacked result that its step does not read: the result's name, its bytes before and after
            the move, and its element type; None for all else.
    """

    number: int
    phase: int
    scope: int | None
    seconds: float
    reads: tuple[int, ...]
    moves: bool = False
    taken: int = 0
    freed: int = 0
    entry: tuple[str, int, str] | None = None
    result: tuple[str, int, int, str] | None = None


class Overlap(NamedTuple):
    """How far moves run beside computations.

    Attributes:
        window: computations by which a move that takes memory is issued early; None for any number.
        ahead: entries, by name, that steps of loops gather for the next step.
        behind: stacked results, by name, that steps of loops move for the step before.
    """

    window: int | None
    ahead: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


class Beside(NamedTuple):
    """The two streams of a schedule.

    Attributes:
        overlap: how far moves run beside computations.
        seconds: until both are done.
        held: stretches of operations during which more is held than one after the other: first, last, bytes.
    """

    overlap: Overlap
    seconds: float
    held: tuple[tuple[int, int, int], ...]


def leaving(loop: int) -> int:
    """The number under which works read the results of a loop."""
    return -2 - loop
