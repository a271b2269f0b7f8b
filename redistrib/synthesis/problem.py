"""The problem of one synthesis, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from redistrib.plans.memory import peak_bytes
from redistrib.plans.steps import Step
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology
from redistrib.theory.weak import WeakSpace, nested


@dataclass(frozen=True)
class Problem:
    """Source and target placement, on devices of a topology, within a memory limit.

    Attributes:
        before, after: source and target placements.
        itemsize: bytes per element.
        topology: of the devices.
        memory_limit: bytes per device for source, target and scratch; None bounds the tiles instead.
    """

    before: Placement
    after: Placement
    itemsize: int
    topology: Topology
    memory_limit: int | None = None

    @classmethod
    def plain(cls, before: Placement, after: Placement, topology: Topology | None = None) -> Problem:
        """A problem with elements of one byte, no memory limit, and by default equal links."""
        return cls(before, after, 1, topology or Topology(before.devices))

    def between(self, before: Placement, after: Placement) -> Problem:
        """The problem between two other placements, with the same topology and limit."""
        return replace(self, before=before, after=after)

    @cached_property
    def everywhere(self) -> bool:
        """Whether every device holds a tile at both ends."""
        return not (self.before.nowhere.any() or self.after.nowhere.any())

    @cached_property
    def uneven(self) -> bool:
        """Whether tiles are of unequal size, at one end or at both."""
        return bool(self.before.cuts or self.after.cuts)

    @cached_property
    def nests(self) -> bool:
        """Whether every device holds a tile at both ends, tiles have one size, and the grids are nested."""
        return self.everywhere and not self.uneven and nested(self.before.grid, self.after.grid)

    @cached_property
    def bound(self) -> int:
        """The paper's bound on tiles, in elements: the larger of source and target tile."""
        return max(self.before.tile_size, self.after.tile_size)

    @cached_property
    def space(self) -> WeakSpace:
        """The weak types within the paper's bound on tiles."""
        return WeakSpace(self.before.shape, self.before.devices, self.bound)

    def fits(self, steps: Sequence[Step]) -> bool:
        """Whether the steps fit the memory limit, or without a limit the paper's bound on tiles."""
        if self.memory_limit is None:
            return all(step.after.tile_size <= self.bound for step in steps)
        return self.peak(steps) <= self.memory_limit

    def peak(self, steps: Sequence[Step]) -> int:
        """Predicted bytes per device."""
        return peak_bytes(
            steps, self.before.tile_size, self.after.tile_size, self.itemsize, self.memory_limit is not None
        )
