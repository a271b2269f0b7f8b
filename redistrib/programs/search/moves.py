"""Prices of moves: each planned once, timed as the simulator times it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from redistrib.cost.figures import Figures
from redistrib.errors import RedistribError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import LARGEST, DimType, DistType
from redistrib.plans.dtypes import packed_total
from redistrib.plans.memory import beside_ends
from redistrib.programs.ir.value import Place, Value, pulled
from redistrib.programs.ir.windows import Held
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.search.axis_prices import AxisPrices
from redistrib.programs.search.constants import PLANNED
from redistrib.programs.search.deadline import NEVER, Deadline
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.prices import direct_stages, plan_stages
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import placement_of

Objective: TypeAlias = Literal["seconds", "bytes"]


class Price(NamedTuple):
    """Seconds, bytes and buffers of a move.

    Attributes:
        cost: seconds, or bytes that all devices together receive.
        is_local: whether no device receives anything.
        scratch: bytes of buffers on a device.
        received: bytes that all devices together receive.
    """

    cost: float
    is_local: bool
    scratch: int
    received: int = 0


class Conversions(NamedTuple):
    """The cost of a value in each needed type; types are given by their numbers.

    Attributes:
        layouts: the types.
        made_in: for each way to make the value its type.
        needed: for each reader, and each way that it may read, the type.
        prices: of converting one type to another, where that can be.
        local: pairs of which the second is a part of the first, on every device, so that nothing travels.
    """

    layouts: tuple[DistType, ...]
    made_in: tuple[int, ...]
    needed: tuple[tuple[int, ...], ...]
    prices: dict[tuple[int, int], float]
    local: frozenset[tuple[int, int]]


@dataclass
class Moves:
    """The prices of moves over one mesh.

    Attributes:
        mesh: of all values.
        machine: the machine that runs the moves.
        objective: the unit of their cost.
    """

    mesh: Mesh
    machine: Machine
    objective: Objective = "seconds"
    _shared: dict[DistType, DistType] = field(default_factory=dict)
    _prices: dict[tuple[DistType, DistType, str], Price | None] = field(default_factory=dict)  # of normal types
    _asked: dict[tuple[DistType, DistType, str], Price | None] = field(default_factory=dict)
    _halos: dict[tuple[object, ...], Price] = field(default_factory=dict)
    _scratch: dict[tuple[DistType, DistType, str], int] = field(default_factory=dict)
    _travels: dict[tuple[DistType, DistType], bool] = field(default_factory=dict)
    _counts: dict[tuple[str, ...], int] = field(default_factory=dict)  # devices of axes
    _conversions: dict[tuple[object, ...], Conversions] = field(default_factory=dict)

    @cached_property
    def planner(self) -> MovePlanner:
        """Plans moves of programs, each once."""
        return MovePlanner(self.machine.links)

    @cached_property
    def by_axes(self) -> AxisPrices | None:
        """Prices of collectives along axes, which large meshes and machines of today have; None where moves have those
        of plans."""
        links = self.machine.links
        is_planned = self.mesh.size <= PLANNED and not self.machine.fuses
        if is_planned or not isinstance(links, Figures) or links.host_bandwidth is not None:
            return None
        return AxisPrices(self.mesh, links, self.machine.bytes_of)

    def shared(self, form: DistType) -> DistType:
        """The one object for all equal types, so that most are compared at once."""
        return self._shared.setdefault(form, form)

    def price(self, source: DistType, target: DistType, dtype: str) -> Price | None:
        """The cost of a move; None where there is no plan."""
        exact = (source, target, dtype)
        if exact not in self._asked:
            key = (*self.normal(source, target), dtype)
            if key not in self._prices:
                self._prices[key] = self._price(*key)
            self._asked[exact] = self._prices[key]
        return self._asked[exact]

    def travels(self, source: DistType, target: DistType) -> bool:
        """Whether the lower bound on received elements says that no plan of a move is local; it needs no plan."""
        if self.by_axes is not None:
            return False
        if (source, target) not in self._travels:
            ends = (placement_of(end, self.mesh) for end in self.normal(source, target))
            self._travels[source, target] = least_received(*ends) > 0
        return self._travels[source, target]

    def scratch(self, source: DistType, target: DistType, dtype: str) -> int:
        """Bytes of a device's buffers in a move; copies after a gather depend on the order of dimensions."""
        key = (source, target, dtype)
        if key not in self._scratch and self.by_axes is None:
            price = self._price(source, target, dtype)
            self._scratch[key] = 0 if price is None else price.scratch
        elif key not in self._scratch and self.by_axes is not None:
            steps = self.by_axes.collectives(source, target, dtype)
            sizes = [(round(step.buffers), round(step.before), round(step.after)) for step in steps]
            self._scratch[key] = beside_ends(sizes)
        return self._scratch[key]

    def scratch_at_most(self, source: DistType, target: DistType, dtype: str) -> int | None:
        """Bytes of a device's buffers in a move, however it is planned; None where nothing is known of them.

        No tile between is larger than the larger of source and target, and no step but an exchange in one call needs
        more than two such tiles besides those before and after it.
        """
        if self.by_axes is None:
            return self.scratch(source, target, dtype)
        if self.by_axes.figures.fused_exchange:
            return None
        return 4 * self.machine.bytes_of(max(source.local_size, target.local_size), dtype)

    def halo(self, form: DistType, windows: tuple[Held, ...], dtype: str) -> Price:
        """The cost of receiving the halos of a value besides its tiles."""
        key = (form, windows, dtype)
        if key not in self._halos:
            value = Value("", form, Place(self.mesh), dtype)
            out = replace(value, windows=windows)
            received = packed_total(pulled(value, out).values(), dtype)
            seconds = sum(stage.seconds for stage in direct_stages(value, out, self.machine))
            cost = seconds if self.objective == "seconds" else float(received)
            self._halos[key] = Price(cost, not received, 0, received)
        return self._halos[key]

    def conversions(
        self,
        made_in: tuple[DistType, ...],
        needed: tuple[tuple[DistType, ...], ...],
        dtype: str,
        deadline: Deadline = NEVER,
    ) -> Conversions:
        """The prices of a value's moves; those of values with equal types at both ends are looked up once.

        Args:
            made_in: the types that it may be made in.
            needed: those that each of its readers may need.
            dtype: of its elements.
            deadline: to be kept.

        Raises:
            OutOfTime: after the deadline.
        """
        key = (made_in, needed, dtype)
        if key not in self._conversions:
            self._conversions[key] = self._converted(made_in, needed, dtype, deadline)
        return self._conversions[key]

    def _converted(
        self, made_in: tuple[DistType, ...], needed: tuple[tuple[DistType, ...], ...], dtype: str, deadline: Deadline
    ) -> Conversions:
        number: dict[DistType, int] = {}
        starts = tuple(number.setdefault(form, len(number)) for form in made_in)
        ends = tuple(tuple(number.setdefault(form, len(number)) for form in forms) for forms in needed)
        layouts, prices, local = tuple(number), {}, set()
        targets = dict.fromkeys(form for forms in ends for form in forms)
        for source in dict.fromkeys(starts) if len(ends) == 1 else dict.fromkeys((*starts, *targets)):
            for target in targets:
                if source == target or (source not in starts and layouts[source].partial):
                    continue
                deadline.check()
                if source not in starts and self.travels(layouts[source], layouts[target]):
                    continue
                price = self.price(layouts[source], layouts[target], dtype)
                if price is None:
                    continue
                if source in starts or price.is_local:
                    prices[source, target] = price.cost
                whole = not layouts[source].partial and not layouts[target].partial
                if price.is_local and whole and layouts[source].local_size > layouts[target].local_size:
                    local.add((source, target))
        return Conversions(layouts, starts, ends, prices, frozenset(local))

    def normal(self, source: DistType, target: DistType) -> tuple[DistType, DistType]:
        """Two types that a move between takes as long: only dimensions that are cut, no longer than they need be, in
        order, and one that is not, or more where it would be too long.

        Tiles of a dimension meet at multiples of its size over the least common multiple of the numbers of tiles.
        """
        cut, whole = [], [1]
        for before, after in zip(source.dims, target.dims, strict=True):
            size = math.lcm(self._tiles(before.axes), self._tiles(after.axes))
            tiles = before.size // size
            if whole[-1] * tiles <= LARGEST:
                whole[-1] *= tiles
            else:
                whole.append(tiles)
            if before.axes or after.axes:
                cut.append((before.axes, after.axes, size))
        cut.sort()
        rest = [DimType(size, (), size) for size in whole]
        return (
            DistType((*(self._dim(size, axes) for axes, _, size in cut), *rest), source.partial, source.reduction),
            DistType((*(self._dim(size, axes) for _, axes, size in cut), *rest), target.partial, target.reduction),
        )

    def _dim(self, size: int, axes: tuple[str, ...]) -> DimType:
        return DimType(size // self._tiles(axes), axes, size)

    def _tiles(self, axes: tuple[str, ...]) -> int:
        if axes not in self._counts:
            self._counts[axes] = math.prod([self.mesh.axis(axis).size for axis in axes])
        return self._counts[axes]

    def _price(self, source: DistType, target: DistType, dtype: str) -> Price | None:
        if self.by_axes is not None:
            return self._by_axes(self.by_axes, source, target, dtype)
        place = Place(self.mesh)
        if Value("", source, place).holds(target, place):
            return Price(0.0, True, 0)
        try:
            plan = synthesize(source, self.mesh, target, self.mesh, dtype=dtype, model=self.machine.links)
        except RedistribError:
            return None
        size = packed_total(plan.received, dtype)
        seconds = sum(stage.seconds for stage in plan_stages(plan, place, self.machine))
        cost = seconds if self.objective == "seconds" else float(size)
        scratch = plan.peak_bytes // plan.itemsize - (source.local_size + target.local_size)
        return Price(cost, not size, self.machine.bytes_of(scratch, dtype), size)

    def _by_axes(self, prices: AxisPrices, source: DistType, target: DistType, dtype: str) -> Price:
        steps = prices.collectives(source, target, dtype)
        received = round(self.mesh.size * sum(step.received for step in steps))
        cost = sum(map(prices.seconds, steps)) if self.objective == "seconds" else float(received)
        ends = self.machine.bytes_of(source.local_size + target.local_size, dtype)
        live = max((step.before + step.after for step in steps), default=0.0)
        return Price(cost, not received, max(0, round(live) - ends), received)
