"""The seconds of `bench/test_planning.py` for the report: median, 99th percentile and worst, over problems."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from bench.children import ROOT
from bench.results import Record
from bench.stats import quantile
from bench.suite import Settings, Suite, cases, once
from bench.test_planning import PASSES


def run(tests: str) -> list[dict[str, Any]]:
    """Run a file of tests; return pytest-benchmark's record of each test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speed.json"
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--benchmark-only", f"--benchmark-json={path}"]
        subprocess.run([sys.executable, "-m", "pytest", tests, *options], cwd=ROOT, check=True, stdout=sys.stderr)
        records: list[dict[str, Any]] = json.loads(path.read_text())["benchmarks"]
    return records


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
