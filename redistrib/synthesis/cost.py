"""What a step costs: one abstract `CostModel` and its models.

A model prices two things: a weak edge, before device groups are known (used by the search, so it must never
exceed the price of a step that realises the edge), and a lowered step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import floordiv
from typing import ClassVar, Literal

from redistrib.errors import PartialTypeError, UnknownCostModelError
from redistrib.lang.mesh import Mesh
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.theory.semantics import Int64
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace


@dataclass(frozen=True)
class Outline:
    """Slice, exchange, gather, before placements are chosen.

    Attributes:
        before, cut, part, after: grids before, between and after the phases; equal where a phase has nothing to do.
        way: how the exchange is made where one collective cannot: in rounds, or by an all-to-all and a permute in
            either order. "any" leaves that open.
    """

    before: Grid
    cut: Grid
    part: Grid
    after: Grid
    way: Literal["any", "rounds", "permute"] = "any"

    @property
    def direct(self) -> bool:
        """Whether neither a slice comes before the exchange nor a gather after it."""
        return self.cut == self.before and self.part == self.after

    def by(self, way: Literal["rounds", "permute"]) -> Outline:
        """The same phases, the exchange made in this way."""
        return Outline(self.before, self.cut, self.part, self.after, way)

    @cached_property
    def chunks(self) -> int:
        """Source tiles, at least, that one target tile of the exchange touches."""
        return math.prod(-(-c // p) for c, p in zip(self.cut, self.part, strict=True))

    @cached_property
    def collectives(self) -> int:
        """Collectives that no steps of this outline go below."""
        ways = {"any": int(self.chunks > 1), "rounds": max(1, self.chunks - 1), "permute": 2}
        return ways[self.way] + (self.part != self.after)

    def held(self, space: WeakSpace) -> int:
        """Elements of its exchanged tile, at most, that a device holds: a box as long as the shorter of two tiles."""
        return math.prod(map(floordiv, space.shape, map(max, self.cut, self.part)))


class CostModel(ABC):
    """A price for weak edges and for steps.

    Attributes:
        name: how the model is asked for and recorded in plans.
        unit: unit of its prices, "elements" or "seconds".
        normal_forms_suffice: whether some cheapest weak sequence is in normal form (Lemma 6.5). False once a
            collective has a latency.
        one_call: whether plans are for a backend that carries a whole exchange in one call, as a ragged all-to-all or
            MPI's Alltoallw does, and not in rounds.
    """

    name: str
    unit: ClassVar[str]
    normal_forms_suffice: ClassVar[bool]
    one_call: bool = False

    @abstractmethod
    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        """Price of a weak edge; at most the price of any step that realises it."""

    @abstractmethod
    def step(self, step: Step, itemsize: int) -> float:
        """Price of a lowered step on elements of `itemsize` bytes."""

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        """A price that a permute anywhere on a path of grids cannot go below."""
        return 0.0

    def reseat(self, space: WeakSpace, grid: Grid) -> float:
        """Price of a permute on a grid that takes tiles to other hosts."""
        return 0.0

    def rest_at_least(self, space: WeakSpace, grid: Grid, target: Grid) -> float:
        """A price that no sequence of weak collectives from `grid` to `target`, in any order, goes below."""
        return 0.0

    def outline_at_least(self, space: WeakSpace, outline: Outline) -> float:
        """A price that no steps of this outline go below."""
        return 0.0

    def on(self, mesh: Mesh) -> CostModel:
        """This model for devices that form a given mesh; itself unless it prices mesh axes apart."""
        return self

    def for_items(self, itemsize: int) -> CostModel:
        """This model with edges priced for elements of `itemsize` bytes; until then they are priced for one byte."""
        return self

    def hosts(self, devices: int) -> Int64 | None:
        """`[devices]` host numbers where links between hosts are slower than inside; None where all are alike."""
        return None

    def total(self, steps: Sequence[Step], itemsize: int) -> float:
        """Price of a sequence of steps."""
        return sum(self.step(step, itemsize) for step in steps)

    def key(self, steps: Sequence[Step], itemsize: int) -> tuple[float, ...]:
        """What plans are compared by: the price, then collectives, then elements received, then steps."""
        return (
            self.total(steps, itemsize),
            sum(step.collectives for step in steps),
            sum(step.received_total() for step in steps),
            len(steps),
        )


@dataclass(frozen=True)
class PaperCost(CostModel):
    """Elements per device, without the (n-1)/n of what stays at home (Figure 11)."""

    name: str = "paper"
    unit: ClassVar[str] = "elements"
    normal_forms_suffice: ClassVar[bool] = True

    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        if edge.kind == "dynslice":
            return 0
        return space.local_size(edge.target)

    def step(self, step: Step, itemsize: int) -> float:
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
                raise PartialTypeError(f"the cost model {self.name}", f"a {step.kind}")

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        return min(space.local_size(grid) for grid in grids)


@dataclass(frozen=True)
class ExactCost(CostModel):
    """Elements received from other devices, summed over the devices; exact integers."""

    name: str = "exact"
    unit: ClassVar[str] = "elements"
    normal_forms_suffice: ClassVar[bool] = True

    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        if edge.kind == "dynslice":
            return 0
        after = space.local_size(edge.target)
        return space.devices * (after - after // edge.factor)

    def step(self, step: Step, itemsize: int) -> float:
        return step.received_total()

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        return 2 * min(space.local_size(grid) for grid in grids)  # what one device gives up another one takes

    def outline_at_least(self, space: WeakSpace, outline: Outline) -> float:
        part, after = space.local_size(outline.part), space.local_size(outline.after)
        return space.devices * (after - part + part - outline.held(space))


MODELS: dict[str, CostModel] = {"paper": PaperCost(), "exact": ExactCost()}


def cost_model(model: CostModel | str) -> CostModel:
    """A cost model from itself or from its name.

    Raises:
        UnknownCostModelError: if no model has that name.
    """
    if isinstance(model, CostModel):
        return model
    if isinstance(model, str):
        from redistrib.synthesis.presets import PRESETS

        known = {**MODELS, **PRESETS}
        if model in known:
            return known[model]
        raise UnknownCostModelError(model, tuple(known))
    raise UnknownCostModelError(model, tuple(MODELS))
