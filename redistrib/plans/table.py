"""The table of `print(plan)`: the steps with their costs, and the received elements against the lower bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from redistrib.lang.mesh import Mesh
from redistrib.plans.data import PlanData
from redistrib.plans.step import Step
from redistrib.report import bytes_text, counted, rendered, seconds_text
from redistrib.theory.inverse import type_of
from redistrib.theory.placement import Placement


def render(plan: PlanData) -> str:
    """The table as plain text.

    Received elements are the mean over the devices, and the maximum where it differs. Steps have a cost where the
    plan has `step_costs`.
    """
    names = _Names(plan)
    rows = [["", "source", "", names.of(plan.before), _size(plan.before.tile_size, plan.itemsize), "", ""]]
    costs: Sequence[float | None] = plan.step_costs or [None] * len(plan.steps)
    for number, (step, cost) in enumerate(zip(plan.steps, costs, strict=True), 1):
        rows.append(
            [
                str(number),
                step_name(step),
                step.participants,
                names.of(step.after),
                _size(step.after.tile_size, plan.itemsize),
                _received(step.received(), plan.itemsize),
                "" if cost is None else _cost(cost, plan.unit),
            ]
        )
    collectives = counted(plan.collectives, "collective", "collectives")
    received, cost_in_all = _received(plan.received, plan.itemsize), _cost(plan.cost, plan.unit)
    foot = ["", "total", collectives, "", "", received, cost_in_all]
    columns = ["#", "step", "groups", "type after", "tile", "received per device", "cost"]
    table = rendered("", columns, rows, foot=foot, left=range(4), edge="")
    text = [*_head(plan), "", table, "", *names.notes(), *_foot(plan)]
    return "\n".join(text if plan.beside is None else [*text, plan.beside(plan)])


def step_name(step: Step) -> str:
    """Kind and dimensions of a step: `alltoall 0->1` cuts dimension 1 by the axes that cut dimension 0.

    A permute names none, since it changes no tile's shape.
    """
    coarser = [str(i) for i, (b, a) in enumerate(zip(step.before.grid, step.after.grid, strict=True)) if a < b]
    finer = [str(i) for i, (b, a) in enumerate(zip(step.before.grid, step.after.grid, strict=True)) if a > b]
    dims = "->".join(",".join(part) for part in (coarser, finer) if part)
    return f"{step.kind} {dims}".rstrip()


class _Names:
    """Types of placements, on the first mesh that has one, and notes on the axes of these meshes."""

    def __init__(self, plan: PlanData) -> None:
        self._meshes = [(plan.source_mesh, "")]
        if plan.target_mesh != plan.source_mesh:
            self._meshes.append((plan.target_mesh, " on the target mesh"))
        self._meshes += [(mesh.prime().mesh, whose) for mesh, whose in self._meshes]
        self._users = [plan.source_mesh, plan.target_mesh]
        self._used: set[str] = set()
        suffix = "" if plan.target_mesh == plan.source_mesh else " on the target mesh"
        self._ends = [(plan.before, str(plan.source)), (plan.after, f"{plan.target}{suffix}")]

    def of(self, placement: Placement) -> str:
        """The notation of a placement, or its tiles and grid where no type says it."""
        if placement.cuts:  # several types may mean it
            for end, name in self._ends:
                if placement == end:
                    return name
        for mesh, whose in self._meshes:
            dist_type = type_of(placement, mesh)
            if dist_type is not None:
                self._used.update(dist_type.axes)
                return f"{dist_type}{whose}"
        summands = f", {placement.reduction} of {placement.summands}" if placement.summands > 1 else ""
        return f"(no type) {_times(placement.tile)} tiles on a {_times(placement.grid)} grid{summands}"

    def notes(self) -> list[str]:
        """For each user axis, the prime axes of it that the table names."""
        factors = {}
        for mesh in self._users:
            for axis, primes in zip(mesh.axes, mesh.prime().factors, strict=True):
                if any(prime.name != axis.name and prime.name in self._used for prime in primes):
                    factors[axis.name] = ", ".join(f"{prime.name}:{prime.size}" for prime in primes)
        return [f"{name} is made of {primes}, minor to major" for name, primes in factors.items()]


def _head(plan: PlanData) -> list[str]:
    target = str(plan.target)
    if plan.target_mesh != plan.source_mesh:
        target += f" on {plan.target_mesh}{_order(plan.target_mesh)}"
    return [
        f"{plan.source} -> {target}",
        f"{plan.dtype} over {counted(plan.devices, 'device', 'devices')}, "
        f"mesh {plan.source_mesh}{_order(plan.source_mesh)}; algorithm {plan.algorithm}, "
        f"cost in {plan.unit} by machine={plan.cost_model!r}",
    ]


def _order(mesh: Mesh) -> str:
    if mesh.devices == tuple(range(mesh.span)):
        return ""
    if mesh.is_whole:
        return " in another device order"
    first, last = mesh.devices[0], mesh.devices[-1]
    if mesh.devices == tuple(range(first, last + 1)):
        return f" of devices {first} to {last}"
    return f" of devices {', '.join(map(str, mesh.devices[:16]))}" + (", ..." if mesh.size > 16 else "")


def _foot(plan: PlanData) -> list[str]:
    received, bound = sum(plan.received), plan.least_received
    if bound:
        ratio = f"received is {received / bound:.2f} times the bound"
    else:
        ratio = "nothing is received" if not received else "nothing need be received"
    larger = max(plan.before.tile_size, plan.after.tile_size)
    above = "" if plan.height <= larger else f", above the larger of source and target, {_size(larger, plan.itemsize)}"
    if plan.before.summands == plan.after.summands == 1:
        least = f"{_received(plan.lower_bound, plan.itemsize)} per device"
    else:
        least = f"{_size(bound, plan.itemsize)} in all"
    return [
        f"lower bound: {least}; {ratio}",
        f"height: {_size(plan.height, plan.itemsize)}, the largest tile on the way{above}; "
        f"predicted peak {bytes_text(plan.peak_bytes)} per device",
        *(_traffic(plan) if plan.leaves_devices_out else []),
        *([] if plan.note is None else [f"note: {plan.note}"]),
    ]


def _traffic(plan: PlanData) -> list[str]:
    """The elements sent, and the elements that cross from the source's devices to others."""
    crossing, bound = plan.crossing, plan.crossing_bound
    times = f", {crossing / bound:.2f} times its bound" if bound else ""
    most, least = max(plan.sent), max(plan.send_bound)
    return [
        f"most sent by one device: {_size(most, plan.itemsize)}; no plan does with less than "
        f"{_size(least, plan.itemsize)}",
        f"crossing to other devices: {_size(crossing, plan.itemsize)}{times}",
    ]


def _times(counts: Iterable[int]) -> str:
    return "x".join(map(str, counts))


def _size(elements: int, itemsize: int) -> str:
    return f"{_number(elements)} ({bytes_text(elements * itemsize)})"


def _received(elements: Sequence[int], itemsize: int) -> str:
    """Mean per device, and the maximum where devices differ."""
    total, most = sum(elements), max(elements)
    if total == most * len(elements):
        return _size(most, itemsize) if most else "0"
    mean = total / len(elements)
    return f"{_number(mean)} ({bytes_text(mean * itemsize)}), max {_size(most, itemsize)}"


def _number(number: float) -> str:
    """A number with separators below 10**15, and two decimals where it is no integer."""
    if number >= 10**15:
        return f"{number:.3e}"
    return f"{number:,.0f}" if number == math.floor(number) else f"{number:,.2f}"


def _cost(cost: float, unit: str) -> str:
    return seconds_text(cost) if unit == "seconds" else _number(cost)
