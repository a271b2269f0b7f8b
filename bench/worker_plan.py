"""Child of `bench.scaling`: plans problems, under a time limit that only a process can enforce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.children import serve
from bench.library import describe, plan_of
from bench.problems import Problem


def handle(task: dict[str, Any], part: Callable[[dict[str, Any]], None]) -> None:
    for algorithm in task["algorithms"]:
        plan, seconds = plan_of(Problem.from_json(task["problem"]), {"algorithm": algorithm})
        entry = describe(plan, seconds)
        part({algorithm: {**entry, "received": entry["planned"], "largest": entry["height"]}})


if __name__ == "__main__":
    serve(handle)
