"""The best candidates, run, beside what was predicted for them (DistIR, section 6.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redistrib.autoshard.timed import Measured, Timed
from redistrib.extras import need
from redistrib.report import ShownInNotebooks, counted, rendered


@dataclass(frozen=True)
class Ranking(ShownInNotebooks):
    """Candidates that were run, the fastest first.

    Attributes:
        machine: name of the machine that the seconds were predicted for.
        runs: name of each candidate, its place by prediction, from 1, seconds predicted, and seconds of its calls.
    """

    machine: str
    runs: tuple[tuple[str, int, float, Measured], ...]

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of predicted and measured seconds; NaN where either are all equal or there is
        one candidate."""
        from scipy.stats import spearmanr

        predicted, measured = ([run[2] for run in self.runs], [run[3].seconds for run in self.runs])
        if len(set(predicted)) < 2 or len(set(measured)) < 2:
            return float("nan")
        return float(spearmanr(predicted, measured).statistic)

    def picture(self, path: str | Path) -> Path:
        """Draw predicted over measured seconds, a point for each candidate. Needs matplotlib."""
        need("matplotlib")
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 6))
        axes = figure.subplots()
        measured = np.array([run[3].seconds for run in self.runs]) * 1e3
        predicted = np.array([run[2] for run in self.runs]) * 1e3
        spread = np.array([[min(run[3].each), max(run[3].each)] for run in self.runs]).T * 1e3
        axes.errorbar(measured, predicted, xerr=abs(spread - measured), fmt="o", capsize=2, linewidth=0.8)
        for place, (x, y) in enumerate(zip(measured, predicted, strict=True), start=1):
            axes.annotate(str(place), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
        ends = [min(spread.min(), predicted.min()) * 0.8, max(spread.max(), predicted.max()) * 1.25]
        axes.plot(ends, ends, color="0.6", linewidth=0.8, label="predicted = measured")
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel("measured, ms: median, least and most of the calls")
        axes.set_ylabel(f"predicted for {self.machine}, ms")
        axes.set_title(f"{counted(len(self.runs), 'candidate', 'candidates')}, numbered from the fastest measured")
        axes.legend(loc="lower right")
        figure.tight_layout()
        figure.savefig(Path(path), dpi=120)
        return Path(path)

    def __str__(self) -> str:
        rows = [
            [name, str(place), f"{seconds * 1e3:,.3f}", f"{ran.seconds * 1e3:,.3f}", f"{seconds / ran.seconds:.3g}"]
            for name, place, seconds, ran in self.runs
        ]
        title = f"{counted(len(rows), 'candidate', 'candidates')} run, predicted for {self.machine}"
        columns = ["devices", "place predicted", "ms predicted", "ms measured", "predicted / measured"]
        correlation = "" if np.isnan(self.correlation) else f"\nrank correlation {self.correlation:.2f}"
        return rendered(title, columns, rows) + correlation


def ranked(
    candidates: Sequence[Timed], args: Sequence[Any], repeats: int, machine: str, report_progress: Callable[[str], None]
) -> Ranking:
    """Run candidates in the order of their predictions, and rank them by the seconds of their calls."""
    runs = []
    for place, one in enumerate(candidates, start=1):
        report_progress(f"{place} of {len(candidates)}: {one.name}")
        runs.append((one.name, place, one.seconds, one.measure(args, repeats)))
    return Ranking(machine, tuple(sorted(runs, key=lambda run: run[3].seconds)))
