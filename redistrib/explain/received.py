"""Why a plan receives what it does."""

from __future__ import annotations

from dataclasses import dataclass

from redistrib.plans.crossing import crossing
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllReduce, Step
from redistrib.plans.table import what
from redistrib.plans.transfers import stays
from redistrib.report import rendered
from redistrib.theory.boxes import Boxes
from redistrib.theory.crossing import sides_of


@dataclass(frozen=True)
class Traffic:
    """What one step receives, summed over the devices, in elements.

    Attributes:
        step: the step.
        needed: of the target tile of the device that receives it, and not held there at the start.
        passing: not of its target tile: received only to be sent on or dropped.
        again: of its target tile, held there at the start, and given up on the way.
        padding: no data: what fills smaller shares up to the largest of their round.
    """

    step: Step
    needed: int
    passing: int
    again: int
    padding: int


def traffic(plan: Plan) -> list[Traffic]:
    """What each step receives, sorted into what was needed and what was not.

    Exactly the needed elements, each once, make up the lower bound.

    Raises:
        PartialTypeError: if tiles are summands anywhere: then what is needed depends on where sums are made.
    """
    plan.require_whole("traffic")
    return [_sorted(plan, step) for step in plan.steps]


def _sorted(plan: Plan, step: Step) -> Traffic:
    tiles, kept = step.after.boxes, stays(step)  # what a device receives is its tile but for what it keeps
    counts = [_difference(tiles, kept)]
    for placement in (plan.after, plan.before):
        tiles, kept = tiles.meet(placement.boxes), kept.meet(placement.boxes)
        counts.append(_difference(tiles, kept))
    everything, wanted, again = counts
    padding = step.received_total() - everything
    return Traffic(step, needed=wanted - again, passing=everything - wanted, again=again, padding=padding)


def _difference(boxes: Boxes, less: Boxes) -> int:
    return sum(boxes.volumes()) - sum(less.volumes())


def explain(plan: Plan) -> str:
    """Received elements against the lower bound, step by step, and the reason for every excess.

    Where tiles are summands, what is received by steps that add is told from what is only moved.

    >>> from redistrib import synthesize
    >>> plan = synthesize("[2{x}4, 4]", "[4, 2{x}4]", {"x": 2}, cost_model="exact")
    >>> print(explain(plan).splitlines()[-1])
    The plan receives exactly the lower bound: no plan can receive less.
    """
    if any(max(step.before.summands, step.after.summands) > 1 for step in plan.steps) or plan.source.partial:
        return _explain_sums(plan)
    rows, reasons = [], []
    for number, entry in enumerate(traffic(plan), 1):
        total = entry.needed + entry.passing + entry.again + entry.padding
        counts = (total, entry.needed, entry.passing, entry.again, entry.padding)
        rows.append([f"{number} {what(entry.step)}", *(f"{count:,}" for count in counts)])
        if entry.passing:
            reasons.append(
                f"Step {number} ({entry.step.kind}) brings {entry.passing:,} elements to devices whose target tile "
                "they are no part of: they are sent on later, or dropped."
            )
        if entry.again:
            reasons.append(
                f"Step {number} ({entry.step.kind}) brings back {entry.again:,} elements that their devices held at "
                "the start and an earlier step gave away."
            )
        if entry.padding:
            reasons.append(
                f"Step {number} ({entry.step.kind}) brings {entry.padding:,} elements of padding: in a round every "
                "share travels as large as the largest."
            )
    received, bound = sum(plan.received), sum(plan.lower_bound)
    table = rendered(
        "elements received, all devices", ["step", "received", "needed", "passing", "again", "padding"], rows
    )
    if received == bound:
        verdict = "The plan receives exactly the lower bound: no plan can receive less."
    else:
        verdict = (
            f"The plan receives {received:,} elements, {received / bound:.2f} times the lower bound of {bound:,}; the "
            f"cost model {plan.cost_model!r} prices fewer or larger collectives below the difference."
            if bound
            else f"The plan receives {received:,} elements where none are needed."
        )
    return "\n".join([table, *reasons, verdict, *(_between_devices(plan) if plan.leaves_devices_out else [])])


def _between_devices(plan: Plan) -> list[str]:
    """What each step sends and brings across, where source and target are on other devices."""
    side = sides_of(plan.before)
    rows = []
    for number, step in enumerate(plan.steps, 1):
        counts = (max(step.sent()), crossing(step, side))
        rows.append([f"{number} {what(step)}", *(f"{count:,}" for count in counts)])
    table = rendered("elements sent", ["step", "most by one device", "crossing to other devices"], rows)
    bound = plan.crossing_bound
    if not bound:
        return [table, "Nothing need cross: no device of the target is outside the source's."]
    if plan.crossing == bound:
        return [
            table,
            f"Exactly {bound:,} elements cross from the source's devices to others: no plan lets fewer cross.",
        ]
    times = f"{plan.crossing / bound:.2f} times the {bound:,} that must"
    return [
        table,
        f"{plan.crossing:,} elements cross from the source's devices to others, {times}: several devices pull the "
        f"same; the cost model {plan.cost_model!r} prices that below having them share it out.",
    ]


def _explain_sums(plan: Plan) -> str:
    rows = []
    for number, step in enumerate(plan.steps, 1):
        total, added = step.received_total(), 0
        if step.before.summands > step.after.summands:
            added = total // 2 if isinstance(step, AllReduce) else total  # its other half is a gather
        rows.append([f"{number} {what(step)}", *(f"{count:,}" for count in (total, total - added, added))])
    table = rendered("elements received, all devices", ["step", "received", "to be kept", "to be added"], rows)
    received, bound = sum(plan.received), plan.least_received
    p, q = plan.before.summands, plan.after.summands
    made = f"{p} summands" if p > 1 else "whole tiles"
    into = f"{q} summands" if q > 1 else "whole tiles"
    if received == bound:
        return f"{table}\nThe plan receives exactly the lower bound from {made} to {into}: no plan can receive less."
    times = f", {received / bound:.2f} times the lower bound of {bound:,}" if bound else "; the lower bound is 0"
    open_end = (
        " That bound need not be reached where several devices hold one summand of the target."
        if q > 1 and plan.devices > plan.after.tiles * q
        else ""
    )
    return (
        f"{table}\nThe plan receives {received:,} elements{times}, from {made} to {into}; either the cost "
        f"model {plan.cost_model!r} prices fewer or larger collectives below the difference, or tiles of one size "
        f"cannot reach it.{open_end}"
    )
