"""Child of `bench.scaling`: plans problems, under a time limit that only a process can enforce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.children import serve
from bench.library import describe, plan_of
from bench.problems import Problem

WAYS = {
    "best": {"algorithm": "best", "cost_model": "exact"},
    "latency": {"algorithm": "best", "cost_model": "tpu"},
    "paper": {"algorithm": "paper", "cost_model": "exact"},
}


def handle(task: dict[str, Any], part: Callable[[dict[str, Any]], None]) -> None:
    for name in task["algorithms"]:
        plan, seconds = plan_of(Problem.from_json(task["problem"]), WAYS[name])
        entry = describe(plan, seconds)
        part({name: {**entry, "received": entry["planned"], "largest": entry["height"]}})


if __name__ == "__main__":
    serve(handle)
