"""Corruptions of plans: a correct plan, changed in one place, and the error that must say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redistrib.plans.plan import Plan
from redistrib.plans.steps import Exchange
from redistrib.theory.placement import Placement
from tests.plans.columns import columns_of, table_of
from tests.plans.hand import GOOD, place


@dataclass(frozen=True)
class Corruption:
    """A broken plan and how it must be refused.

    Attributes:
        name: what was done to it.
        make: builds the broken plan.
        rule: the rule that the error must name.
        step, device: what the error must say about the place.
        message: the whole message.
        bound: passed to `verify`.
    """

    name: str
    make: Callable[[], Plan]
    rule: str
    step: int | None
    device: int | None
    message: str
    bound: int | None = None


def with_step(name: str, number: int, **changes: Any) -> Plan:
    """A correct plan, one step of which is changed."""
    made = GOOD[name]()
    steps = list(made.steps)
    steps[number - 1] = replace(steps[number - 1], **changes)
    return replace(made, steps=tuple(steps))


def with_share(name: str, row: int, **changes: Any) -> Plan:
    """A correct plan of one exchange, one share of which is changed."""
    made = GOOD[name]()
    step = made.steps[0]
    assert isinstance(step, Exchange)
    columns = columns_of(step.shares)
    for column, value in changes.items():
        columns[column][row] = value
    return replace(made, steps=(replace(step, shares=table_of(**columns)),))


def without_share(name: str, row: int) -> Plan:
    made = GOOD[name]()
    step = made.steps[0]
    assert isinstance(step, Exchange)
    left = np.delete(np.arange(len(step.shares)), row)
    return replace(made, steps=(replace(step, shares=step.shares[left]),))


def forged(placement: Placement, **changes: Any) -> Placement:
    """A placement that its constructor would refuse."""
    made = object.__new__(Placement)
    for name in ("shape", "grid", "index", "cuts"):
        value = changes.get(name, getattr(placement, name))
        object.__setattr__(made, name, np.array(value) if name == "index" else value)
    return made


def moved(placement: Placement, device: int, index: Sequence[int]) -> Placement:
    """The placement with another tile on one device."""
    table = placement.index.copy()
    table[device] = index
    return Placement(placement.shape, placement.grid, table)


def with_after(name: str, device: int, index: Sequence[int]) -> Plan:
    """A correct plan whose last step ends with another tile on one device."""
    made = GOOD[name]()
    return with_step(name, len(made.steps), after=moved(made.steps[-1].after, device, index))


def gather_4() -> tuple[Placement, Placement]:
    """Before and after a gather by 4."""
    return place("[2{x}8, 4]", "x=4"), place("[8, 4]", "x=4")
