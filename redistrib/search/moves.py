"""Prices of moves: each planned once, timed as the simulator times it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from redistrib.errors import RedistribError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.program import Place, Value
from redistrib.simulate.machine import Machine
from redistrib.simulate.prices import plan_stages
from redistrib.synthesis.synthesize import synthesize

Objective: TypeAlias = Literal["seconds", "bytes"]


class Price(NamedTuple):
    """What a move takes.

    Attributes:
        cost: seconds, or bytes that all devices together receive.
        is_local: whether no device receives anything.
        scratch: bytes of buffers on a device.
    """

    cost: float
    is_local: bool
    scratch: int


@dataclass
class Moves:
    """The prices of moves over one mesh.

    Attributes:
        mesh: of all values.
        machine: what the moves run on.
        objective: what they cost.
        plans: those that were made, by types, meshes and element type.
    """

    mesh: Mesh
    machine: Machine
    objective: Objective = "seconds"
    plans: dict[tuple[DistType, Mesh, DistType, Mesh, str], Plan] = field(default_factory=dict)
    _prices: dict[tuple[DistType, DistType, str], Price | None] = field(default_factory=dict)

    def price(self, source: DistType, target: DistType, dtype: str) -> Price | None:
        """What a move takes; None where there is no plan."""
        key = (source, target, dtype)
        if key not in self._prices:
            self._prices[key] = self._price(source, target, dtype)
        return self._prices[key]

    def _price(self, source: DistType, target: DistType, dtype: str) -> Price | None:
        place = Place(self.mesh)
        if Value("", source, place).means(Value("", target, place)):
            return Price(0.0, True, 0)
        try:
            plan = synthesize(source, self.mesh, target, self.mesh, dtype=dtype, model=self.machine.links)
        except RedistribError:
            return None
        self.plans[source, self.mesh, target, self.mesh, dtype] = plan
        received = sum(plan.received)
        seconds = sum(stage.seconds for stage in plan_stages(plan, place, self.machine))
        cost = seconds if self.objective == "seconds" else float(received * plan.itemsize)
        scratch = plan.peak_bytes - (source.local_size + target.local_size) * plan.itemsize
        return Price(cost, not received, scratch)
