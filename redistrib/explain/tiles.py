"""A picture of the tile that each device holds after every step of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from redistrib.errors import PictureError
from redistrib.errors.base import listed, shown
from redistrib.extras import need
from redistrib.plans.plan import Plan
from redistrib.plans.table import step_name
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Placement

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture(plan: Plan, path: str | Path, title: str | None = None) -> Path:
    """Draw the tiles of all devices before and after every step into a file, and return the path of the file.

    A panel shows the global array, of rank 1 or 2, cut into tiles. A tile has the colour of the first device that holds
    it, and the numbers of all devices that hold it. The holders of different partial sums are joined by a plus sign.

    Raises:
        PictureError: the rank is neither 1 nor 2, the array has no elements, the plan has more than 4096 devices, or
            matplotlib does not write files with this ending.
        MissingPackageError: matplotlib is not installed.
        OSError: the file cannot be written.

    >>> import tempfile, redistrib as rd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(picture(rd.synthesize("[2{x}4]", "[4]", "x=2"), f"{folder}/tiles.svg").name)
    tiles.svg
    """
    _check(plan)
    need("matplotlib")
    import matplotlib

    placements = [plan.before, *(step.after for step in plan.steps)]
    names = [f"source\n{plan.source}", *(f"after {step_name(step)}" for step in plan.steps)]
    names[-1] += f"\n{plan.target}"
    # A column needs room for the digits of its devices: the widest grid decides.
    columns = max((placement.grid[-1] for placement in placements if placement.rank), default=1)
    digits = len(str(plan.devices - 1))
    width = min(9.0, max(3.2, 0.105 * columns * (digits + 1.2)))
    figure = canvas(path, (width * len(placements), 3.7))
    axes = figure.subplots(1, len(placements), squeeze=False)
    colour = matplotlib.colormaps["turbo"](np.linspace(0.12, 0.95, plan.devices))
    for panel, placement, name in zip(axes[0], placements, names, strict=True):
        _draw(panel, placement, colour)
        panel.set_title(name, fontsize=9)
    figure.suptitle(title or f"{plan.devices} devices; a tile shows the devices that hold it", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    return Path(path)


def canvas(path: str | Path, size: tuple[float, float]) -> Figure:
    """An empty figure for a file.

    Args:
        path: the file; its ending determines the format.
        size: width and height in inches.

    Raises:
        PictureError: matplotlib does not write files with this ending.
    """
    need("matplotlib")
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.figure import Figure  # not pyplot, whose state belongs to the caller

    endings = FigureCanvasBase.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in endings:
        raise PictureError(f"cannot draw into {shown(str(path))}; end its name in one of {listed(sorted(endings), 32)}")
    return Figure(figsize=size)


def _check(plan: Plan) -> None:
    if len(plan.shape) not in (1, 2):
        raise PictureError(f"a picture shows arrays of rank 1 or 2, this one has rank {len(plan.shape)}")
    if not plan.source.global_size:
        raise PictureError(f"a picture shows arrays with elements, {plan.source} has none")
    if plan.devices > _MOST_DRAWN:
        raise PictureError(f"a picture shows at most {_MOST_DRAWN} devices, this plan has {plan.devices}")


_MOST_DRAWN = 4096  # devices; every panel has a rectangle and a text for each


def _draw(panel: Any, placement: Placement, colour: Any) -> None:
    from matplotlib.patches import Rectangle

    rows, columns = placement.shape if placement.rank == 2 else (1, placement.shape[0])
    holders: dict[Box, dict[int, list[int]]] = {}
    boxes, label = placement.boxes.rows(), placement.label.tolist()
    for device in placement.holders.tolist():
        holders.setdefault(boxes[device], {}).setdefault(label[device], []).append(device)
    for box, by_summand in holders.items():
        devices = next(iter(by_summand.values()))
        top, left = box.start if placement.rank == 2 else (0, *box.start)
        height, width = box.size if placement.rank == 2 else (1, *box.size)
        panel.add_patch(
            Rectangle((left, top), width, height, facecolor=colour[devices[0]], edgecolor="white", linewidth=1.2)
        )
        text = "\n+ ".join(map(_listed, by_summand.values()))
        lines = text.split("\n")
        inches = panel.figure.get_figwidth() / len(panel.figure.axes) * 0.9
        size = max(
            3.0, min(10.0, 105 * inches * width / columns / max(map(len, lines)), 170 * height / rows / len(lines))
        )
        red, green, blue, _ = colour[devices[0]]
        ink = "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.42 else "white"
        panel.text(left + width / 2, top + height / 2, text, ha="center", va="center", fontsize=size, color=ink)
    panel.set_xlim(0, columns)
    panel.set_ylim(rows, 0)
    panel.set_xticks([])
    panel.set_yticks([])
    panel.set_aspect("auto")


def _listed(devices: list[int]) -> str:
    if len(devices) <= 4:
        return ",".join(map(str, devices))
    return f"{devices[0]}..{devices[-1]}\n({len(devices)})"
