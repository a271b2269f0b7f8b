"""The traffic of a plan against the lower bound, and the reasons for the difference."""

from __future__ import annotations

from dataclasses import dataclass

from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllReduce, Step
from redistrib.plans.table import step_name
from redistrib.report import rendered
from redistrib.theory.boxes import Boxes
from redistrib.theory.crossing import sides_of


@dataclass(frozen=True)
class Traffic:
    """The elements that devices receive in a step, summed over the devices.

    Attributes:
        step: the step.
        needed: elements of the receiver's target tile that are not in its source tile.
        passing: elements outside the receiver's target tile; a later step sends them on or drops them.
        again: elements of the receiver's target tile and of its source tile; an earlier step gave them away.
        padding: elements without data; they fill messages up to the size of the largest message of their round.

    >>> import redistrib as rd
    >>> traffic(rd.synthesize("[2{x}4]", "[4]", "x=2"))[0].needed
    4
    """

    step: Step
    needed: int
    passing: int
    again: int
    padding: int


def traffic(plan: Plan) -> list[Traffic]:
    """The elements that devices receive in each step, by the reason why they receive them.

    The sum of `needed` over all steps is at least the lower bound, and equal to it if no element arrives twice.

    Raises:
        PartialTypeError: tiles are partial sums in some placement. Then the needed elements depend on the devices that
            compute the sums.

    >>> import redistrib as rd
    >>> [one.needed for one in traffic(rd.synthesize("[1{x,y}6]", "[3{x}6]", "x=2,y=3"))]
    [2, 12]
    """
    plan.require_whole("traffic")
    return [_by_reason(plan, step) for step in plan.steps]


def _by_reason(plan: Plan, step: Step) -> Traffic:
    # a device receives the elements of its new tile that it does not retain
    tiles, local = step.after.boxes, step.retained()
    counts = [_difference(tiles, local)]
    for placement in (plan.after, plan.before):
        tiles, local = tiles.meet(placement.boxes), local.meet(placement.boxes)
        counts.append(_difference(tiles, local))
    data, of_target, again = counts
    padding = step.received_total() - data
    return Traffic(step, needed=of_target - again, passing=data - of_target, again=again, padding=padding)


def _difference(boxes: Boxes, subtracted: Boxes) -> int:
    return sum(boxes.volumes()) - sum(subtracted.volumes())


def explain(plan: Plan) -> str:
    """A table of the elements that each step receives, and the reasons why they exceed the lower bound.

    If tiles are partial sums, the table has the elements that steps add, apart from those that steps only move.

    >>> from redistrib import synthesize
    >>> plan = synthesize("[2{x}4, 4]", "[4, 2{x}4]", {"x": 2}, machine="exact")
    >>> print(explain(plan).splitlines()[-1])
    The plan receives exactly the lower bound: no plan can receive less.
    """
    if any(max(step.before.summands, step.after.summands) > 1 for step in plan.steps) or plan.source.partial:
        return _explain_sums(plan)
    rows, reasons = [], []
    for number, entry in enumerate(traffic(plan), 1):
        total = entry.needed + entry.passing + entry.again + entry.padding
        counts = (total, entry.needed, entry.passing, entry.again, entry.padding)
        rows.append([f"{number} {step_name(entry.step)}", *(f"{count:,}" for count in counts)])
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
                "box travels as large as the largest."
            )
    received, bound = sum(plan.received), sum(plan.lower_bound)
    table = rendered(
        "elements received, all devices", ["step", "received", "needed", "passing", "again", "padding"], rows
    )
    if received == bound:
        verdict = "The plan receives exactly the lower bound: no plan can receive less."
    else:
        verdict = (
            f"The plan receives {received:,} elements, {received / bound:.2f} times the lower bound of {bound:,}; "
            f"machine={plan.cost_model!r} prices fewer or larger collectives below the difference."
            if bound
            else f"The plan receives {received:,} elements where none are needed."
        )
    return "\n".join([table, *reasons, verdict, *(_between_devices(plan) if plan.leaves_devices_out else [])])


def _between_devices(plan: Plan) -> list[str]:
    """The elements that each step sends and moves to other devices, for a source and a target on different devices."""
    side = sides_of(plan.before)
    rows = []
    for number, step in enumerate(plan.steps, 1):
        counts = (max(step.sent()), step.crossing(side))
        rows.append([f"{number} {step_name(step)}", *(f"{count:,}" for count in counts)])
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
        f"same; machine={plan.cost_model!r} prices that below having them share it out.",
    ]


def _explain_sums(plan: Plan) -> str:
    rows = []
    for number, step in enumerate(plan.steps, 1):
        total, added = step.received_total(), 0
        if step.before.summands > step.after.summands:
            added = total // 2 if isinstance(step, AllReduce) else total  # the other half of an all-reduce is a gather
        rows.append([f"{number} {step_name(step)}", *(f"{count:,}" for count in (total, total - added, added))])
    table = rendered("elements received, all devices", ["step", "received", "to be kept", "to be added"], rows)
    received, bound = sum(plan.received), plan.least_received
    p, q = plan.before.summands, plan.after.summands
    source = f"{p} partial sums" if p > 1 else "whole tiles"
    target = f"{q} partial sums" if q > 1 else "whole tiles"
    if received == bound:
        return (
            f"{table}\nThe plan receives exactly the lower bound from {source} to {target}: no plan can receive less."
        )
    times = f", {received / bound:.2f} times the lower bound of {bound:,}" if bound else "; the lower bound is 0"
    open_end = (
        " That bound need not be reached where several devices hold one partial sum of the target."
        if q > 1 and plan.devices > plan.after.tiles * q
        else ""
    )
    return (
        f"{table}\nThe plan receives {received:,} elements{times}, from {source} to {target}; either "
        f"machine={plan.cost_model!r} prices fewer or larger collectives below the difference, or tiles of one size "
        f"cannot reach it.{open_end}"
    )
