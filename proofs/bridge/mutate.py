"""Seeded changes to a plan's JSON form: those that break it, and those that must not matter.

A change meant to break a plan now and then makes another correct plan; so nothing here says what the verdict must
be, only `HARMLESS` changes keep a correct plan correct.
"""

from __future__ import annotations

import copy
import random

from proofs.bridge import break_moves, break_plans, break_sets, break_summands, harmless
from proofs.bridge.change import BREAKING, HARMLESS, Change
from proofs.bridge.export import Form

__all__ = [
    "BREAKING",
    "HARMLESS",
    "Change",
    "break_moves",
    "break_plans",
    "break_sets",
    "break_summands",
    "changed",
    "harmless",
]


def changed(change: Change, rng: random.Random, form: Form) -> Form | None:
    """The changed form; None where the change does not apply or changes nothing."""
    made = copy.deepcopy(form)
    return made if change(rng, made) and made != form else None
