"""What the report says of DTensor: its planners, counted, and its moves on the emulated cluster."""

from __future__ import annotations

from bench.dtensor_run import speeds
from bench.markdown import table
from bench.results import Results
from bench.stats import bootstrap_geomean, geomean, quantile
from bench.summary import Record, by_set, bytes_ratio, compiled

PLANNERS = {"shipped": "DTensor, shipped", "dijkstra": "DTensor, Dijkstra"}

COUNTED = """## DTensor

PyTorch {torch}, planned on pretended process groups, counted by the same rules. "Shipped" is what `redistribute` does
by default, "Dijkstra" the planner behind `use_min_cost_redistribution_plan`. Both have {limit_s:g} s per problem.
"""

RUN = """### DTensor on the emulated cluster

Wall time of DTensor's public `redistribute` with eight gloo processes on the same network, against ours as above; the
two take turns problem by problem but share no buffers. {left_out} problems were left out because the public interface
cannot order their axes. On gloo DTensor's all-to-all is an all-gather and a slice.
"""


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    planned, run = found.records("dtensor"), found.records("dtensor_run")
    counted = [COUNTED.format(**found.settings("dtensor")), _planners(planned)] if planned else []
    return [*counted, *([RUN.format(**found.settings("dtensor_run")), _speeds(run)] if run else [])]


def _planners(records: list[Record]) -> str:
    rows = []
    for name, group in by_set(records).items():
        for key, label in PLANNERS.items():
            done = [r for r in group if compiled(r, key)]
            values = [bytes_ratio(r, key) for r in done]
            over = sum(r[key]["largest"] > r["tile"] for r in done) / max(1, len(done))
            seconds = [r[key]["plan_s"] for r in done]
            ratio = f"{geomean(values):.2f} / {max(values, default=0):.1f}"
            rows.append([name, label, f"{len(done)} of {len(group)}", ratio, f"{over:.0%}",
                         f"{quantile(seconds, 0.5):.4f} / {max(seconds, default=0):.2f}"])  # fmt: skip
    return table(["set", "planner", "planned", "bytes/bound geomean / max", "over", "seconds median / max"], rows)


def _speeds(records: list[Record]) -> str:
    rows = []
    for key, label in PLANNERS.items():
        values = speeds(records, key)
        if values:
            rows.append(
                [label, str(len(values)), str(bootstrap_geomean(values)), f"{max(values):.1f}", f"{min(values):.2f}"]
            )
    return table(["planner", "problems", "DTensor's time over ours, geomean [95%]", "best", "worst"], rows)
