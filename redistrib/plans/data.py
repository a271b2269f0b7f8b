"""The data of a plan: source, target and the steps between, as one frozen value, with the figures of its steps.

The readers and writers of a plan import this module: `verify`, `reference`, the JSON form, the table, and the public
class `plan.Plan`, which has them as methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from redistrib.errors import PartialTypeError, PlanFormError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType, require_whole
from redistrib.plans.memory import peak_bytes
from redistrib.plans.step import Step
from redistrib.theory.bounds import floors, least_received
from redistrib.theory.crossing import least_crossing, least_sent, sides_of
from redistrib.theory.placement import Int64, Placement, placement_of

Order: TypeAlias = Literal["any", "fixed"]
Schedule: TypeAlias = Literal["overlap", "sequential"]  # of the rounds of a plan


class Short(NamedTuple):
    """In the place of steps, a program or an order that would keep within some bytes: the least that one takes."""

    least: int


def require_order(order: object) -> None:
    """Check an order of summands.

    Raises:
        PlanFormError: if there is none of that name.
    """
    if order not in get_args(Order):
        raise PlanFormError(f"the order of partial sums is {order!r}; it is one of {get_args(Order)}")


@dataclass(frozen=True, repr=False)
class PlanData:
    """The fields of a plan, and the figures that follow from them.

    Attributes:
        source, target: the types, with the same global shape.
        source_mesh, target_mesh: their meshes; over the same devices, in one order or two, or over others.
        dtype: name of the element type, in the spelling of NumPy or ml_dtypes.
        itemsize: bytes per element; a type of less than a byte takes one.
        steps: the collectives, in order.
        algorithm: name of the algorithm.
        cost_model: name of the cost model.
        cost: price of the plan under that model, in the model's unit.
        unit: that unit: "elements" or "seconds".
        memory_limit: bytes per device for source, target and scratch together. Backends of a plan with a limit run
            rounds in sequence and in small parts. None: only the tiles are bounded.
        accumulate: name of the element type in which the library adds partial sums; sums are rounded to `dtype` once.
            None: `dtype`.
        order: "fixed" if sums have equal bits on every backend and device order; `verify` then allows no reduction in
            which the platform chooses the order of partial sums.
        step_costs: price of each step, if known; for display only, neither compared nor written to JSON.
        note: why the plan is above the optimum of its cost model; None if it is not. For display only, as `step_costs`.
        beside: says how another library would move the array, for the last lines of the table; empty if it cannot tell.
            For display only.
    """

    source: DistType
    source_mesh: Mesh
    target: DistType
    target_mesh: Mesh
    dtype: str
    itemsize: int
    steps: tuple[Step, ...]
    algorithm: str
    cost_model: str
    cost: float
    unit: str
    memory_limit: int | None = None
    step_costs: tuple[float, ...] | None = field(default=None, compare=False)
    note: str | None = field(default=None, compare=False)
    beside: Callable[[Any], str] | None = field(default=None, compare=False, repr=False)
    accumulate: str | None = None
    order: Order = "any"

    def __post_init__(self) -> None:
        require_order(self.order)
        if self.leaves_devices_out and (self.source.partial or self.target.partial or not self.source.rank):
            raise PlanFormError(
                f"source mesh {self.source_mesh} has {self.source_mesh.size} of {self.devices} devices and target mesh "
                f"{self.target_mesh} has {self.target_mesh.size}; tiles that are partial sums, or of rank 0, need "
                "the same "
                "devices on both sides"
            )

    @cached_property
    def before(self) -> Placement:
        """Where the data is at the start: the placement of the source type."""
        return placement_of(self.source, self.source_mesh, self.devices)

    @cached_property
    def after(self) -> Placement:
        """Where the data must be at the end: the placement of the target type."""
        return placement_of(self.target, self.target_mesh, self.devices)

    @cached_property
    def devices(self) -> int:
        """One more than the largest device number; devices of neither mesh hold no tile at either end."""
        return max(self.source_mesh.span, self.target_mesh.span)

    @property
    def leaves_devices_out(self) -> bool:
        """Whether some device holds no tile, at one end or at both."""
        return not self.source_mesh.size == self.target_mesh.size == self.devices

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, in elements."""
        return self.source.global_shape

    @cached_property
    def height(self) -> int:
        """Elements of the largest tile on the way (Definition 4.4)."""
        placements = [self.before, *(step.after for step in self.steps)]
        return max(p.tile_size for p in placements)

    @cached_property
    def received(self) -> tuple[int, ...]:
        """Elements each device receives from others, exactly, one integer per device."""
        by_step = [[0] * self.devices, *(step.received() for step in self.steps)]
        return tuple(map(sum, zip(*by_step, strict=True)))

    @cached_property
    def lower_bound(self) -> tuple[int, ...]:
        """Elements each device cannot do without receiving, one integer per device."""
        return tuple(floors(self.before, self.after))

    @cached_property
    def least_received(self) -> int:
        """Elements that all devices together cannot do without receiving; the sum of `lower_bound` for whole tiles."""
        return least_received(self.before, self.after)

    @cached_property
    def sent(self) -> tuple[int, ...]:
        """Elements each device sends to others, exactly, one integer per device; their sum is that of `received`."""
        by_step = [[0] * self.devices, *(step.sent() for step in self.steps)]
        return tuple(map(sum, zip(*by_step, strict=True)))

    @cached_property
    def send_bound(self) -> tuple[int, ...]:
        """Elements each device cannot do without sending, one integer per device.

        Raises:
            PartialTypeError: if tiles are partial sums.
        """
        self.require_whole("the least that is sent")
        return tuple(least_sent(self.before, self.after))

    @cached_property
    def crossing(self) -> int:
        """Elements that travel between a device that holds some of the source and one that does not."""
        return self.crossing_between(sides_of(self.before))[0]

    @cached_property
    def crossing_bound(self) -> int:
        """The lower bound on `crossing`: elements wanted outside the source's devices, once each."""
        return self.crossing_between(sides_of(self.before))[1]

    def crossing_between(self, sides: Sequence[int] | Int64) -> tuple[int, int]:
        """Elements that travel between devices of different sides, for example hosts, and their lower bound.

        Args:
            sides: the number of the side of each device.

        Raises:
            PlanFormError: unless there is one number for each device.
            PartialTypeError: if tiles are partial sums, and there are several sides.
        """
        side = np.array(sides, dtype=np.int64)
        if side.shape != (self.devices,):
            raise PlanFormError(f"{self.devices} devices need one side each, got numbers of shape {side.shape}")
        if (side == side[0]).all():
            return 0, 0
        self.require_whole("what crosses from side to side")
        crosses = sum(step.crossing(side) for step in self.steps)
        return crosses, least_crossing(self.before, self.after, side)

    @property
    def collectives(self) -> int:
        """Collective operations launched."""
        return sum(step.collectives for step in self.steps)

    @cached_property
    def peak_bytes(self) -> int:
        """Bytes per device that source, target and scratch are predicted to take together."""
        return peak_bytes(
            self.steps, self.before.tile_size, self.after.tile_size, self.itemsize, self.memory_limit is not None
        )

    def require_whole(self, subject: str) -> None:
        """Refuse a plan whose tiles are partial sums.

        Args:
            subject: the function that takes only whole tiles, at the head of the message.

        Raises:
            PartialTypeError: if a type of the plan has partial axes, or a step makes or moves partial sums.
        """
        require_whole(subject, self.source, self.target)
        for step in self.steps:
            if step.reduces or step.on_sums:
                raise PartialTypeError(subject, f"the step {step.kind}")
