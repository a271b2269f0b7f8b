"""Ours against XLA's own reshard on an emulated cluster: four hosts whose links have a limited rate.

Each host is a network namespace with one JAX process and two virtual CPU devices; between hosts every byte passes
a token bucket of 500 Mbit/s in each direction, so bytes cost here what they cost in life. Collectives are XLA's own
for distributed CPU programs (gloo). Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from bench import results, wire
from bench.children import progress
from bench.job import Job
from bench.network import Network, why_not
from bench.problems import DEFAULT_SEED, MEGABYTE, Problem, in_turn
from bench.summary import print_pairs
from bench.xla_cpu import parse_sets

HOSTS = 4
DEVICES_PER_HOST = 2
CONSECUTIVE = tuple(device // DEVICES_PER_HOST for device in range(HOSTS * DEVICES_PER_HOST))
STREAM = 16 * MEGABYTE  # bytes that each host sends to find out what a stream reaches
SAMPLE = {"U222": 16, "H222": 8, "paper": 4, "layouts": 12}
FULL = {"U222": 120, "H222": 80, "paper": 4, "layouts": 12}


def jax_job(
    network: Network, devices: int | Sequence[int] = DEVICES_PER_HOST, module: str = "bench.worker_cluster"
) -> Job:
    """The `jax.distributed` job, one process per host: of so many devices each, or one number for every host."""
    counts = ",".join(map(str, [devices] * HOSTS if isinstance(devices, int) else devices))
    environment = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "BENCH_CLUSTER_DEVICES": counts}
    return Job(network, module, environment)


def measure(
    problems: list[Problem], options: dict[str, Any], megabytes: float, limit: float, rate: str
) -> Generator[dict[str, Any]]:
    """One record per problem, each of 8 devices."""
    counts = np.bincount(options["hosts"]).tolist()
    with Network(HOSTS, rate) as network, jax_job(network, counts) as cluster:
        for problem in progress(problems, "emulated cluster"):
            small = problem.scaled(int(megabytes * MEGABYTE))
            answer = cluster.ask({**options, "problem": small.to_json()}, limit)
            yield {**small.record(), **answer}


def stream(rate: str) -> float:
    """Bytes per second that a TCP stream reaches while every host sends one to the next."""
    with Network(HOSTS, rate) as network:
        environment = {"BENCH_STREAM_ADDRESSES": ",".join(network.addresses)}
        with Job(network, "bench.worker_stream", environment) as job:
            answer = job.ask({"bytes": STREAM, "rounds": 5}, 120)
    return float(STREAM / statistics.median(answer["times"]["stream"]))


def parse_hosts(text: str) -> list[int]:
    """The host of every device, from a list such as "0,1,2,3,0,1,2,3"."""
    hosts = [int(part) for part in text.split(",")]
    if len(hosts) != len(CONSECUTIVE) or set(hosts) != set(range(HOSTS)):
        raise argparse.ArgumentTypeError(
            f"{text!r}: {len(CONSECUTIVE)} numbers of hosts from 0 to {HOSTS - 1}, each used"
        )
    return hosts


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
    parser.add_argument(
        "--hosts", type=parse_hosts, default=list(CONSECUTIVE), help="of every device, as 0,1,2,3,0,1,2,3"
    )
    parser.add_argument(
        "--assume", type=parse_hosts, default=None, help="hosts that ours plans for; by default the same"
    )
    parser.add_argument(
        "--against", type=parse_hosts, default=None, help="instead of XLA, ours planned for these hosts"
    )
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument("--name", default="cluster", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    reason = why_not()
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 3
    sets = parse_sets(arguments.sets, FULL if arguments.full else SAMPLE)
    problems = [p for p in in_turn(sets, arguments.seed) if p.devices == HOSTS * DEVICES_PER_HOST]
    keys = ("rounds", "algorithm", "cost_model", "schedule", "null", "hosts")
    options = {key: getattr(arguments, key) for key in keys}
    options["topology"] = arguments.assume or arguments.hosts
    options["assumed"] = arguments.against
    settings = {
        "seed": arguments.seed,
        "sets": sets,
        "megabytes": arguments.megabytes,
        "devices_per_host": DEVICES_PER_HOST,
        "rate": arguments.rate,
        "stream": stream(arguments.rate),
        **options,
    }
    run = measure(problems, options, arguments.megabytes, arguments.limit, arguments.rate)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    print_pairs(records)
    print(wire.table(records, settings))
    return 0
