"""The timeline of a simulation as a picture: a row for each clock and stream, and the bytes held below.

The steps of a plan are boxes in the colour of the links that carry them, with a line between two rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from redistrib.extras import need
from redistrib.programs.time.clocks import Event, Run
from redistrib.programs.time.stages import timed_stages
from redistrib.programs.time.trace import byte_samples
from redistrib.report import seconds_text

_LABELLED = 0.035  # the part of the width from which a box holds its name
_LINKS = {"": "0.75", "inside hosts": "lightskyblue", "between hosts": "salmon"}


def draw(run: Run, title: str, path: Path) -> None:
    """Draw a run whose events were kept."""
    need("matplotlib")
    import matplotlib
    from matplotlib.figure import Figure  # a figure outside pyplot leaves the caller's settings there as they are
    from matplotlib.patches import Patch

    rows = sorted({(event.clock, event.stream) for event in run.events})
    clocks = sorted(set(run.clock_of.values()))
    figure = Figure(figsize=(14, 1.6 + 0.5 * len(rows) + 2.4))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[max(1, len(rows)) * 0.5, 2.0])
    names = list(dict.fromkeys(event.name for event in run.events if event.kind == "compute"))
    colours = {name: matplotlib.colormaps["tab20"](k % 20) for k, name in enumerate(names)}
    seconds = max(run.now.values(), default=0.0)
    width = seconds or 1.0
    scale, unit = (1e6, "us") if width < 1e-3 else (1e3, "ms")
    carriers: dict[str, str] = {}
    for event in run.events:
        row = rows.index((event.clock, event.stream))
        for box in _boxes(event):
            is_move = event.kind == "move"
            if is_move:
                carriers[box.links] = _LINKS[box.links]
            above.barh(
                row, box.seconds * scale, left=box.start * scale,
                color=_LINKS[box.links] if is_move else colours[event.name],
                edgecolor="black", linewidth=0.4, hatch="///" if is_move else None,
            )  # fmt: skip
            for at in box.rounds[1:]:
                above.vlines(at * scale, row - 0.4, row + 0.4, color="black", linewidth=1.2)
            if box.seconds > _LABELLED * width:
                room = int(200 * box.seconds / width)
                label = box.name if len(box.name) < room else f"{box.name[:8]}…"
                if box.note and len(box.note) < 0.7 * room:
                    label += f"\n{box.note}"
                backing = {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if is_move else None
                middle = (box.start + box.seconds / 2) * scale
                above.text(middle, row, label, ha="center", va="center", fontsize=7, bbox=backing)
    if set(carriers) - {""}:
        handles = [Patch(facecolor=colour, edgecolor="black", label=name) for name, colour in carriers.items() if name]
        above.legend(handles=handles, fontsize=7, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    above.set_yticks(range(len(rows)), [run.row(clock, stream) for clock, stream in rows])
    above.invert_yaxis()
    above.set_title(f"{title}: {seconds_text(seconds)}; moves are hatched")
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


class _Box(NamedTuple):
    """A box of the timeline, in seconds; `rounds` are the times at which the rounds of a step begin."""

    name: str
    start: float
    seconds: float
    note: str = ""
    links: str = ""
    rounds: tuple[float, ...] = ()


def _boxes(event: Event) -> Iterator[_Box]:
    """The boxes of an operation: of a move one for each of its steps."""
    if event.kind != "move" or not event.stages:
        yield _Box(event.name, event.start, event.end - event.start)
        return
    for k, timed in enumerate(timed_stages(event), 1):
        step_number = f"{k} " if len(event.stages) > 1 else ""
        name = f"{event.name}: {step_number}{timed.stage.name}"
        note = timed.stage.note or seconds_text(timed.seconds)
        yield _Box(name, timed.start, timed.seconds, note, timed.links, timed.begins if timed.rounds else ())


def _held(axes: Any, run: Run, clock: int, scale: float, unit: float) -> None:
    samples = [sample for event in run.events if event.clock == clock for sample in byte_samples(event)]
    samples.sort(key=lambda sample: sample[0])
    times, sizes = [at * scale for at, _ in samples], [size / unit for _, size in samples]
    axes.step(times, sizes, where="post", label=run.row(clock))
