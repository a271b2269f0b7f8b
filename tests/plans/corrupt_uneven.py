"""Plans over tiles of unequal size, changed in one place: what must be said of them."""

from __future__ import annotations

from dataclasses import replace

from redistrib.plans.plan import Plan
from redistrib.plans.steps import DynSlice, Exchange
from tests.plans.corrupt import Corruption, forged
from tests.plans.hand import place, plan, shares

ROWS, COLUMNS, WHOLE = "[2~{x}3, 2]", "[3, 1{x}2]", "[3, 2]"


def good() -> Plan:
    """Rows of two and of one to columns."""
    return plan(ROWS, COLUMNS, "x=2", _crossed((0, 1, 0, [0, 1], [2, 1]), (1, 0, 0, [2, 0], [1, 1])))


def _crossed(*rows: tuple[int, int, int, list[int], list[int]]) -> Exchange:
    return Exchange(place(ROWS, "x=2"), place(COLUMNS, "x=2"), shares(*rows))


def _cut_at(*points: int) -> Plan:
    made = good()
    (step,) = made.steps
    return replace(made, steps=(replace(step, before=forged(step.before, cuts=(points, None))),))


UNEVEN_CORRUPTIONS = [
    Corruption(
        "a slice of unequal tiles",
        lambda: plan(WHOLE, ROWS, "x=2", DynSlice(place(WHOLE, "x=2"), place(ROWS, "x=2"))),
        "uneven step",
        1,
        None,
        "step 1 is a step dynslice on tiles of unequal size, which move by exchanges; make it one",
    ),
    Corruption(
        "a share longer than the tile of its sender",
        lambda: plan(ROWS, COLUMNS, "x=2", _crossed((0, 1, 0, [0, 1], [2, 1]), (1, 0, 0, [2, 0], [2, 1]))),
        "share not held",
        1,
        1,
        "step 1 (exchange) has device 1 send [2:4, 0:1], but it holds [2:3, 0:2]",
    ),
    Corruption(
        "a share shorter than what is lacking",
        lambda: plan(ROWS, COLUMNS, "x=2", _crossed((0, 1, 0, [0, 1], [1, 1]), (1, 0, 0, [2, 0], [1, 1]))),
        "uncovered tile",
        1,
        1,
        "step 1 (exchange) fills only 2 of the 3 elements [0:3, 1:2] of device 1; what it keeps and what it receives "
        "must fill its tile",
    ),
    Corruption(
        "a share of what its receiver holds",
        lambda: plan(
            ROWS,
            COLUMNS,
            "x=2",
            _crossed((0, 1, 0, [0, 1], [2, 1]), (1, 0, 0, [2, 0], [1, 1]), (0, 1, 1, [1, 1], [1, 1])),
        ),
        "overlapping shares",
        1,
        1,
        "step 1 (exchange) fills [1:2, 1:2] of device 1 twice: device 0 sends [0:2, 1:2] and device 0 sends [1:2, 1:2]",
    ),
    Corruption(
        "a cut in another place",
        lambda: _cut_at(0, 1, 3),
        "wrong start",
        1,
        0,
        "step 1 starts with device 0 holding [0:1, 0:2], where the source gives it [0:2, 0:2]",
    ),
]
