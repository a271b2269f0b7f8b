"""The library as the benches call it: a problem in, a plan and the seconds it took out."""

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
    """A cost model by the name `synthesize` knows, or by that of a profile measured for a bench."""
    path = PROFILES / f"{name}.json"
    return LatencyBandwidth.from_json(path.read_text()) if path.exists() else name


def plan_of(problem: Problem, options: dict[str, Any] | None = None) -> tuple[rd.Plan, float]:
    """The plan under `options` "algorithm", "cost_model" and "topology" where given, and the processor seconds it took.

    Planning runs on one thread, so its processor time does not depend on the machine's other work.
    """
    chosen = {key: options[key] for key in ("algorithm", "cost_model") if options and options.get(key)}
    if "cost_model" in chosen:
        chosen["cost_model"] = model_of(chosen["cost_model"])
    if options and options.get("topology"):
        chosen["topology"] = options["topology"]
    start = time.process_time()
    plan = rd.synthesize(problem.source, problem.target, problem.axes, dtype="float32", **chosen)
    return plan, time.process_time() - start


def describe(plan: rd.Plan, seconds: float, hosts: Sequence[int] | None = None) -> dict[str, Any]:
    """A plan's figures in a record: bytes are means over devices, those between hosts in all, beside the bound."""
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
