"""The seconds of `bench/test_planning.py` for the report: median, 99th percentile and worst, over problems."""

from __future__ import annotations

from collections.abc import Generator

from bench.results import Record
from bench.speed_run import run
from bench.stats import quantile
from bench.suite import Settings, Suite, cases, once
from bench.test_planning import PASSES


def measure(_: list[None], settings: Settings, limit: float) -> Generator[Record]:
    """One record per test."""
    for record in run("bench/test_planning.py"):
        rounds = record["stats"]["data"]
        problems = len(rounds) // PASSES
        seconds = [min(rounds[k::problems]) for k in range(problems)]
        yield {
            "test": record["name"],
            "problems": problems,
            "median_s": quantile(seconds, 0.5),
            "p99_s": quantile(seconds, 0.99),
            "worst_s": max(seconds),
            "peak_mib": record["extra_info"]["peak_mib"],
        }


SUITE = Suite("planning", measure, once(["all"]), problems=cases({"all": None}), identity=lambda record: record["test"])
