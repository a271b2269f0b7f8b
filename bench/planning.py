"""The seconds of `bench/test_planning.py`, kept for the report: median, 99th percentile, worst, over problems."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from typing import Any

from bench import results
from bench.speed_run import run
from bench.stats import quantile
from bench.test_planning import PASSES


def measure() -> Generator[dict[str, Any]]:
    """One record per test, from a run made now."""
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, default=0, help="the problems are always the same; taken for the sake of the others"
    )
    parser.add_argument("--full", action="store_true", help="changes nothing; taken for the sake of the others")
    parser.add_argument(
        "--minutes", type=float, default=None, help="taken for the sake of the others: this is one run of two minutes"
    )
    parser.add_argument("--name", default="planning", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    records = results.collect(arguments.name, measure(), {})
    for r in records:
        print(
            f"{r['test']:36} {r['problems']:4} problems: median {1e3 * r['median_s']:8.2f} ms, "
            f"99% {1e3 * r['p99_s']:8.2f} ms, worst {1e3 * r['worst_s']:8.2f} ms, peak {r['peak_mib']:.0f} MiB"
        )
    return 0
