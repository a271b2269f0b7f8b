"""What one device sends, receives and keeps in one step, read off the placements; nothing here knows MPI."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from redistrib.backends.mpi.layout import Box
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.theory.semantics import Placement


@dataclass(frozen=True)
class Traffic:
    """One device's part in a step.

    Attributes:
        sends, receives: (other device, box) in the order of the step's tables; never empty boxes.
        keeps: the boxes the device already holds of what it must hold afterwards.
    """

    sends: tuple[tuple[int, Box], ...]
    receives: tuple[tuple[int, Box], ...]
    keeps: tuple[Box, ...]

    @property
    def partners(self) -> frozenset[int]:
        """The other devices that take part."""
        return frozenset(device for device, _ in self.sends + self.receives)

    def sent(self) -> int:
        """Elements sent to other devices."""
        return sum(box.volume for _, box in self.sends)

    def received(self) -> int:
        """Elements received from other devices."""
        return sum(box.volume for _, box in self.receives)


def tile_box(placement: Placement, device: int) -> Box:
    """The box of the global array that a device holds."""
    return Box(tuple(int(s) for s in placement.start[device]), tuple(int(n) for n in placement.tile))


def traffic_of(step: Step, device: int) -> Traffic:
    """What a device does in a step.

    Raises:
        TypeError: if the step is of no known kind.
    """
    before, after = tile_box(step.before, device), tile_box(step.after, device)
    if isinstance(step, DynSlice):
        return Traffic((), (), _kept([after]))
    if isinstance(step, AllGather):
        others = [m for m in members(step, device) if m != device]
        return Traffic(
            _moved((m, before) for m in others),
            _moved((m, tile_box(step.before, m)) for m in others),
            _kept([before]),
        )
    if isinstance(step, AllToAll):
        others = [m for m in members(step, device) if m != device]
        return Traffic(
            _moved((m, before.meet(tile_box(step.after, m))) for m in others),
            _moved((m, tile_box(step.before, m).meet(after)) for m in others),
            _kept([before.meet(after)]),
        )
    if isinstance(step, AllPermute):
        pairs = step.pairs
        sends = [(int(to), before) for to in pairs[pairs[:, 0] == device, 1]]
        receives = [(int(of), after) for of in pairs[pairs[:, 1] == device, 0]]
        return Traffic(_moved(sends), _moved(receives), _kept([] if receives else [before]))
    if isinstance(step, Exchange):
        out = np.flatnonzero(step.shares.src == device)
        into = np.flatnonzero(step.shares.dst == device)
        return Traffic(
            _moved((int(step.shares.dst[k]), _share(step, int(k))) for k in out),
            _moved((int(step.shares.src[k]), _share(step, int(k))) for k in into),
            _kept([before.meet(after)]),
        )
    raise TypeError(f"no MPI realisation for a step of kind {type(step).__name__}")


def members(step: AllGather | AllToAll, device: int) -> list[int]:
    """The group of a device, in group order."""
    row = np.flatnonzero((step.groups == device).any(axis=1))
    return [int(m) for m in step.groups[int(row[0])]]


def stays_within(step: Step, host: list[int]) -> bool:
    """Whether no element of a step leaves its host; `host[d]` is the number of device d's host."""
    number = np.array(host)
    if isinstance(step, AllGather | AllToAll):
        hosts = number[step.groups]
        return bool((hosts == hosts[:, :1]).all())
    if isinstance(step, AllPermute):
        return bool((number[step.pairs[:, 0]] == number[step.pairs[:, 1]]).all())
    if isinstance(step, Exchange):
        return bool((number[step.shares.src] == number[step.shares.dst]).all())
    return True


def _share(step: Exchange, k: int) -> Box:
    return Box(tuple(int(s) for s in step.shares.start[k]), tuple(int(n) for n in step.shares.size[k]))


def _moved(moves: Iterable[tuple[int, Box]]) -> tuple[tuple[int, Box], ...]:
    return tuple((device, box) for device, box in moves if box.volume)


def _kept(boxes: list[Box]) -> tuple[Box, ...]:
    return tuple(box for box in boxes if box.volume)
