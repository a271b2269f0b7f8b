"""PyTorch DTensor's planners on the same problems: bytes, largest tile and planning time, counted.

PyTorch is optional. `BENCH_TORCH_PYTHON` names another interpreter that has it; that one needs
`pip install torch==2.13.0` and nothing else. The planners are private to DTensor: where a version lacks them, the
record of every problem is an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator

from bench.children import Child, progress
from bench.problems import Problem
from bench.results import Record
from bench.suite import Settings, Suite
from bench.xla_cpu import FULL

PYTHON = os.environ.get("BENCH_TORCH_PYTHON", sys.executable)
PLANNERS = ("shipped", "dijkstra")
SAMPLE = {"H222": 60, "U222": 60, "U444": 20, "U88": 20, "U46": 20, "U234": 20, "S234": 40, "paper": 4, "layouts": 15}


def torch_version() -> str | None:
    """Version of PyTorch, or None."""
    code = "import torch; print(torch.__version__)"
    result = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def missing(_: Settings) -> str | None:
    """The reason why DTensor cannot run, or None."""
    hint = "pip install torch==2.13.0 there, or name another interpreter in BENCH_TORCH_PYTHON"
    return None if torch_version() else f"{PYTHON} has no PyTorch; {hint}"


def measure(problems: list[Problem], _: Settings, limit: float) -> Generator[Record]:
    """One record per problem; a planner that exceeds the limit has no entry, and the status says "limit"."""
    with Child("bench.worker_dtensor", {"CUDA_VISIBLE_DEVICES": ""}, PYTHON) as child:
        for problem in progress(problems, "DTensor planners"):
            answer = child.ask({"problem": problem.to_json(), "planners": PLANNERS}, limit)
            yield {**problem.record(), **answer}


SUITE = Suite(
    "dtensor",
    measure,
    SAMPLE,
    FULL,
    prepared=lambda settings: {**settings, "torch": torch_version()},
    missing=missing,
    limit=60.0,
)
