"""Diagnostics of the checks of a plan: the first device at fault, and descriptions of its tile."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from redistrib.errors import VerificationError
from redistrib.plans.steps import Step
from redistrib.theory.placement import Int64, Placement


def first(wrong: npt.ArrayLike) -> int:
    """Position of the first True."""
    return int(np.argmax(wrong))


def row(index: Int64) -> tuple[int, ...]:
    """One row of a table as a tuple of integers."""
    return tuple(int(i) for i in index)


def box(start: Any, size: Any) -> str:
    """A box of elements in the notation of slices: `[0:3, 4:8]`."""
    return "[" + ", ".join(f"{int(a)}:{int(a) + int(n)}" for a, n in zip(start, size, strict=True)) + "]"


def describe(placement: Placement, device: int) -> str:
    """The box that a device holds, and the number of its partial sum, as text."""
    if placement.nowhere[device]:
        return "nothing"
    tile = box(placement.boxes.start[device], placement.boxes.size[device])
    if placement.summands == 1:
        return tile
    return f"partial sum {placement.label[device]} of {placement.summands} ({placement.reduction}) of {tile}"


def check_numbers(step: int, kind: str, subject: str, devices: Int64, count: int) -> None:
    """Raise unless all numbers are device numbers."""
    if devices.size and (devices.min() < 0 or devices.max() >= count):
        device = int(devices[first((devices < 0) | (devices >= count))])
        raise VerificationError(
            "device number",
            f"step {step} ({kind}) names device {device} in {subject}; the devices are 0 to {count - 1}",
            step,
            device,
            count=count,
        )


def check_holds(step: int, move: Step, devices: Int64) -> None:
    """Raise unless all devices hold a tile before the step; the numbers are valid device numbers."""
    empty = move.before.nowhere[devices]
    if empty.any():
        device = int(devices[first(empty)])
        raise VerificationError(
            "nothing held",
            f"step {step} ({move.kind}) has device {device} send its tile, but it holds nothing; leave it out",
            step,
            device,
        )


def fail_grids(number: int, step: Step, rule: str, why: str) -> NoReturn:
    """Refuse a step because of its grids."""
    before, after = step.before.grid, step.after.grid
    message = f"step {number} ({step.kind}) goes from the grid {before} to {after}; {why}"
    raise VerificationError(rule, message, number, before=before, after=after)
