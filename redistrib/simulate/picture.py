"""The timeline of a simulation as a picture: a row for each clock and stream, and the bytes held below."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from redistrib.simulate.trace import held_by

if TYPE_CHECKING:
    from redistrib.simulate.result import Simulation

_LABELLED = 0.035  # of the width: what a box must have to hold its name


def draw(found: Simulation, path: Path) -> None:
    """Draw a simulation whose events were kept."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = sorted({(event.clock, event.stream) for event in found.events})
    clocks = sorted(set(found.run.clock_of.values()))
    fig, (above, below) = plt.subplots(
        2, 1, sharex=True, figsize=(14, 1.6 + 0.5 * len(rows) + 2.4), height_ratios=[max(1, len(rows)) * 0.5, 2.0]
    )
    names = list(dict.fromkeys(event.name for event in found.events if event.kind == "compute"))
    colours = {name: plt.get_cmap("tab20")(k % 20) for k, name in enumerate(names)}
    width = found.seconds or 1.0
    for event in found.events:
        row = rows.index((event.clock, event.stream))
        length = event.end - event.start
        is_move = event.kind == "move"
        colour = "0.75" if is_move else colours[event.name]
        above.barh(
            row, length * 1e3, left=event.start * 1e3, color=colour, edgecolor="black", linewidth=0.4,
            hatch="///" if is_move else None,
        )  # fmt: skip
        if length > _LABELLED * width:
            label = event.name if len(event.name) < 200 * length / width else f"{event.name[:8]}…"
            backing = {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if is_move else None
            above.text((event.start + length / 2) * 1e3, row, label, ha="center", va="center", fontsize=7, bbox=backing)
    above.set_yticks(range(len(rows)), [_row(found, clock, stream) for clock, stream in rows])
    above.invert_yaxis()
    above.set_title(f"{found.program.name} on {found.machine.name}: {found.seconds * 1e3:,.3f} ms; moves are hatched")
    for clock in clocks:
        _held(below, found, clock)
    below.set_xlabel("ms")
    below.set_ylabel("MB held by a device")
    below.set_ylim(bottom=0)
    below.legend(fontsize=7, ncols=4, loc="lower right")
    fig.tight_layout()
    fig.savefig(path, dpi=120)
    plt.close(fig)


def _held(axes: Any, found: Simulation, clock: int) -> None:
    samples = [sample for event in found.events if event.clock == clock for sample in held_by(event)]
    samples.sort(key=lambda sample: sample[0])
    times, sizes = [at * 1e3 for at, _ in samples], [size / 1e6 for _, size in samples]
    axes.step(times, sizes, where="post", label=_row(found, clock, ""))


def _row(found: Simulation, clock: int, stream: str) -> str:
    alike = [device for device, own in found.run.clock_of.items() if own == clock]
    name = f"device {clock}" if len(alike) == 1 else f"{len(alike)} devices from {clock}"
    return f"{name}, {stream}" if stream else name
