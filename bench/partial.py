"""Arrays whose tiles are summands: what plans receive over the bound, and what XLA's own reshard does, compiled.

Plans are counted under `"exact"` and under the default cost model. Where plans whose tiles are all of one size cannot
reach the bound, the least that such plans receive is counted beside, by trying them all (`bench.reachable`). Nothing
runs: XLA's programs are compiled for virtual CPU devices, those of 8 devices for TPU v5e 2x4 too, and read back.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Generator
from typing import Any

from bench import partial_page, results
from bench.children import Child, progress
from bench.library import describe, plan_of
from bench.problems import DEFAULT_SEED, Problem, in_turn
from bench.reachable import least_in_two_steps
from bench.summary import OURS, Record
from bench.tpu import ENVIRONMENT
from bench.xla_cpu import environment, parse_sets

SAMPLE = {"P8": 30, "P24": 10}
FULL = {"P8": 300, "P24": 100}
TOPOLOGY, TOPOLOGY_DEVICES = "v5e:2x4", 8
MODELS = {"exact": {"cost_model": "exact"}, "default": {}}


def counted(problem: Problem) -> dict[str, Any]:
    """The plans of a problem under each cost model, and in bytes per device what tiles of one size can reach."""
    record: dict[str, Any] = problem.record()
    for name, options in MODELS.items():
        plan, seconds = plan_of(problem, options)
        record[name] = {**describe(plan, seconds), "received": sum(plan.received) * plan.itemsize / plan.devices}
    record["reachable"] = least_in_two_steps(plan.before, plan.after) * plan.itemsize / plan.devices
    return record


def measure(problems: list[Problem], limit: float) -> Generator[Record]:
    """One record per problem; `cpu` and `tpu` say what became of XLA's program there."""
    cpu: dict[int, Child] = {}
    tpu = Child("bench.worker_partial", ENVIRONMENT) if importlib.util.find_spec("libtpu") else None
    try:
        for problem in progress(problems, "partial"):
            task = {"skip": [OURS], "problem": problem.to_json()}
            child = cpu.setdefault(problem.devices, Child("bench.worker_partial", environment(problem.devices)))
            record = counted(problem)
            record["cpu"] = child.ask({**task, "topology": ""}, limit)
            if tpu is not None and problem.devices == TOPOLOGY_DEVICES:
                record["tpu"] = tpu.ask({**task, "topology": TOPOLOGY}, limit)
            yield record
    finally:
        for child in (*cpu.values(), *([tpu] if tpu else [])):
            child.stop()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="all problems instead of a sample")
    parser.add_argument("--sets", help="sets and counts, such as P8=50,P24")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for XLA to compile a problem")
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument(
        "--resume", action="store_true", help="go on where a run was cut short, under the settings that it had"
    )
    parser.add_argument("--name", default="partial", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    settings = {
        "seed": arguments.seed,
        "sets": parse_sets(arguments.sets, FULL if arguments.full else SAMPLE),
        "limit_s": arguments.limit,
    }
    earlier: list[Record] = []
    if arguments.resume:
        cut_short = results.unfinished(arguments.name)
        if cut_short is None:
            print(f"nothing to resume: {arguments.name} was not cut short", file=sys.stderr)
            return 2
        earlier, settings = cut_short
    problems = in_turn(settings["sets"], settings["seed"])[len(earlier) :]
    run = measure(problems, settings["limit_s"])
    records = results.collect(arguments.name, run, settings, arguments.minutes, earlier)
    head, *rows = partial_page.counted(records)
    for row in [head, *rows]:
        print(" | ".join(row))
    return 0
