"""Child of `bench.xla_cpu`: one process with virtual CPU devices."""

from __future__ import annotations

from typing import Any

import jax

from bench.children import serve
from bench.pairing import Case, Part, compile_both, run_paired
from bench.problems import Problem


def handle(task: dict[str, Any], part: Part) -> None:
    case = Case(Problem.from_json(task["problem"]), jax.devices())
    programs = compile_both(case, task, part)
    if task["rounds"] and len(programs) == 2:
        run_paired(case, programs, task, part)
    jax.clear_caches()


if __name__ == "__main__":
    serve(handle)
