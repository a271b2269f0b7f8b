"""The timeline of a simulation as a picture: a row for each clock and stream, and the bytes held below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redistrib.extras import need
from redistrib.simulator.clocks import Run
from redistrib.simulator.trace import held_by

_LABELLED = 0.035  # of the width: what a box must have to hold its name


def draw(run: Run, title: str, path: Path) -> None:
    """Draw a run whose events were kept."""
    need("matplotlib")
    import matplotlib
    from matplotlib.figure import Figure  # a figure of its own: what the caller has set in pyplot stays as it is

    rows = sorted({(event.clock, event.stream) for event in run.events})
    clocks = sorted(set(run.clock_of.values()))
    figure = Figure(figsize=(14, 1.6 + 0.5 * len(rows) + 2.4))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[max(1, len(rows)) * 0.5, 2.0])
    names = list(dict.fromkeys(event.name for event in run.events if event.kind == "compute"))
    colours = {name: matplotlib.colormaps["tab20"](k % 20) for k, name in enumerate(names)}
    seconds = max(run.now.values(), default=0.0)
    width = seconds or 1.0
    for event in run.events:
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
    above.set_yticks(range(len(rows)), [_row(run, clock, stream) for clock, stream in rows])
    above.invert_yaxis()
    above.set_title(f"{title}: {seconds * 1e3:,.3f} ms; moves are hatched")
    for clock in clocks:
        _held(below, run, clock)
    below.set_xlabel("ms")
    below.set_ylabel("MB held by a device")
    below.set_ylim(bottom=0)
    below.legend(fontsize=7, ncols=4, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _held(axes: Any, run: Run, clock: int) -> None:
    samples = [sample for event in run.events if event.clock == clock for sample in held_by(event)]
    samples.sort(key=lambda sample: sample[0])
    times, sizes = [at * 1e3 for at, _ in samples], [size / 1e6 for _, size in samples]
    axes.step(times, sizes, where="post", label=_row(run, clock, ""))


def _row(run: Run, clock: int, stream: str) -> str:
    alike = [device for device, own in run.clock_of.items() if own == clock]
    name = f"device {clock}" if len(alike) == 1 else f"{len(alike)} devices from {clock}"
    return f"{name}, {stream}" if stream else name
