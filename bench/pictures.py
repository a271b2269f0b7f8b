"""The pictures of the report, each from the records of the benches it shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.scaling import SERIES
from bench.stats import quantile
from bench.summary import OURS, XLA, Record, by_set, bytes_ratio, compiled, speed, speed_of, timed

COLOURS = {
    "ours": "#0b6e4f",
    "XLA": "#c8553d",
    "ours, TPU": "#63c5a0",
    "XLA, TPU": "#f0a78f",
    "DTensor, shipped": "#6f7bb7",
    "DTensor, Dijkstra": "#2b3a67",
    "ours, latency model": "#63c5a0",
    "the paper's search": "#c9a227",
}
FAR = 1e9  # beyond any axis
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
    """Ours against XLA's run time, a point per problem, log axes, one panel per bench."""
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
    """How the ratios XLA / ours are distributed, on a log axis, with the geometric mean and one."""
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


def _cumulative(ax: Axes, label: str, values: Sequence[float], total: int) -> None:
    """Share of all `total` problems at or below each value; what a system could not do never arrives."""
    xs = np.sort(np.asarray(values, dtype=float))
    ys = np.arange(1, len(xs) + 1) / total
    missing = f", {total - len(xs)} failed" if len(xs) < total else ""
    xs, ys = np.concatenate([[xs[0]], xs]), np.concatenate([[0.0], ys])
    ax.step(xs, ys, where="post", label=f"{label}{missing}", color=COLOURS[label], linewidth=1.7)
    ax.plot([xs[-1], FAR], [ys[-1], ys[-1]], color=COLOURS[label], linewidth=1.7)


def over_bound(panels: dict[str, dict[str, tuple[list[float], int]]], path: Path) -> None:
    """Received bytes over the lower bound, cumulative, a curve per system and a panel per set."""
    columns = 2
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(10, 3.1 * rows), squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    for ax, (title, systems) in zip(axes.flat, panels.items(), strict=False):
        for label, (values, total) in systems.items():
            if values:
                _cumulative(ax, label, values, total)
        top = max(max(v) for v, _ in systems.values() if v)
        ax.set(
            xscale="log",
            xlim=(0.93, max(2.0, top) * 1.1),
            ylim=(0, 1.03),
            title=title,
            xlabel="received bytes over the lower bound",
            ylabel="share of problems",
        )
        ax.set_xticks([t for t in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128) if t <= max(2.0, top) * 1.1])
        _plain_ticks(ax.xaxis)
        ax.legend(loc="lower right", fontsize=8)
    _save(figure, path)


def scratch(panels: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Scratch the compiler reports over the larger tile, cumulative; zero stands at the left edge."""
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.6), squeeze=False)
    for ax, (title, systems) in zip(axes[0], panels.items(), strict=True):
        floor = 0.01
        for label, values in systems.items():
            if values:
                _cumulative(ax, label, [max(v, floor) for v in values], len(values))
        ax.axvline(1.0, color="black", linewidth=1, linestyle="--")
        ax.set(
            xscale="log",
            xlim=(floor / 1.3, max([2.0, *(v for values in systems.values() for v in values)]) * 1.3),
            ylim=(0, 1.03),
            title=title,
            xlabel="scratch over the larger tile (0.01: that or less)",
            ylabel="share of problems",
        )
        _plain_ticks(ax.xaxis)
        ax.legend(loc="upper left", fontsize=8)
    _save(figure, path)


PLANNERS = {
    "best": "ours",
    "latency": "ours, latency model",
    "paper": "the paper's search",
    "shipped": "DTensor, shipped",
    "dijkstra": "DTensor, Dijkstra",
}


def planning(records: list[Record], limit: float, path: Path) -> None:
    """Seconds to plan against devices, rank and primes: medians as lines, the worst problem as dots."""
    figure, axes = plt.subplots(
        2, len(SERIES), figsize=(13, 6.4), sharex="col", gridspec_kw={"height_ratios": [1.6, 1]}
    )
    for column, series in enumerate(SERIES):
        top, bottom = axes[0, column], axes[1, column]
        for key, label in PLANNERS.items():
            rows = [
                (p, r)
                for p in series.points
                for r in records
                if r["series"] == series.name and r["point"] == p and "plan_s" in r.get(key, {})
            ]
            points = sorted({p for p, _ in rows})
            if not points:
                continue
            seconds = [[r[key]["plan_s"] for q, r in rows if q == p] for p in points]
            quality = [[r[key]["received"] / r["bound"] for q, r in rows if q == p] for p in points]
            colour = COLOURS[label]
            top.plot(points, [quantile(s, 0.5) for s in seconds], "o-", markersize=3, color=colour, label=label)
            top.plot(points, [max(s) for s in seconds], ".", markersize=3, color=colour, alpha=0.6)
            bottom.plot(points, [float(np.exp(np.mean(np.log(q)))) for q in quality], "o-", markersize=3, color=colour)
        top.axhline(limit, color="black", linewidth=1, linestyle=":")
        top.set(yscale="log", title=series.label)
        bottom.set(yscale="log", xlabel=series.label)
        if series.name == "devices":
            for ax in (top, bottom):
                ax.set_xscale("log", base=2)
            bottom.set_xticks([8, 64, 512, 4096, 32768])
            bottom.set_xticklabels(["8", "64", "512", "4,096", "32,768"])
        else:
            bottom.set_xticks(series.points)
        _plain_ticks(top.yaxis)
        _plain_ticks(bottom.yaxis)
    axes[0, 0].set_ylabel("seconds to plan")
    axes[1, 0].set_ylabel("bytes over bound, geomean")
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9)
    figure.suptitle(
        f"A planner's line ends where most problems pass {limit:g} s (dotted); small dots are the worst problem",
        fontsize=9,
    )
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def over_bound_values(records: list[Record], side: str) -> tuple[list[float], int]:
    """Ratios of the problems a side compiled, and how many problems there were."""
    return [max(bytes_ratio(r, side), 1e-9) for r in records if compiled(r, side)], len(records)


def scratch_values(records: list[Record], side: str) -> list[float]:
    return [(r[side]["scratch"] or 0) / r["tile"] for r in records if compiled(r, side)]


def predicted(records: list[Record], path: Path) -> None:
    """Predicted against measured seconds of a step, a point for each layout, log axes, a colour for each batch size."""
    from bench.pipelines import measured

    figure, ax = plt.subplots(figsize=(5.6, 5.0))
    fine = [record for record in records if "times" in record]
    for k, batch in enumerate(dict.fromkeys(record["batch"] for record in fine)):
        own = [record for record in fine if record["batch"] == batch]
        xs, ys = [record["predicted"] for record in own], [measured(record) for record in own]
        ax.scatter(xs, ys, s=26, c=f"C{k}", marker=MARKS[k % len(MARKS)], linewidths=0, label=f"{batch} examples")
        for record, x, y in zip(own, xs, ys, strict=True):
            ax.annotate(record["layout"], (x, y), xytext=(4, 2), textcoords="offset points", fontsize=6)
    ends = [value for record in fine for value in (record["predicted"], measured(record))]
    low, high = min(ends) / 1.3, max(ends) * 1.3
    ax.plot([low, high], [low, high], color="black", linewidth=1)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.set(title="A step of a transformer, D/T/P/K on four hosts", xlabel="predicted, s", ylabel="measured, s")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        _plain_ticks(axis)
    ax.legend(loc="lower right")
    figure.savefig(path)
    plt.close(figure)
