"""Records of a paired bench, summed up per set: what the report writes and what a bench prints when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.markdown import table
from bench.stats import Interval, bootstrap_geomean, geomean, paired_ratio, quantile

Record = dict[str, Any]

OURS, XLA = "ours", "xla"


@dataclass(frozen=True)
class Sides:
    """One system's counts over the problems of a set that it could compile.

    Attributes:
        problems: how many.
        over_bound: received bytes over the lower bound: geomean, 90% quantile, largest.
        over_tile: share of problems with an array larger than the larger tile.
        scratch: scratch over the larger tile: median, 90% quantile, largest.
        scratch_total: bytes of scratch added over problems.
        compile_s: median seconds to compile, planning included.
    """

    problems: int
    over_bound: tuple[float, float, float]
    over_tile: float
    scratch: tuple[float, float, float]
    scratch_total: int
    compile_s: float


def set_name(record: Record) -> str:
    """The set a record belongs to: the part of the problem's name before the slash."""
    name: str = record["problem"]["name"]
    if "/" in name:
        return name.split("/")[0]
    if name.startswith("swap"):
        return "swap"
    return "paper" if name[:1] == "P" and name[1:].isdigit() else "layouts"


def by_set(records: list[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(set_name(record), []).append(record)
    return groups


def compiled(record: Record, side: str) -> bool:
    return "received" in record.get(side, {})


def fate(record: Record, side: str) -> str:
    """ "ok", "error", "crash" or "limit": what became of one side's compilation."""
    if compiled(record, side):
        return "ok"
    entry = record.get(side, {})
    if "error" in entry or "fate" in entry:
        return str(entry.get("fate", "error"))
    return str(record["status"]) if record.get("stage") == side else "not reached"


def bytes_ratio(record: Record, side: str) -> float:
    return float(record[side]["received"]) / float(record["bound"])


def sides(records: list[Record], side: str) -> Sides:
    """Counts of one side over the records it compiled."""
    done = [r for r in records if compiled(r, side)]
    ratios = [bytes_ratio(r, side) for r in done]
    scratch = [(r[side]["scratch"] or 0) / r["tile"] for r in done]
    return Sides(
        problems=len(done),
        over_bound=(geomean([max(x, 1e-9) for x in ratios]), quantile(ratios, 0.9), max(ratios, default=float("nan"))),
        over_tile=sum(r[side]["largest"] > r["tile"] for r in done) / max(1, len(done)),
        scratch=(quantile(scratch, 0.5), quantile(scratch, 0.9), max(scratch, default=float("nan"))),
        scratch_total=sum(r[side]["scratch"] or 0 for r in done),
        compile_s=quantile([r[side]["compile_s"] + r[side].get("plan_s", 0.0) for r in done], 0.5),
    )


def timed(records: list[Record]) -> list[Record]:
    return [r for r in records if len(r.get("times", {}).get("ours", [])) and len(r["times"].get("xla", []))]


def speed(record: Record) -> Interval:
    """XLA's time over ours on one problem, with its noise interval."""
    return paired_ratio(record["times"]["xla"], record["times"]["ours"])


def speed_of(records: list[Record]) -> Interval:
    """Geomean over problems of the per-problem median ratios."""
    return bootstrap_geomean([speed(r).value for r in timed(records)])


def slower_than(records: list[Record], limit: float) -> list[Record]:
    """Problems on which ours is slower than `limit` times XLA's speed beyond the problem's noise interval."""
    return [r for r in timed(records) if speed(r).high < limit]


def xla_gathers(record: Record) -> bool:
    """Whether XLA holds an array larger than the larger tile on the way."""
    return compiled(record, "xla") and record["xla"]["largest"] > record["tile"]


def speed_table(records: list[Record], limit: float) -> str:
    """A row for each set of timed records; those below `limit` beyond noise are counted."""
    rows = []
    for name, group in by_set(timed(records)).items():
        values = [speed(r).value for r in group]
        gathers = [r for r in group if xla_gathers(r)]
        rows.append(
            [name, str(len(group)), str(speed_of(group)), f"{quantile(values, 0.5):.2f}", f"{max(values):.2f}",
             f"{min(values):.2f}", str(len(slower_than(group, limit))),
             f"{speed_of(gathers)} ({len(gathers)})" if gathers else "none"]
        )  # fmt: skip
    head = ["set", "problems", "geomean [95%]", "median", "best", "worst", f"below {limit:g}x beyond noise",
            "geomean where XLA gathers past the tile"]  # fmt: skip
    return table(head, rows)


def print_pairs(records: list[Record]) -> None:
    """A short table on standard output, a line per set and side."""
    print(
        f"{'set':8} {'side':5} {'n':>4} {'bytes/bound geo p90 max':>26} {'over':>5} "
        f"{'scratch/tile med p90 max':>26} {'scratch GB':>10} {'compile s':>9}  fates"
    )
    for name, group in by_set(records).items():
        for side in (OURS, XLA):
            s = sides(group, side)
            fates = {f: n for f in ("error", "crash", "limit") if (n := sum(fate(r, side) == f for r in group))}
            b, c = s.over_bound, s.scratch
            print(
                f"{name:8} {side:5} {s.problems:4d} {b[0]:8.3f} {b[1]:8.2f} {b[2]:8.2f} {s.over_tile:6.1%}"
                f" {c[0]:8.2f} {c[1]:8.2f} {c[2]:8.2f} {s.scratch_total / 1e9:10.3f} {s.compile_s:9.3f}"
                f"  {fates or ''}"
            )
        if timed(group):
            ratios = [speed(r) for r in timed(group)]
            print(
                f"{name:8} XLA's time / ours: geomean {speed_of(group)}, best {max(x.value for x in ratios):.2f}, "
                f"worst {min(x.value for x in ratios):.2f}, below 0.9 beyond noise {len(slower_than(group, 0.9))}"
                f" of {len(ratios)}"
            )
        wrong = [r["problem"]["name"] for r in group if r.get("wrong")]
        if wrong:
            print(f"{name:8} WRONG RESULTS: {wrong}")
