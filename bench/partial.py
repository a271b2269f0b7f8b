"""Partial sums: bytes that plans receive over the bound, and bytes of XLA's reshard, as compiled.

Plans are counted under `"exact"` and under the default cost model. Beside the bound stands the least that plans with
tiles of one size receive, by enumeration of all of them (`bench.reachable`). Nothing runs: the bytes of XLA's programs
are read from programs compiled for virtual CPU devices and, on 8 devices, for TPU v5e 2x4.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from bench.children import Child, progress
from bench.library import describe, plan_of
from bench.problems import Problem
from bench.reachable import least_in_two_steps
from bench.results import Record
from bench.suite import Settings, Suite
from bench.summary import OURS
from bench.tpu import ENVIRONMENT
from bench.xla_cpu import children

SAMPLE = {"P8": 30, "P24": 10}
FULL = {"P8": 300, "P24": 100}
TOPOLOGY, TOPOLOGY_DEVICES = "v5e:2x4", 8
MODELS = {"exact": {"cost_model": "exact"}, "default": {}}


def counted(problem: Problem) -> dict[str, Any]:
    """The plans of a problem under each cost model, and the least bytes per device with tiles of one size."""
    record: dict[str, Any] = problem.record()
    for name, options in MODELS.items():
        plan, seconds = plan_of(problem, options)
        record[name] = {**describe(plan, seconds), "received": sum(plan.received) * plan.itemsize / plan.devices}
    record["reachable"] = least_in_two_steps(plan.before, plan.after) * plan.itemsize / plan.devices
    return record


def measure(problems: list[Problem], _: Settings, limit: float) -> Generator[Record]:
    """One record per problem; `cpu` and `tpu` hold the counts or the failure of XLA's program."""
    with ExitStack() as stack:
        child_of, tpu = children(stack), stack.enter_context(Child("bench.worker_compiled", ENVIRONMENT))
        for problem in progress(problems, "partial"):
            task = {"skip": [OURS], "problem": problem.to_json()}
            record = counted(problem)
            record["cpu"] = child_of(problem.devices).ask({**task, "compile_for": ""}, limit)
            if importlib.util.find_spec("libtpu") and problem.devices == TOPOLOGY_DEVICES:
                record["tpu"] = tpu.ask({**task, "compile_for": TOPOLOGY}, limit)
            yield record


SUITE = Suite("partial", measure, SAMPLE, FULL, limit=60.0)
