"""The library as the benches call it: a problem in, a plan and the seconds it took out."""

from __future__ import annotations

import time
from typing import Any

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.synthesis.synthesize import synthesize

from bench.problems import Problem

CHOICES = ("algorithm", "model")


def plan_of(problem: Problem, options: dict[str, Any] | None = None) -> tuple[Plan, float]:
    """The plan under `options["algorithm"]` and `options["model"]` where given, and the seconds it took."""
    chosen = {key: options[key] for key in CHOICES if options and options.get(key)}
    start = time.perf_counter()
    mesh = Mesh.of(problem.axes)
    source, target = DistType.parse(problem.source), DistType.parse(problem.target)
    plan = synthesize(source, mesh, target, mesh, dtype="float32", **chosen)
    return plan, time.perf_counter() - start


def describe(plan: Plan, seconds: float) -> dict[str, Any]:
    """What a record holds of a plan; bytes are means over devices."""
    return {
        "plan_s": seconds,
        "steps": [f"{step.kind}/{getattr(step, 'group_size', step.collectives)}" for step in plan.steps],
        "collectives": plan.collectives,
        "planned": sum(plan.received) * plan.itemsize / plan.devices,
        "height": plan.height * plan.itemsize,
        "algorithm": plan.algorithm,
    }
