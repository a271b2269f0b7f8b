"""The paper's cost model (Figure 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from redistrib.cost.model import CostModel, Prices
from redistrib.errors import PartialTypeError
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace


@dataclass(frozen=True)
class PaperCost(CostModel):
    """Elements per device, without the (n-1)/n of what stays at home (Figure 11)."""

    name: str = "paper"
    unit: ClassVar[str] = "elements"
    normal_forms_suffice: ClassVar[bool] = True

    def edge(self, edge: WeakEdge, space: WeakSpace, itemsize: int, topology: Topology) -> float:
        return 0 if edge.kind == "dynslice" else space.local_size(edge.target)

    def step(self, step: Step, itemsize: int, topology: Topology) -> float:
        match step:
            case DynSlice():
                return 0
            case AllGather() | AllToAll():
                return step.after.tile_size
            case AllPermute():
                return step.before.tile_size
            case Exchange():
                return sum(step.round_sizes())
            case _:
                raise PartialTypeError(f"the cost model {self.name}", f"the step {step.kind}")

    def _prices(self, itemsize: int, topology: Topology) -> Prices:
        return _PaperPrices(self, itemsize, topology)


class _PaperPrices(Prices):
    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        return min(space.local_size(grid) for grid in grids)
