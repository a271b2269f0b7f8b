"""PyTorch DTensor's planners on the same problems: counted bytes, over-memory, planning time.

PyTorch is optional and may live in an interpreter of its own: `--python PATH`, or `BENCH_TORCH_PYTHON`. That
interpreter needs `pip install torch==2.13.0` and nothing else. The planners are private to DTensor, so another
version may lack them; then every problem is an error and the results say so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Generator
from typing import Any

from bench import results
from bench.children import Child, progress
from bench.problems import DEFAULT_SEED, Problem, in_turn
from bench.stats import geomean, quantile
from bench.summary import by_set, bytes_ratio, compiled
from bench.xla_cpu import FULL, parse_sets

PLANNERS = ("shipped", "dijkstra")
SAMPLE = {"H222": 60, "U222": 60, "U444": 20, "U88": 20, "U46": 20, "U234": 20, "S234": 40, "paper": 4, "layouts": 15}


def torch_version(python: str) -> str | None:
    """Version of PyTorch in that interpreter, or None."""
    code = "import torch; print(torch.__version__)"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


def measure(problems: list[Problem], python: str, limit: float) -> Generator[dict[str, Any]]:
    """One record per problem; a planner that passes the limit leaves no entry, and the status says so."""
    with Child("bench.worker_dtensor", {"CUDA_VISIBLE_DEVICES": ""}, python) as child:
        for problem in progress(problems, "DTensor planners"):
            answer = child.ask({"problem": problem.to_json(), "planners": PLANNERS}, limit)
            yield {**problem.record(), **answer}


def print_planners(records: list[dict[str, Any]]) -> None:
    """A line per set and planner on standard output."""
    print(
        f"{'set':8} {'planner':9} {'n':>4} {'bytes/bound geo':>15} {'max':>7} {'over':>6} {'plan s p50':>10} {'max':>8}"
    )
    for name, group in by_set(records).items():
        for planner in PLANNERS:
            done = [r for r in group if compiled(r, planner)]
            ratios = [bytes_ratio(r, planner) for r in done]
            over = sum(r[planner]["largest"] > r["tile"] for r in done) / max(1, len(done))
            seconds = [r[planner]["plan_s"] for r in done]
            print(
                f"{name:8} {planner:9} {len(done):4d} {geomean(ratios):15.3f} {max(ratios, default=0):7.2f} "
                f"{over:6.1%} {quantile(seconds, 0.5):10.4f} {max(seconds, default=0):8.3f}"
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="all problems instead of a sample")
    parser.add_argument("--sets", help="sets and counts, such as U222=50,paper")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for both planners on one problem")
    parser.add_argument(
        "--python", default=os.environ.get("BENCH_TORCH_PYTHON", sys.executable), help="interpreter that has torch"
    )
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument("--name", default="dtensor", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    version = torch_version(arguments.python)
    if version is None:
        print(
            f"skipped: {arguments.python} has no PyTorch; pip install torch==2.13.0 there, or name another "
            "interpreter with --python",
            file=sys.stderr,
        )
        return 3
    sets = parse_sets(arguments.sets, FULL if arguments.full else SAMPLE)
    settings = {"seed": arguments.seed, "sets": sets, "limit_s": arguments.limit, "torch": version}
    run = measure(in_turn(sets, arguments.seed), arguments.python, arguments.limit)
    print_planners(results.collect(arguments.name, run, settings, arguments.minutes))
    return 0
