"""The abstract `CostModel`, and its `Prices` for one element size and one topology.

`Prices` has the prices of steps and of weak edges, whose device groups are not chosen yet, and lower bounds on both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import floordiv
from typing import ClassVar, Literal

from redistrib.errors import ProfileError
from redistrib.lang.mesh import Mesh
from redistrib.plans.steps import Step
from redistrib.theory.placement import Int64, Placement
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace


class CostModel(ABC):
    """A price list for weak edges and for steps; equal values have equal prices.

    A subclass needs `prices`, the attributes below, and to be hashable.

    Attributes:
        name: of the model, in arguments and in plans.
        unit: unit of its prices, "elements" or "seconds".
        normal_forms_suffice: whether some cheapest weak sequence is in normal form (Lemma 6.5). False once a
            collective has a latency.
        counts_received: whether prices are received elements. Then plans reach the lower bound, and ties go to the plan
            of fewest collectives.
        fused_exchange: whether the backend runs a whole exchange in one call and not in rounds, by a ragged
            all-to-all or MPI's Alltoallw.

    >>> import redistrib as rd
    >>> from redistrib.cost.presets import cost_model
    >>> rd.synthesize("[1{x}8]", "[8]", {"x": 8}, machine=cost_model("gpu")).cost < 1e-3  # seconds
    True
    """

    name: str
    unit: ClassVar[str]
    normal_forms_suffice: ClassVar[bool]
    counts_received: ClassVar[bool] = False
    fused_exchange: bool = False

    def __repr__(self) -> str:
        """The name, the same in all processes, as an address is not: they compare machines as text."""
        return f"{type(self).__name__}({self.name!r})"

    @abstractmethod
    def prices(self, itemsize: int, topology: Topology) -> Prices:
        """The prices for elements of `itemsize` bytes on devices of this topology."""

    def topology(self, mesh: Mesh, topology: Topology | None = None) -> Topology:
        """The topology of a mesh, with the links whose speeds differ in the model; by default no link differs.

        Args:
            mesh: the devices.
            topology: their topology; None where it is unknown.
        """
        return Topology(mesh.size)

    def topology_between(self, source: Mesh, target: Mesh, topology: Topology | None = None) -> Topology:
        """The topology of the devices of two meshes; a device may be in one mesh only."""
        devices = max(source.span, target.span)
        if source.size == target.size == devices:
            return self.topology(source, topology)
        return self.topology_apart(devices, source.devices, topology)

    def topology_apart(self, devices: int, source: Collection[int], topology: Topology | None = None) -> Topology:
        """The topology of `devices` devices, where the devices of source and target differ."""
        return Topology(devices)


class Prices(ABC):
    """The prices of a model for one element size and topology, and bounds on them.

    A subclass needs `edge` and `step`. The bounds here hold for every model of non-negative prices; a subclass may have
    tighter bounds.

    Attributes:
        model: of the prices.
        itemsize: bytes per element.
        topology: of the devices.
    """

    def __init__(self, model: CostModel, itemsize: int, topology: Topology) -> None:
        self.model, self.itemsize, self.topology = model, itemsize, topology

    @abstractmethod
    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        """Price of a weak edge; at most the price of every step that lowers the edge."""

    @abstractmethod
    def step(self, step: Step) -> float:
        """Price of a lowered step."""

    def total(self, steps: Sequence[Step]) -> float:
        """Price of a sequence of steps, one after the other."""
        return sum(map(self.step, steps))

    def key(self, steps: Sequence[Step]) -> tuple[float, ...]:
        """The sort key of plans: the price, then collectives, then elements received, then steps."""
        return (
            self.total(steps),
            sum(step.collectives for step in steps),
            sum(step.received_total() for step in steps),
            len(steps),
        )

    def at_least(self, before: Placement, after: Placement) -> float:
        """A lower bound on the price of every plan from one placement to the other."""
        return 0.0

    def rounds_at_least(self, receiver: Int64, volumes: Sequence[int]) -> float:
        """A lower bound on the price of an exchange in rounds, each of shares of one size.

        Args:
            receiver: `[shares]` devices.
            volumes: elements of each share.
        """
        return 0.0

    def links_busy(self, crossing: int) -> float:
        """Mean seconds of the links of hosts for `crossing` elements between hosts."""
        return 0.0

    def permute_at_least(self, space: WeakSpace, grids: Sequence[Grid]) -> float:
        """A lower bound on the price of a permute at any grid of a path."""
        return 0.0

    def cross_host_permute(self, space: WeakSpace, grid: Grid) -> float:
        """Price of a permute of the tiles of a grid between hosts."""
        return 0.0

    def remaining_at_least(self, space: WeakSpace, grid: Grid, target: Grid) -> float:
        """A lower bound on the price of weak collectives from `grid` to `target`, in any order."""
        return 0.0

    def phases_at_least(self, space: WeakSpace, phases: PhaseGrids) -> float:
        """A lower bound on the price of steps over these grids."""
        return 0.0


def no_price(model: CostModel) -> ProfileError:
    """The error for a model under which plans cannot be compared."""
    return ProfileError(f"machine={model.name!r} gives no plan a finite cost; every price must be a number")


@dataclass(frozen=True)
class PhaseGrids:
    """Slice, exchange, gather, before placements are chosen.

    Attributes:
        before, cut, part, after: grids before, between and after the phases; equal where a phase is empty.
        way: implementation of an exchange of several collectives: in rounds, or by an all-to-all and a permute in
            either order. "any" allows both.
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
        """The same phases, with this implementation of the exchange."""
        return PhaseGrids(self.before, self.cut, self.part, self.after, way)

    @cached_property
    def chunks(self) -> int:
        """A lower bound on the source tiles that overlap one target tile of the exchange."""
        return math.prod(-(-c // p) for c, p in zip(self.cut, self.part, strict=True))

    @cached_property
    def collectives(self) -> int:
        """A lower bound on the collectives of steps over these grids."""
        ways = {"any": int(self.chunks > 1), "rounds": max(1, self.chunks - 1), "permute": 2}
        return ways[self.way] + (self.part != self.after)

    def held(self, space: WeakSpace) -> int:
        """An upper bound on the elements of its exchanged tile that a device holds: the smaller extents of both."""
        return math.prod(map(floordiv, space.shape, map(max, self.cut, self.part)))
