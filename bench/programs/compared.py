"""Ratios of the records of programs: bytes over XLA's, and searched schedules beside layouts written by hand."""

from __future__ import annotations

import statistics

from bench.programs.written import BATCH, SEARCHED
from bench.results import Record
from bench.stats import Interval, paired_ratio
from bench.summary import OURS, XLA

__all__ = ["BATCH", "SEARCHED", "best", "gain", "ran", "ratio", "share"]


def ratio(record: Record, size: str = "full") -> float | None:
    """Bytes that ours receives over XLA's; None where either did not compile."""
    ours, xla = (record.get(size, {}).get(side, {}).get("received") for side in (OURS, XLA))
    if ours is None or xla is None:
        return None
    return float(ours) / float(xla) if xla else (1.0 if not ours else float("inf"))


def ran(records: list[Record]) -> list[Record]:
    """The records in which the searched schedule and the layout by batch ran."""
    return [record for record in records if SEARCHED in record.get("times", {}) and BATCH in record["times"]]


def best(record: Record) -> str:
    """The layout that XLA runs fastest."""
    times = {name: statistics.median(rounds) for name, rounds in record["times"].items() if name != SEARCHED}
    return min(times, key=times.__getitem__)


def gain(record: Record, layout: str) -> Interval:
    """XLA's time in a layout over the time of the searched schedule."""
    return paired_ratio(record["times"][layout], record["times"][SEARCHED])


def share(record: Record) -> float:
    """The predicted time of the searched schedule over that of the best written layout."""
    seconds = {name: figures["seconds"] for name, figures in record["predicted"].items()}
    return float(seconds.pop(SEARCHED) / min(seconds.values()))
