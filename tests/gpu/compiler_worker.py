"""Compiles moves and programs for eight GPUs, and prints those that receive other bytes than predicted."""

from __future__ import annotations

import sys

import jax

from bench import gpus
from bench.library import plan_of
from bench.pairing import Case, counts
from bench.problems import problem_set
from bench.programs.all import cases
from bench.programs.pair import Pair
from redistrib.explain.profiling.inspect import inspect


def main(topology: str) -> None:
    devices = gpus.devices_of(topology)
    problems = [problem for name in ("U222", "A222", "layouts") for problem in problem_set(name, 7, 4)]
    for problem in problems:
        case, (plan, _) = Case(problem, devices), plan_of(problem, {"cost_model": "gpu"})
        compiled = case.ours(plan).lower(case.argument).compile()
        received = counts(compiled, problem)["received"]
        if received * plan.devices != sum(plan.received) * plan.itemsize:
            print(f"WRONG {problem.name}: {received} for {sum(plan.received) * plan.itemsize / plan.devices}")
    programs = cases("small")
    for name, case in programs.items():
        f = case.distributed(Pair(case, devices).mesh, machine="gpu")
        received = inspect(f.lower().compile()).received_bytes
        if received != f.compiled_received_bytes:
            print(f"WRONG {name}: {received} for {f.compiled_received_bytes}")
    print(f"COMPILED {len(problems)} {len(programs)} for {devices[0].device_kind} by JAX {jax.__version__}")


if __name__ == "__main__":
    main(sys.argv[1])
