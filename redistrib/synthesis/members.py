"""A subset of the devices of a problem, numbered from 0, and the plans on this subset alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redistrib.plans.step import Step
from redistrib.theory.placement import Int64, Placement
from redistrib.theory.topology import Topology


@dataclass(frozen=True, eq=False)
class Members:
    """A subset of the devices.

    Attributes:
        devices: their numbers, ascending; member k is device `devices[k]`.
        count: number of all devices.
    """

    devices: Int64
    count: int

    @classmethod
    def of(cls, placement: Placement) -> Members:
        """The devices that hold a tile."""
        return cls(placement.holders, placement.devices)

    def alone(self, placement: Placement) -> Placement:
        """The tiles of the members, by member."""
        return Placement.unchecked(placement.shape, placement.grid, placement.index[self.devices], placement.cuts)

    def among_all(self, placement: Placement) -> Placement:
        """The tiles of the members, by device; the other devices hold no tile."""
        index = np.full((self.count, placement.rank), -1, dtype=np.int64)
        index[self.devices] = placement.index
        return Placement.unchecked(placement.shape, placement.grid, index, placement.cuts)

    def topology(self, topology: Topology) -> Topology:
        """The links between the members."""
        return topology.subset(self.devices.tolist())

    def steps(self, steps: Sequence[Step]) -> list[Step]:
        """Steps among the members as steps among all devices."""
        return [self._step(step) for step in steps]

    def _step(self, step: Step) -> Step:
        return step.placed(self.among_all(step.before), self.among_all(step.after), number=self.devices)
