"""Plans as data of a page: the tile of every device before and after each step, and the messages of each round."""

from __future__ import annotations

import math
from typing import Any

from redistrib.errors import RedistribError
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllReduce, Step
from redistrib.plans.table import step_name
from redistrib.programs.ir.program import Place
from redistrib.programs.show.content import (
    Content,
    Table,
    Timeline,
    TimelineBlock,
    content_about,
    duration,
    number,
    size,
)
from redistrib.programs.time.constants import machine as machine_of
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.prices import prices_between
from redistrib.programs.time.rounds import rounds_of
from redistrib.report import bytes_text, seconds_text
from redistrib.theory.placement import Placement

MOST_DEVICES = 1024  # whose tiles are drawn
MOST_MESSAGES = 20_000  # of a step, that are drawn


@content_about.register(Plan)
def plan_content(plan: Plan, machine: Machine | str = "tpu") -> Content:
    """The page of a plan; `machine` says how long steps take where the plan's own cost is not in seconds."""
    chosen = machine_of(machine)
    seconds = step_seconds(plan, chosen)
    rows = []
    for k, step in enumerate(plan.steps):
        received = step.received()
        rows.append(
            [
                number(k + 1, str(k + 1)),
                step_name(step),
                step.participants,
                size(step.after.tile_size * plan.itemsize),
                size(max(received, default=0) * plan.itemsize),
                size(step.received_total() * plan.itemsize),
                duration(seconds[k]) if seconds else "",
            ]
        )
    columns = ["#", "step", "groups", "tile", "most received", "received in all", "time"]
    bound = plan.least_received
    model = plan.cost_model if plan.unit == "seconds" else chosen.name
    time = f"; {seconds_text(sum(seconds))} on {model}" if seconds else ""
    ratio = f", {sum(plan.received) / bound:.2f} times the lower bound" if bound else ""
    lines = [
        f"{plan.dtype} over {plan.devices} devices, mesh {plan.source_mesh}"
        + ("" if plan.target_mesh == plan.source_mesh else f" to mesh {plan.target_mesh}"),
        f"{bytes_text(sum(plan.received) * plan.itemsize)} received in all{ratio}; at most "
        f"{bytes_text(plan.peak_bytes)} on a device{time}",
    ]
    return Content(
        f"{plan.source} -> {plan.target}",
        lines,
        tables=[Table("Steps", columns, rows)],
        plans=[plan_data(plan)],
        timeline=timeline_of(plan, chosen) if seconds else None,
    )


def step_seconds(plan: Plan, machine: Machine) -> list[float]:
    """Seconds of every step: the plan's own costs, or those of the machine; none where some device holds nothing."""
    if plan.unit == "seconds" and plan.step_costs:
        return [float(cost) for cost in plan.step_costs]
    if plan.leaves_devices_out:
        return []
    prices = prices_between(Place(plan.source_mesh), plan.itemsize, machine)
    return [prices.step(step) for step in plan.steps]


def plan_data(plan: Plan, of: str = "") -> dict[str, Any]:
    """A plan for the page's drawing of tiles, with the name of the array that it moves."""
    data: dict[str, Any] = {
        "name": f"{of}: " * bool(of) + f"{plan.source} -> {plan.target}",
        "devices": plan.devices,
        "itemsize": plan.itemsize,
        "shape": list(plan.shape),
        "placements": [],
        "steps": [],
        "note": "",
    }
    if plan.devices > MOST_DEVICES or not math.prod(plan.shape):
        data["note"] = (
            f"tiles of at most {MOST_DEVICES:,} devices are drawn; this plan has {plan.devices:,}"
            if plan.devices > MOST_DEVICES
            else "the array has no elements"
        )
        return data
    placements = [plan.before, *(step.after for step in plan.steps)]
    data["dims"] = drawn_dims(placements)
    data["placements"] = [_tiles(placement) for placement in placements]
    data["steps"] = [_step(step) for step in plan.steps]
    return data


def drawn_dims(placements: list[Placement]) -> list[int]:
    """The two dimensions that are drawn, down and across: those that are cut into most tiles, in their order."""
    rank = placements[0].rank
    most = [max(placement.grid[dim] for placement in placements) for dim in range(rank)]
    return sorted(sorted(range(rank), key=lambda dim: -most[dim])[:2])


def _tiles(placement: Placement) -> dict[str, Any]:
    boxes = placement.boxes
    return {
        "start": boxes.start.tolist(),
        "size": boxes.size.tolist(),
        "holders": placement.holders.tolist(),
        "summand": placement.label.tolist() if placement.summands > 1 else None,
    }


def _step(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": step_name(step),
        "groups": step.participants,
        "rounds": 0,
        "messages": [],
        "note": "",
    }
    if isinstance(step, AllReduce):
        data["note"] = "which messages an all-reduce sends is left to the platform"
        return data
    try:
        table = step.transfers()
    except RedistribError as error:
        data["note"] = str(error)
        return data
    data["rounds"] = table.rounds
    if len(table) > MOST_MESSAGES:
        data["note"] = f"{len(table):,} messages, too many to draw"
        return data
    data["messages"] = [
        [sender, receiver, number_, start, size]
        for sender, receiver, number_, start, size in zip(
            table.sender.tolist(),
            table.receiver.tolist(),
            table.round.tolist(),
            table.box.start.tolist(),
            table.box.size.tolist(),
            strict=True,
        )
    ]
    return data


# ------------------------------------------------------------------------------------------------ time


def timeline_of(plan: Plan, machine: Machine) -> Timeline:
    """When each step and each of its rounds runs, on one row for each kind of link.

    The seconds of a step are its price. A round takes a part of them in proportion to its largest share.
    """
    topology = machine.links.topology(plan.source_mesh)
    rows = ["between hosts", "inside a host"] if topology.hosts is not None else ["links"]
    blocks: list[TimelineBlock] = []
    at = 0.0
    for k, (step, seconds) in enumerate(zip(plan.steps, step_seconds(plan, machine), strict=True)):
        most = max(step.received(), default=0) * plan.itemsize
        crosses, sizes = rounds_of(step, topology)
        row = 0 if crosses or topology.hosts is None else 1
        who = step.participants or "no communication"
        text = f"{bytes_text(most)} to a device at most, {seconds_text(seconds)}; {who}"
        blocks.append(TimelineBlock(row, f"{k + 1} {step_name(step)}", "step", at, seconds, text))
        total = sum(sizes) or 1
        begin = at
        for number_, share in enumerate(sizes if len(sizes) > 1 else ()):
            length = seconds * share / total
            note = f"round {number_ + 1} of {len(sizes)}: boxes of up to {bytes_text(share * plan.itemsize)}"
            blocks.append(TimelineBlock(row, f"round {number_ + 1}", "round", begin, length, note))
            begin += length
        at += seconds
    return Timeline(rows, blocks)
