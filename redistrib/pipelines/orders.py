"""Orders: which microbatch each device of a pipeline works on, forward or backward, and when.

An order is a function of the number of devices, microbatches, and stages on each device; it gives for every device the
units that it runs, one after the other. Stage `s` of a pipeline is on device `s % devices`. `GPIPE`, `ONE_F_ONE_B` and
`INTERLEAVED` are three; any function of this form will do, and `slots` finds out whether its units can run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from redistrib.errors import ProgramError


class Unit(NamedTuple):
    """One stage on one microbatch.

    Attributes:
        stage: number of the stage.
        microbatch: number of the microbatch.
        backward: whether it is the backward pass.
    """

    stage: int
    microbatch: int
    backward: bool = False


Order: TypeAlias = Callable[[int, int, int], list[list[Unit]]]


def gpipe(devices: int, microbatches: int, chunks: int = 1) -> list[list[Unit]]:
    """All microbatches forward, then all of them backward (Huang et al., 2019).

    >>> [f"{'B' if unit.backward else 'F'}{unit.microbatch}" for unit in gpipe(2, 2)[0]]
    ['F0', 'F1', 'B0', 'B1']
    """
    rows = []
    for device in range(devices):
        stages = [device + devices * chunk for chunk in range(chunks)]
        forward = [Unit(stage, m) for stage in stages for m in range(microbatches)]
        backward = [Unit(stage, m, True) for stage in reversed(stages) for m in range(microbatches)]
        rows.append(forward + backward)
    return rows


def one_f_one_b(devices: int, microbatches: int, chunks: int = 1) -> list[list[Unit]]:
    """As soon as a microbatch is through it goes back, in turns with the next one forward (Narayanan et al., 2019).

    >>> [f"{'B' if unit.backward else 'F'}{unit.microbatch}" for unit in one_f_one_b(2, 3)[0]]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    if chunks > 1:
        return interleaved(devices, microbatches, chunks)
    rows = []
    for device in range(devices):
        forward = [Unit(device, m) for m in range(microbatches)]
        backward = [Unit(device, m, True) for m in range(microbatches)]
        rows.append(_in_turns(forward, backward, devices - device - 1))
    return rows


def interleaved(devices: int, microbatches: int, chunks: int) -> list[list[Unit]]:
    """Several stages on every device, each microbatch going round (Narayanan et al., 2021, section 2.2).

    Raises:
        ProgramError: if the devices do not divide the microbatches.
    """
    if microbatches % devices:
        raise ProgramError(
            "", "", "Order", f"{devices} devices take {microbatches} microbatches in turns only if they divide them; "
            f"take a multiple of {devices}, or another order",
        )  # fmt: skip
    rows = []
    for device in range(devices):
        forward, backward = [], []
        for first in range(0, microbatches, devices):
            for chunk in range(chunks):
                group = range(first, first + devices)
                forward += [Unit(device + devices * chunk, m) for m in group]
                backward += [Unit(device + devices * (chunks - 1 - chunk), m, True) for m in group]
        rows.append(_in_turns(forward, backward, 2 * (devices - device - 1) + (chunks - 1) * devices))
    return rows


def _in_turns(forward: list[Unit], backward: list[Unit], ahead: int) -> list[Unit]:
    """So many forward, then one forward and one backward in turns, then the rest backward."""
    ahead = min(ahead, len(forward))
    row = forward[:ahead]
    for k, unit in enumerate(backward):
        row += [*forward[ahead + k : ahead + k + 1], unit]
    return row


def forward_only(rows: Sequence[Sequence[Unit]]) -> list[list[Unit]]:
    """An order without what goes backward, for programs that only go forward."""
    return [[unit for unit in row if not unit.backward] for row in rows]


class Slot(NamedTuple):
    """When a unit runs if every unit takes the time that it is given and moves take none."""

    start: float
    end: float
    unit: Unit


def slots(
    rows: Sequence[Sequence[Unit]],
    needs: Callable[[Unit], Sequence[Unit]],
    seconds: Callable[[Unit], float] = lambda unit: 1.0,
) -> list[Slot]:
    """The units in order of time.

    Args:
        rows: for every device its units, in order.
        needs: of a unit those that must be done before it.
        seconds: how long a unit takes.

    Raises:
        ProgramError: if units wait for each other without end, or for one that no device runs.
    """
    done: dict[Unit, float] = {}
    found: list[Slot] = []
    at, free = [0] * len(rows), [0.0] * len(rows)
    went_on = True
    while went_on:
        went_on = False
        for device, row in enumerate(rows):
            while at[device] < len(row) and all(need in done for need in needs(row[at[device]])):
                unit = row[at[device]]
                start = max([free[device], *(done[need] for need in needs(unit))])
                done[unit] = free[device] = start + seconds(unit)
                found.append(Slot(start, done[unit], unit))
                at[device] += 1
                went_on = True
    stuck = [row[k] for k, row in zip(at, rows, strict=True) if k < len(row)]
    if stuck:
        raise ProgramError(
            "", "", "Order", f"{stuck[0]} waits for units that come after it, or that no device runs; change the order"
        )
    return sorted(found, key=lambda slot: slot.start)
