"""The paper's cost model (Figure 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from redistrib.cost.model import CostModel, Prices
from redistrib.errors import PlanFormError
from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Step,
    Unreduce,
)
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace


@dataclass(frozen=True)
class PaperCost(CostModel):
    """Elements per device, without the factor (n-1)/n for retained elements (Figure 11).

    The paper has no reductions. They have the prices of collectives of equal volume: a reduce-scatter that of an
    all-to-all, an all-reduce that of an all-to-all and an all-gather.
    """

    name: str = "paper"
    unit: ClassVar[str] = "elements"
    normal_forms_suffice: ClassVar[bool] = True

    def prices(self, itemsize: int, topology: Topology) -> Prices:
        return _PaperPrices(self, itemsize, topology)


class _PaperPrices(Prices):
    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        return 0 if edge.kind == "dynslice" else space.local_size(edge.target)

    def step(self, step: Step) -> float:
        match step:
            case DynSlice() | Unreduce():
                return 0
            case AllGather() | AllToAll():
                return step.after.tile_size
            case AllPermute() | ReduceScatter():
                return step.before.tile_size
            case AllReduce():
                return 2 * step.before.tile_size
            case Exchange() | ReduceExchange():
                return sum(step.round_sizes())
        raise PlanFormError(f"the model paper has no price for a step {step.kind}")

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        return min(space.local_size(grid) for grid in grids)
