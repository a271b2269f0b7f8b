"""Figures of records of programs: bytes over XLA's, and searched schedules beside layouts written by hand."""

from __future__ import annotations

import statistics

from bench.programs.written import BATCH, FOUND
from bench.results import Record
from bench.stats import Interval, paired_ratio
from bench.summary import OURS, XLA

__all__ = ["BATCH", "FOUND", "best", "gain", "ran", "ratio", "share"]


def ratio(record: Record, size: str = "full") -> float | None:
    """Bytes that ours receives over XLA's; None where one was not compiled."""
    ours, xla = (record.get(size, {}).get(side, {}).get("received") for side in (OURS, XLA))
    if ours is None or xla is None:
        return None
    return float(ours) / float(xla) if xla else (1.0 if not ours else float("inf"))


def ran(records: list[Record]) -> list[Record]:
    """Those that ran on all sides that are compared."""
    return [record for record in records if FOUND in record.get("times", {}) and BATCH in record["times"]]


def best(record: Record) -> str:
    """The layout that XLA runs fastest."""
    times = {name: statistics.median(own) for name, own in record["times"].items() if name != FOUND}
    return min(times, key=times.__getitem__)


def gain(record: Record, layout: str) -> Interval:
    """XLA's time in a layout over that of the schedule found."""
    return paired_ratio(record["times"][layout], record["times"][FOUND])


def share(record: Record) -> float:
    """The predicted seconds of the found schedule over those of the best written one."""
    seconds = {name: own["seconds"] for name, own in record["predicted"].items()}
    return float(seconds.pop(FOUND) / min(seconds.values()))
