"""Equations of a jaxpr that is called again, as that of repeated layers: they become what they became at first."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redistrib.programs.ir.record import Joins, Positions
from redistrib.programs.rules.equation import Atom, Equation
from redistrib.programs.rules.nests import Derived


class Seen(NamedTuple):
    """An equation that has become one operation on its operands.

    Attributes:
        eqn: the equation; while it is here, no other has its `id`.
        parts: devices that reductions could be cut over.
        equation, derived: what it became.
    """

    eqn: Any
    parts: int
    equation: Equation
    derived: Derived


@dataclass
class Repeated:
    """Equations that became one operation each, by `id`."""

    seen: dict[int, Seen] = field(default_factory=dict)

    def note(self, eqn: Any, parts: int, equation: Equation, derived: Derived) -> None:
        """Remember an equation that became one operation by a rule of the library, its operands without bounds."""
        record = equation.record
        is_other = record.joins is not Joins.NONE or record.positions is Positions.LOOKED_UP
        if not (eqn.effects or is_other or eqn.primitive.name == "add_any"):  # by what makes the operands
            self.seen[id(eqn)] = Seen(eqn, parts, equation, derived)

    def find(self, eqn: Any, parts: int, ins: Sequence[Atom], bounded: Container[str]) -> Seen | None:
        """What an equation became; None if it is new, or may become something else with these operands.

        Args:
            eqn: the equation.
            parts: devices that reductions may be cut over.
            ins: its operands.
            bounded: names of values that have bounds.
        """
        seen = self.seen.get(id(eqn))
        if seen is None or seen.parts != parts:
            return None
        for atom in ins:
            if not isinstance(atom, str) or atom in bounded:
                return None
        return seen
