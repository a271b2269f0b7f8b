"""What a step costs: the abstract `CostModel`, and what a search asks of one.

A cost model is a price list with two prices: that of a lowered step, and that of a weak edge, before device groups are
known. A search also asks for prices that nothing goes below; `Prices` has them, for one element size and one topology.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import floordiv
from typing import ClassVar, Literal, NamedTuple

from redistrib.errors import ProfileError
from redistrib.lang.mesh import Mesh
from redistrib.plans.parts import waves
from redistrib.plans.steps import Step
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace


class CostModel(ABC):
    """A price list for weak edges and for steps: a value, equal to another iff it prices alike.

    A model of one's own needs `edge` and `step`, the attributes below, and to be hashable.

    Attributes:
        name: how the model is asked for and recorded in plans.
        unit: unit of its prices, "elements" or "seconds".
        normal_forms_suffice: whether some cheapest weak sequence is in normal form (Lemma 6.5). False once a
            collective has a latency.
        counts_received: whether prices are the elements received: then the lower bound is reached, and ties are looked
            for, to take the plan of fewest collectives.
        fused_exchange: whether plans are for a backend that carries a whole exchange in one call, as a ragged
            all-to-all or MPI's Alltoallw does, and not in rounds.
    """

    name: str
    unit: ClassVar[str]
    normal_forms_suffice: ClassVar[bool]
    counts_received: ClassVar[bool] = False
    fused_exchange: bool = False

    @abstractmethod
    def edge(self, edge: WeakEdge, space: WeakSpace, itemsize: int, topology: Topology) -> float:
        """Price of a weak edge on elements of `itemsize` bytes; at most that of any step that carries it out."""

    @abstractmethod
    def step(self, step: Step, itemsize: int, topology: Topology) -> float:
        """Price of a lowered step on elements of `itemsize` bytes."""

    def topology(self, mesh: Mesh, known: Topology | None = None) -> Topology:
        """Which links between the devices of a mesh the model tells apart: by default, none.

        Args:
            mesh: the devices.
            known: where they stand, if that is known.
        """
        return Topology(mesh.size)

    def topology_between(self, source: Mesh, target: Mesh, known: Topology | None = None) -> Topology:
        """The same for the devices of two meshes, of which some may be in one only."""
        devices = max(source.span, target.span)
        if source.size == target.size == devices:
            return self.topology(source, known)
        return self.topology_apart(devices, source.devices, known)

    def topology_apart(self, devices: int, source: Collection[int], known: Topology | None = None) -> Topology:
        """The same for so many devices, of which those of the source and those of the target differ."""
        return Topology(devices)

    def in_sequence(self) -> CostModel:
        """The same model for plans of which no two steps go on at once."""
        return self

    def _prices(self, itemsize: int, topology: Topology) -> Prices:
        return Prices(self, itemsize, topology)


class PlanInParts(NamedTuple):
    """A plan in parts.

    Attributes:
        number: how many there are; 1: the plan is carried out whole.
        along: the dimension that is cut into them; None for one.
        price: of the plan.
    """

    number: int
    along: int | None
    price: float


class Prices:
    """The prices of a model for one element size and topology, and bounds on them; what searches ask, and nobody else.

    Every bound holds for any model whose prices are not negative; models that know better say so in a class of their
    own.

    Attributes:
        model: whose prices these are.
        itemsize: bytes per element.
        topology: of the devices.
        links_at_once: on how many kinds of links steps may be at work at once, where plans in parts are priced; no
            plan costs less than the prices of its steps over this.
    """

    links_at_once = 1

    def __init__(self, model: CostModel, itemsize: int, topology: Topology) -> None:
        self.model, self.itemsize, self.topology = model, itemsize, topology

    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        """See `CostModel.edge`."""
        return self.model.edge(edge, space, self.itemsize, self.topology)

    def step(self, step: Step) -> float:
        """See `CostModel.step`."""
        return self.model.step(step, self.itemsize, self.topology)

    def total(self, steps: Sequence[Step]) -> float:
        """Price of a sequence of steps, in as many parts as are best."""
        return self.best_parts(steps).price

    def best_parts(self, steps: Sequence[Step]) -> PlanInParts:
        """In how many parts, along which dimension, a plan of these steps is cheapest, and its price then."""
        return PlanInParts(1, None, sum(map(self.step, steps)))

    def waves(self, part: Sequence[Step], parts: int) -> list[float]:
        """Price of each wave of a plan of so many parts, of which each takes these steps; one after the other here."""
        each = [self.step(step) for step in part]
        return [sum(each[k] for _, k in wave) for wave in waves(parts, len(part))]

    def key(self, steps: Sequence[Step]) -> tuple[float, ...]:
        """What plans are compared by: the price, then collectives, then elements received, then steps."""
        return (
            self.total(steps),
            sum(step.collectives for step in steps),
            sum(step.received_total() for step in steps),
            len(steps),
        )

    def at_least(self, before: Placement, after: Placement) -> float:
        """A price that no plan from one placement to the other goes below."""
        return 0.0

    def links_busy(self, crossing: int) -> float:
        """How long the links of hosts are at it, on average, for so many elements between hosts."""
        return 0.0

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        """A price that a permute anywhere on a path of grids does not go below."""
        return 0.0

    def cross_host_permute(self, space: WeakSpace, grid: Grid) -> float:
        """Price of a permute on a grid that takes tiles to other hosts."""
        return 0.0

    def remaining_at_least(self, space: WeakSpace, grid: Grid, target: Grid) -> float:
        """A price that no sequence of weak collectives from `grid` to `target`, in any order, goes below."""
        return 0.0

    def phases_at_least(self, space: WeakSpace, phases: PhaseGrids) -> float:
        """A price that no steps over these grids go below."""
        return 0.0


def no_price(model: CostModel) -> ProfileError:
    """The error for a model under which plans cannot be compared."""
    return ProfileError(f"the cost model {model.name!r} gives no plan a finite price; every price must be a number")


def prices_of(model: CostModel, itemsize: int, topology: Topology) -> Prices:
    """What a search asks of a model."""
    return model._prices(itemsize, topology)


@dataclass(frozen=True)
class PhaseGrids:
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

    def by(self, way: Literal["rounds", "permute"]) -> PhaseGrids:
        """The same phases, the exchange made in this way."""
        return PhaseGrids(self.before, self.cut, self.part, self.after, way)

    @cached_property
    def chunks(self) -> int:
        """Source tiles, at least, that one target tile of the exchange touches."""
        return math.prod(-(-c // p) for c, p in zip(self.cut, self.part, strict=True))

    @cached_property
    def collectives(self) -> int:
        """Collectives that no steps over these grids go below."""
        ways = {"any": int(self.chunks > 1), "rounds": max(1, self.chunks - 1), "permute": 2}
        return ways[self.way] + (self.part != self.after)

    def held(self, space: WeakSpace) -> int:
        """Elements of its exchanged tile, at most, that a device holds: a box as long as the shorter of two tiles."""
        return math.prod(map(floordiv, space.shape, map(max, self.cut, self.part)))
