"""Ours against XLA's own reshard on virtual CPU devices of one process, paired.

A collective between virtual devices is a memory copy, so run times here weigh local copies and overheads; the
counts from the compiled HLO hold on any network.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from typing import Any

from bench import results
from bench.children import Child, progress
from bench.problems import DEFAULT_SEED, MEGABYTE, Problem, in_turn
from bench.summary import print_pairs

SAMPLE = {"H222": 20, "U222": 30, "U234": 10, "U46": 8, "U444": 4, "U88": 4, "S234": 20, "paper": 4, "layouts": 14}
FULL = {
    "H222": 500,
    "U222": 500,
    "U444": 60,
    "U88": 60,
    "U46": 60,
    "U234": 60,
    "U2222": 60,
    "S223": 300,
    "S233": 300,
    "S234": 300,
    "paper": 4,
    "layouts": 15,
}
TIMED_BYTES = MEGABYTE  # smaller arrays only measure the launch of a collective between threads
TIMED_DEVICES = 24  # on more virtual devices than this only counts are taken: a core cannot time 64 of them


def environment(devices: int) -> dict[str, str]:
    """So that a child has `devices` virtual CPU devices and sees no other platform."""
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def measure(
    problems: list[Problem], options: dict[str, Any], megabytes: float, limit: float
) -> Generator[dict[str, Any]]:
    """One record per problem; problems of one device count share a child."""
    children: dict[int, Child] = {}
    try:
        for problem in progress(problems, "XLA on CPU"):
            count = problem.devices
            child = children.setdefault(count, Child("bench.worker_cpu", environment(count)))
            small = problem.scaled(int(megabytes * MEGABYTE))
            timed = count <= TIMED_DEVICES and small.nbytes >= TIMED_BYTES
            answer = child.ask({**options, "rounds": options["rounds"] * timed, "problem": small.to_json()}, limit)
            yield {**small.record(), **answer}
    finally:
        for child in children.values():
            child.stop()


def parse_sets(text: str | None, counts: dict[str, int]) -> dict[str, int]:
    """`"U222=50,paper"` as set -> count; a bare name takes the default count, no text all defaults."""
    if not text:
        return counts
    chosen = {}
    for item in text.split(","):
        name, _, count = item.partition("=")
        chosen[name] = int(count) if count else counts.get(name, 10)
    return chosen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="all problems instead of a sample")
    parser.add_argument("--sets", help="sets and counts, such as U222=50,paper")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--rounds", type=int, default=9, help="paired measurements per problem; 0 only counts")
    parser.add_argument("--megabytes", type=float, default=32.0, help="shrink arrays to this size")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per problem")
    parser.add_argument("--algorithm", default=None, help="algorithm given to synthesize")
    parser.add_argument("--cost-model", default="cpu", help="cost model, or profile in bench/profiles, for ours")
    parser.add_argument("--schedule", default=None, help="how ours runs its rounds")
    parser.add_argument("--null", action="store_true", help="XLA against itself: what the harness's noise is")
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument("--name", default="xla_cpu", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    sets = parse_sets(arguments.sets, FULL if arguments.full else SAMPLE)
    problems = in_turn(sets, arguments.seed)
    options = {key: getattr(arguments, key) for key in ("rounds", "algorithm", "cost_model", "schedule", "null")}
    settings = {"seed": arguments.seed, "sets": sets, "megabytes": arguments.megabytes, **options}
    run = measure(problems, options, arguments.megabytes, arguments.limit)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    print_pairs(records)
    return 0
