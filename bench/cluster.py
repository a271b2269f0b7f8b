"""Ours against XLA's own reshard on an emulated cluster: four hosts whose links have a limited rate.

Each host is a network namespace with one JAX process and two virtual CPU devices; between hosts every byte passes
a token bucket of 500 Mbit/s in each direction, so bytes cost here what they cost in life. Collectives are XLA's own
for distributed CPU programs (gloo). Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from typing import Any

from bench import results
from bench.children import progress
from bench.job import Job
from bench.network import Network, why_not
from bench.problems import DEFAULT_SEED, MEGABYTE, Problem, in_turn
from bench.summary import print_pairs
from bench.xla_cpu import parse_sets

HOSTS = 4
DEVICES_PER_HOST = 2
SAMPLE = {"U222": 16, "H222": 8, "paper": 4, "layouts": 12}
FULL = {"U222": 120, "H222": 80, "paper": 4, "layouts": 12}


def jax_job(network: Network, devices: int = DEVICES_PER_HOST, module: str = "bench.worker_cluster") -> Job:
    """The `jax.distributed` job, one process per host."""
    environment = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "BENCH_CLUSTER_DEVICES": str(devices)}
    return Job(network, module, environment)


def measure(
    problems: list[Problem], options: dict[str, Any], megabytes: float, limit: float, rate: str
) -> Generator[dict[str, Any]]:
    """One record per problem, each of 8 devices."""
    with Network(HOSTS, rate) as network, jax_job(network) as cluster:
        for problem in progress(problems, "emulated cluster"):
            small = problem.scaled(int(megabytes * MEGABYTE))
            answer = cluster.ask({**options, "problem": small.to_json()}, limit)
            yield {**small.record(), **answer}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="more problems")
    parser.add_argument("--sets", help="sets and counts of 8-device problems, such as U222=50,paper")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--rounds", type=int, default=9, help="paired measurements per problem")
    parser.add_argument("--megabytes", type=float, default=16.0, help="shrink arrays to this size")
    parser.add_argument("--rate", default="500mbit", help="of each host's link, in each direction")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds per problem")
    parser.add_argument("--algorithm", default=None, help="algorithm given to synthesize")
    parser.add_argument("--cost-model", default="cluster", help="cost model, or profile in bench/profiles, for ours")
    parser.add_argument("--schedule", default=None, help="how ours runs its rounds")
    parser.add_argument("--null", action="store_true", help="XLA against itself: what the harness's noise is")
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument("--name", default="cluster", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    reason = why_not()
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 3
    sets = parse_sets(arguments.sets, FULL if arguments.full else SAMPLE)
    problems = [p for p in in_turn(sets, arguments.seed) if p.devices == HOSTS * DEVICES_PER_HOST]
    options = {key: getattr(arguments, key) for key in ("rounds", "algorithm", "cost_model", "schedule", "null")}
    settings = {
        "seed": arguments.seed,
        "sets": sets,
        "megabytes": arguments.megabytes,
        "hosts": HOSTS,
        "devices_per_host": DEVICES_PER_HOST,
        "rate": arguments.rate,
        **options,
    }
    run = measure(problems, options, arguments.megabytes, arguments.limit, arguments.rate)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    print_pairs(records)
    return 0
