"""The programs on the emulated cluster: ours and XLA's in alternating order on the same arguments.

The network is that of `bench.cluster`: four hosts, links of a limited rate. A program over 8 devices has two on each
host, one over 4 has one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Iterable
from typing import Any

from bench import results
from bench.children import progress
from bench.cluster import HOSTS, jax_job
from bench.network import Network, why_not
from bench.programs.all import cases
from bench.programs.case import SIZES
from bench.summary import Record, speed, timed

WORKER = "bench.programs.worker_cluster"


def measure(names: Iterable[str], options: dict[str, Any], limit: float, rate: str) -> Generator[Record]:
    """One record per program."""
    known = cases(options["size"])
    for devices in sorted({known[name].devices for name in names}):
        chosen = [name for name in names if known[name].devices == devices]
        with (
            Network(HOSTS, rate) as network,
            jax_job(network, devices // HOSTS, "bench.programs.worker_cluster") as job,
        ):
            for name in progress(chosen, f"programs on {devices} devices"):
                yield {"name": name, "mesh": dict(known[name].mesh), **job.ask({**options, "case": name}, limit)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="more rounds")
    parser.add_argument("--only", default="", help="programs with one of these in their names, by commas")
    parser.add_argument("--size", default="medium", choices=SIZES)
    parser.add_argument("--seed", type=int, default=0, help="nothing is drawn here")
    parser.add_argument("--rounds", type=int, default=None, help="paired measurements per program; 9, or 25 in full")
    parser.add_argument("--rate", default="500mbit", help="of each host's link, in each direction")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds per program")
    parser.add_argument("--cost-model", default="cluster", help="cost model, or profile in bench/profiles, for ours")
    parser.add_argument("--minutes", type=float, default=None, help="take no new program after this time")
    parser.add_argument("--name", default="programs_cluster", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    reason = why_not()
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 3
    wanted = arguments.only.split(",")
    names = [name for name in cases() if any(part in name for part in wanted)]
    rounds = arguments.rounds or (25 if arguments.full else 9)
    options = {"size": arguments.size, "rounds": rounds, "cost_model": arguments.cost_model}
    settings = {**options, "hosts": HOSTS, "rate": arguments.rate}
    run = measure(names, options, arguments.limit, arguments.rate)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    for record in records:
        times = str(speed(record)) if timed([record]) else record.get("error", record["status"])
        print(f"{record['name']}: XLA's time / ours {times} {record.get('wrong', '')}")
    return 0
