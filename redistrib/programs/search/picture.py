"""Seconds predicted and measured as a picture: a point for each candidate that was run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from redistrib.extras import need
from redistrib.programs.search.timed import Measured
from redistrib.report import counted


def draw(machine: str, runs: Sequence[tuple[float, Measured]], path: Path) -> None:
    """Draw seconds predicted for a machine over those measured, both on logarithmic axes."""
    need("matplotlib")
    from matplotlib.figure import Figure  # a figure outside pyplot leaves the caller's settings there as they are

    figure = Figure(figsize=(7, 6))
    axes = figure.subplots()
    predicted = np.array([seconds for seconds, _ in runs]) * 1e3
    measured = np.array([ran.seconds for _, ran in runs]) * 1e3
    spread = np.array([[min(ran.each), max(ran.each)] for _, ran in runs]).T * 1e3
    axes.errorbar(measured, predicted, xerr=abs(spread - measured), fmt="o", capsize=2, linewidth=0.8)
    for place, point in enumerate(zip(measured, predicted, strict=True), start=1):
        beside = (4, 4) if place % 2 else (4, -11)  # above and below, since neighbours may be close
        axes.annotate(str(place), point, xytext=beside, textcoords="offset points", fontsize=8)
    ends = [min(spread.min(), predicted.min()) * 0.8, max(spread.max(), predicted.max()) * 1.25]
    axes.plot(ends, ends, color="0.6", linewidth=0.8, label="predicted = measured")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_xlabel("measured, ms: median, least and most of the calls")
    axes.set_ylabel(f"predicted for {machine}, ms")
    axes.set_title(f"{counted(len(runs), 'candidate', 'candidates')}, numbered from the fastest measured")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
