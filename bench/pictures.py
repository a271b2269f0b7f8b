"""The pictures of the report, drawn from the saved records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.results import Record, Results
from bench.summary import OURS, XLA, by_set, speed, speed_of, timed

COLOURS = {"ours": "#0b6e4f", "XLA": "#c8553d"}
PANELS = {
    "cluster": "emulated cluster, 4 hosts x 2 devices",
    "xla_cpu": "virtual CPU devices of one process",
}
MARKS = "os^Dvp*hX<>d"

plt.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "figure.constrained_layout.use": True,
        "savefig.dpi": 130,
        "axes.axisbelow": True,
        "legend.frameon": False,
    }
)


def _plain(value: float, _: int) -> str:
    return f"{value:g}"


def _plain_ticks(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_formatter(NullFormatter())


def run_times(panels: dict[str, list[Record]], path: Path) -> None:
    """Ours against XLA's run time: a point per problem, logarithmic axes, one panel per suite."""
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.6), squeeze=False)
    names = list(dict.fromkeys(name for records in panels.values() for name in by_set(timed(records))))
    for ax, (title, records) in zip(axes[0], panels.items(), strict=True):
        points = []
        for name, group in by_set(timed(records)).items():
            mark, colour = MARKS[names.index(name) % len(MARKS)], f"C{names.index(name)}"
            xs = [float(np.median(r["times"][XLA])) * 1e3 for r in group]
            ys = [float(np.median(r["times"][OURS])) * 1e3 for r in group]
            points += xs + ys
            ax.scatter(xs, ys, s=18, c=colour, marker=mark, alpha=0.7, linewidths=0, label=f"{name} ({len(group)})")
        low, high = min(points) / 1.3, max(points) * 1.3
        ax.plot([low, high], [low, high], color="black", linewidth=1)
        ax.set(
            xscale="log",
            yscale="log",
            xlim=(low, high),
            ylim=(low, high),
            aspect="equal",
            title=title,
            xlabel="XLA's reshard, ms",
            ylabel="ours, ms",
        )
        for axis in (ax.xaxis, ax.yaxis):
            _plain_ticks(axis)
        ax.text(0.97, 0.05, "ours is faster", transform=ax.transAxes, ha="right", color="#555555")
        ax.legend(loc="upper left", fontsize=8, handletextpad=0.2, borderpad=0.2)
    _save(figure, path)


def ratios(panels: dict[str, list[Record]], path: Path) -> None:
    """Histograms of the ratios XLA / ours on a logarithmic axis, with lines at the geometric mean and at 1."""
    figure, axes = plt.subplots(len(panels), 1, figsize=(7.2, 2.5 * len(panels)), squeeze=False)
    for ax, (title, records) in zip(axes[:, 0], panels.items(), strict=True):
        values = np.array([speed(r).value for r in timed(records)])
        edges = np.geomspace(min(values.min(), 0.5) / 1.05, max(values.max(), 2.0) * 1.05, 45)
        ax.hist(values, bins=edges, color=COLOURS["ours"], alpha=0.75)
        mean = speed_of(records)
        ax.axvline(1.0, color="black", linewidth=1, linestyle="--")
        ax.axvline(mean.value, color=COLOURS["XLA"], linewidth=1.5)
        ax.set(
            xscale="log",
            ylabel="problems",
            title=f"{title}: {len(values)} problems, geometric mean {mean.value:.2f} (red), "
            f"from {values.min():.2f} to {values.max():.2f}",
        )
        ax.title.set_fontsize(9)
        ax.set_xticks(
            [t for t in (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32) if edges[0] <= t <= edges[-1]]
        )
        _plain_ticks(ax.xaxis)
        ax.grid(axis="x", visible=False)
    axes[-1, 0].set_xlabel("XLA's time over ours (right of the dashed line ours is faster)")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def draw(results: Results, folder: Path) -> None:
    """Draw the run times and their ratios, for the suites that have results."""
    panels = {title: results.records(name) for name, title in PANELS.items() if timed(results.records(name))}
    if panels:
        run_times(panels, folder / "run-times.png")
        ratios(panels, folder / "ratios.png")
