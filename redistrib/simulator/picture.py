"""The timeline of a simulation as a picture: a row for each clock and stream, and the bytes held below."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from redistrib.extras import need
from redistrib.simulator.clocks import Event, Run
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
    scale, unit = (1e6, "µs") if width < 1e-3 else (1e3, "ms")
    for event in run.events:
        row = rows.index((event.clock, event.stream))
        for name, start, length, note in _boxes(event):
            is_move = event.kind == "move"
            above.barh(
                row, length * scale, left=start * scale, color="0.75" if is_move else colours[event.name],
                edgecolor="black", linewidth=0.4, hatch="///" if is_move else None,
            )  # fmt: skip
            if length > _LABELLED * width:
                room = int(200 * length / width)
                label = name if len(name) < room else f"{name[:8]}…"
                if note and len(note) < 0.7 * room:
                    label += f"\n{note}"
                backing = {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if is_move else None
                middle = (start + length / 2) * scale
                above.text(middle, row, label, ha="center", va="center", fontsize=7, bbox=backing)
    above.set_yticks(range(len(rows)), [_row(run, clock, stream) for clock, stream in rows])
    above.invert_yaxis()
    above.set_title(f"{title}: {seconds * scale:,.3f} {unit}; moves are hatched")
    most = max((event.during for event in run.events), default=0)
    size, of = (1e6, "MB") if most >= 1e5 else (1.0, "bytes")
    for clock in clocks:
        _held(below, run, clock, scale, size)
    below.set_xlabel(unit)
    below.set_ylabel(f"{of} held by a device")
    below.set_ylim(bottom=0)
    below.legend(fontsize=7, ncols=4, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _boxes(event: Event) -> Iterator[tuple[str, float, float, str]]:
    """Name, start, seconds and a note of what is drawn for an operation: of a move each of its steps."""
    if event.kind != "move" or not event.stages:
        yield event.name, event.start, event.end - event.start, ""
        return
    at = event.start
    for k, stage in enumerate(event.stages, 1):
        length = max(0.0, min(stage.seconds, event.end - at))
        several = f"{k} " if len(event.stages) > 1 else ""
        yield f"{event.name}: {several}{stage.name}", at, length, stage.note or f"{length * 1e6:,.1f} µs"
        at += length


def _held(axes: Any, run: Run, clock: int, scale: float, unit: float) -> None:
    samples = [sample for event in run.events if event.clock == clock for sample in held_by(event)]
    samples.sort(key=lambda sample: sample[0])
    times, sizes = [at * scale for at, _ in samples], [size / unit for _, size in samples]
    axes.step(times, sizes, where="post", label=_row(run, clock, ""))


def _row(run: Run, clock: int, stream: str) -> str:
    alike = [device for device, other in run.clock_of.items() if other == clock]
    name = f"device {clock}" if len(alike) == 1 else f"{len(alike)} devices from {clock}"
    return f"{name}, {stream}" if stream else name
