"""Statistics of the records of a paired bench, per set, for the report and for the table of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.results import Record
from bench.stats import Interval, bootstrap_geomean, geomean, paired_ratio, quantile

OURS, XLA = "ours", "xla"


@dataclass(frozen=True)
class Sides:
    """One system's counts over the problems of a set that it compiled.

    Attributes:
        problems: number of problems.
        over_bound: received bytes over the lower bound: geomean, 90% quantile, largest.
        over_tile: share of problems with an array larger than the larger tile.
        scratch: scratch over the larger tile: median, 90% quantile, largest.
        scratch_total: sum of the bytes of scratch over problems.
        compile_s: median seconds of planning and compilation.
    """

    problems: int
    over_bound: tuple[float, float, float]
    over_tile: float
    scratch: tuple[float, float, float]
    scratch_total: int
    compile_s: float


def set_name(record: Record) -> str:
    """The set of a record: the part of the problem's name before the slash."""
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
    """The outcome of one side's compilation: "ok", "error", "crash", "limit" or "not reached"."""
    if compiled(record, side):
        return "ok"
    entry = record.get(side, {})
    if "error" in entry or "fate" in entry:
        return str(entry.get("fate", "error"))
    return str(record["status"]) if record.get("stage") == side else "not reached"


def bytes_ratio(record: Record, side: str) -> float:
    return float(record[side]["received"]) / float(record["bound"])


def sides(records: list[Record], side: str) -> Sides:
    """Counts of one side over the records that it compiled."""
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
    """XLA's time over ours on one problem, with its bootstrap interval."""
    return paired_ratio(record["times"]["xla"], record["times"]["ours"])


def speed_of(records: list[Record]) -> Interval:
    """Geometric mean over problems of XLA's time over ours."""
    return bootstrap_geomean([speed(r).value for r in timed(records)])


def slower_than(records: list[Record], limit: float) -> list[Record]:
    """Problems on which XLA's time over ours is below `limit`, and so is the whole bootstrap interval."""
    return [r for r in timed(records) if speed(r).high < limit]


def xla_gathers(record: Record) -> bool:
    """Whether XLA's program has an array larger than both tiles."""
    return compiled(record, "xla") and record["xla"]["largest"] > record["tile"]


def reason(record: Record) -> str:
    """Differences of the two compiled programs that explain the ratio of their times."""
    ours, theirs, tile = record[OURS], record[XLA], record["tile"]
    reasons = []
    interval = speed(record)
    if interval.low <= 1.0 <= interval.high:
        reasons.append("within noise")
    if ours["received"] > theirs["received"] * 1.01:
        reasons.append(
            f"receives more: {bytes_ratio(record, OURS):.2f} of the bound, not {bytes_ratio(record, XLA):.2f}"
        )
    if ours["kinds"] == theirs["kinds"]:
        reasons.append(f"the same collectives ({_kinds(ours)})")
    else:
        reasons.append(f"{_kinds(ours)} against {_kinds(theirs)}")
    if ours["copied"] > theirs["copied"] * 1.2 + 0.05 * tile:
        reasons.append(f"copies more: {ours['copied'] / tile:.1f} tiles, not {theirs['copied'] / tile:.1f}")
    return "; ".join(reasons)


def _kinds(side: Mapping[str, Any]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(side["kinds"].items())) or "nothing"
