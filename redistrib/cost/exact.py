"""Elements received, counted exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from redistrib.cost.model import CostModel, PhaseGrids, Prices
from redistrib.plans.steps import Step
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace


@dataclass(frozen=True)
class ExactCost(CostModel):
    """Elements received from other devices, summed over the devices; exact integers."""

    name: str = "exact"
    unit: ClassVar[str] = "elements"
    normal_forms_suffice: ClassVar[bool] = True
    counts_received: ClassVar[bool] = True

    def prices(self, itemsize: int, topology: Topology) -> Prices:
        return _ExactPrices(self, itemsize, topology)


class _ExactPrices(Prices):
    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        if edge.kind == "dynslice":
            return 0
        after = space.local_size(edge.target)
        return space.devices * (after - after // edge.factor)

    def step(self, step: Step) -> float:
        return step.received_total()

    def at_least(self, before: Placement, after: Placement) -> float:
        return least_received(before, after)

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        return 2 * min(
            space.local_size(grid) for grid in grids
        )  # a device that gives up its tile takes another, and so does a second device

    def phases_at_least(self, space: WeakSpace, phases: PhaseGrids) -> float:
        return space.devices * (space.local_size(phases.after) - phases.held(space))
