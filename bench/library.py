"""Calls of the library: from a problem to its plan, the seconds of planning, and the plan's record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import redistrib as rd
from bench.problems import Problem
from redistrib.cost.latency import LatencyBandwidth

PROFILES = Path(__file__).parent / "profiles"


@cache
def model_of(name: str) -> Any:
    """A cost model by its name in `synthesize`, or by the name of a profile in `bench/profiles`."""
    path = PROFILES / f"{name}.json"
    return LatencyBandwidth.from_json(path.read_text()) if path.exists() else name


def plan_of(problem: Problem, options: dict[str, Any] | None = None) -> tuple[rd.Plan, float]:
    """The plan under the options "cost_model" and "topology", where present, and the processor seconds of planning.

    Planning runs on one thread, so other processes of the machine do not change its processor seconds.
    """
    chosen = {key: options[key] for key in ("cost_model", "topology") if options and options.get(key)}
    if "cost_model" in chosen:
        chosen["machine"] = model_of(chosen.pop("cost_model"))
    start = time.process_time()
    plan = rd.synthesize(problem.source, problem.target, problem.axes, dtype="float32", **chosen)
    return plan, time.process_time() - start


def describe(plan: rd.Plan, seconds: float, hosts: Sequence[int] | None = None) -> dict[str, Any]:
    """The record of a plan: bytes are means over devices; those between hosts are a total, beside its bound."""
    between = [elements * plan.itemsize for elements in plan.crossing_between(hosts)] if hosts else []
    return {
        **({"between_hosts": between} if between else {}),
        "plan_s": seconds,
        "steps": [f"{step.kind}/{getattr(step, 'group_size', step.collectives)}" for step in plan.steps],
        "collectives": plan.collectives,
        "planned": sum(plan.received) * plan.itemsize / plan.devices,
        "height": plan.height * plan.itemsize,
        "algorithm": plan.algorithm,
    }
