"""How to see a plan: why it receives what it does, and a picture of who holds what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redistrib.errors import PictureError
from redistrib.errors.base import listed, shown
from redistrib.plans.plan import Plan
from redistrib.plans.steps import Step
from redistrib.plans.table import what
from redistrib.plans.transfers import stays
from redistrib.report import rendered
from redistrib.theory.boxes import Box, Boxes
from redistrib.theory.semantics import Placement


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
        PartialTypeError: if tiles of the plan are summands.
    """
    plan.require_whole("explain")
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

    >>> from redistrib import synthesize
    >>> plan = synthesize("[2{x}4, 4]", "[4, 2{x}4]", {"x": 2}, cost_model="exact")
    >>> print(explain(plan).splitlines()[-1])
    The plan receives exactly the lower bound: no plan can receive less.
    """
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
    return "\n".join([table, *reasons, verdict])


def picture(plan: Plan, path: str | Path, title: str | None = None) -> Path:
    """Draw who holds what before and after every step, for an array of rank 1 or 2, and write it to a file.

    Each panel is the global array cut into tiles; a tile is coloured by where its first holder's data came from and
    names the devices that hold it.

    Raises:
        PictureError: if the rank is neither 1 nor 2, the array has no elements, or the file's name does not end in
            that of a format that matplotlib writes.
        PartialTypeError: if tiles of the plan are summands.
        OSError: if the file cannot be written.
    """
    plan.require_whole("picture")
    _check_picture(plan, Path(path))
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    placements = [plan.before, *(step.after for step in plan.steps)]
    names = [f"source\n{plan.source}", *(f"after {what(step)}" for step in plan.steps)]
    names[-1] += f"\n{plan.target}"
    figure, axes = plt.subplots(1, len(placements), figsize=(3.2 * len(placements), 3.7), squeeze=False)
    colour = plt.get_cmap("turbo")(np.linspace(0.12, 0.95, plan.devices))
    for panel, placement, name in zip(axes[0], placements, names, strict=True):
        _draw(panel, placement, colour)
        panel.set_title(name, fontsize=9)
    figure.suptitle(title or f"{plan.devices} devices; a tile shows the devices that hold it", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return Path(path)


def _check_picture(plan: Plan, path: Path) -> None:
    from matplotlib.backend_bases import FigureCanvasBase

    if len(plan.shape) not in (1, 2):
        raise PictureError(f"a picture shows arrays of rank 1 or 2, this one has rank {len(plan.shape)}")
    if not plan.source.global_size:
        raise PictureError(f"a picture shows arrays with elements, {plan.source} has none")
    if plan.devices > _MOST_DRAWN:
        raise PictureError(f"a picture shows at most {_MOST_DRAWN} devices, this plan has {plan.devices}")
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise PictureError(f"cannot draw into {shown(str(path))}; end its name in one of {listed(sorted(known), 32)}")


_MOST_DRAWN = 4096  # a rectangle and a text for each, in every panel


def _draw(panel: Any, placement: Placement, colour: Any) -> None:
    from matplotlib.patches import Rectangle

    rows, columns = placement.shape if placement.rank == 2 else (1, placement.shape[0])
    holders: dict[Box, list[int]] = {}
    for device, box in enumerate(placement.boxes.rows()):
        holders.setdefault(box, []).append(device)
    for box, devices in holders.items():
        top, left = box.start if placement.rank == 2 else (0, *box.start)
        height, width = box.size if placement.rank == 2 else (1, *box.size)
        panel.add_patch(
            Rectangle((left, top), width, height, facecolor=colour[devices[0]], edgecolor="white", linewidth=1.2)
        )
        text = _listed(devices)
        size = max(4.0, min(9.0, 150 * width / columns / max(2, max(map(len, text.split("\n"))))))
        panel.text(left + width / 2, top + height / 2, text, ha="center", va="center", fontsize=size, color="black")
    panel.set_xlim(0, columns)
    panel.set_ylim(rows, 0)
    panel.set_xticks([])
    panel.set_yticks([])
    panel.set_aspect("auto")


def _listed(devices: list[int]) -> str:
    if len(devices) <= 4:
        return ",".join(map(str, devices))
    return f"{devices[0]}..{devices[-1]}\n({len(devices)})"
