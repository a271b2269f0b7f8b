"""DTensor against ours on the emulated cluster: the same problems, links and number of ranks, one after the other.

DTensor runs as eight gloo processes, two per host, under its public `redistribute`; ours as in the cluster bench. The
two jobs take turns on the network but share no buffers, so this compares systems and is no paired measurement.
Only problems whose axes DTensor's public interface can order (major to minor in mesh order) take part.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator
from typing import Any

from bench import results
from bench.children import progress
from bench.cluster import CONSECUTIVE, DEVICES_PER_HOST, HOSTS, jax_job
from bench.dtensor import PLANNERS, torch_version
from bench.job import Job
from bench.network import Network, why_not
from bench.problems import DEFAULT_SEED, MEGABYTE, Problem, in_turn
from bench.stats import bootstrap_geomean, quantile
from bench.summary import OURS, XLA
from bench.xla_cpu import parse_sets

SAMPLE = {"U222": 16, "H222": 8, "layouts": 10}
FULL = {"U222": 60, "H222": 40, "layouts": 12}


def in_mesh_order(problem: Problem) -> bool:
    """Whether in every dimension the axes stand major to minor as in the mesh, before and after."""
    names = [name for name, _ in problem.mesh]
    cuts = (*problem.source_axes, *problem.target_axes)
    return all(sorted(axes, key=names.index, reverse=True) == list(axes) for axes in cuts)


def measure(
    problems: list[Problem], options: dict[str, Any], megabytes: float, python: str
) -> Generator[dict[str, Any]]:
    """One record per problem: `times` by system, seconds of the slowest process in each round."""
    rounds = options["rounds"]
    environment = {"GLOO_SOCKET_IFNAME": "eth0", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    with (
        Network(HOSTS, "500mbit") as network,
        jax_job(network) as ours,
        Job(network, "bench.worker_dtensor_run", environment, DEVICES_PER_HOST, python) as theirs,
    ):
        for problem in progress(problems, "DTensor on the cluster"):
            small = problem.scaled(int(megabytes * MEGABYTE))
            task = {"problem": small.to_json(), "rounds": rounds, "planners": PLANNERS, "hosts": CONSECUTIVE}
            mine = ours.ask({**options, **task, "skip": [XLA]}, 240)
            other = theirs.ask(task, 240)
            wrong = {**mine.get("wrong", {}), **other.get("wrong", {})}
            yield {
                **small.record(),
                "status": other["status"],
                "error": other.get("error", "") or mine.get("error", ""),
                "times": {**mine.get("times", {}), **other.get("times", {})},
                **({"wrong": wrong} if wrong else {}),
            }


def speeds(records: list[dict[str, Any]], planner: str) -> list[float]:
    """DTensor's median time over ours, of the problems both ran."""
    done = [r["times"] for r in records if planner in r["times"] and OURS in r["times"]]
    return [quantile(t[planner], 0.5) / quantile(t[OURS], 0.5) for t in done]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="more problems")
    parser.add_argument("--sets", help="sets and counts of 8-device problems, such as U222=50")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=16.0, help="shrink arrays to this size")
    parser.add_argument("--cost-model", default="cluster", help="cost model, or profile in bench/profiles, for ours")
    parser.add_argument(
        "--python", default=os.environ.get("BENCH_TORCH_PYTHON", sys.executable), help="interpreter that has torch"
    )
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument("--name", default="dtensor_run", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    version = torch_version(arguments.python)
    reason = why_not() or (None if version else f"{arguments.python} has no PyTorch; pip install torch==2.13.0 there")
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 3
    sets = parse_sets(arguments.sets, FULL if arguments.full else SAMPLE)
    drawn = in_turn(sets, arguments.seed)
    problems = [p for p in drawn if p.devices == HOSTS * DEVICES_PER_HOST and in_mesh_order(p)]
    options = {"rounds": arguments.rounds, "cost_model": arguments.cost_model}
    settings = {
        "seed": arguments.seed, "sets": sets, "megabytes": arguments.megabytes, "torch": version,
        "left_out": sum(not in_mesh_order(p) for p in drawn), **options,
    }  # fmt: skip
    run = measure(problems, options, arguments.megabytes, arguments.python)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    for planner in PLANNERS:
        found = speeds(records, planner)
        print(f"{planner}: DTensor's time / ours {bootstrap_geomean(found)} over {len(found)} problems")
    return 0
