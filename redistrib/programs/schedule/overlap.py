"""How far moves run beside computations."""

from __future__ import annotations

from typing import NamedTuple


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
