"""Ours against XLA's own reshard on virtual CPU devices of one process, paired.

A collective between virtual devices is a memory copy, so run times here weigh local copies and overheads; the
counts from the compiled HLO hold on any network.
"""

from __future__ import annotations

import argparse
from typing import Any

from bench import results
from bench.children import Child, progress
from bench.problems import DEFAULT_SEED, MEGABYTE, Problem, problem_set

SAMPLE = {"H222": 20, "U222": 30, "U234": 10, "U46": 8, "S234": 20, "paper": 4, "layouts": 14}
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
TIMED_DEVICES = 24  # on more virtual devices than this only counts are taken: a core cannot time 64 of them


def environment(devices: int) -> dict[str, str]:
    """So that a child has `devices` virtual CPU devices and sees no other platform."""
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def measure(problems: list[Problem], options: dict[str, Any], megabytes: float, limit: float) -> list[dict[str, Any]]:
    """One record per problem; problems of one device count share a child."""
    records = []
    by_devices: dict[int, list[Problem]] = {}
    for problem in problems:
        by_devices.setdefault(problem.devices, []).append(problem)
    for devices, group in by_devices.items():
        with Child("bench.worker_cpu", environment(devices)) as child:
            for problem in progress(group, f"XLA on CPU, {devices} devices"):
                small = problem.scaled(int(megabytes * MEGABYTE))
                rounds = options["rounds"] if devices <= TIMED_DEVICES else 0
                answer = child.ask({**options, "rounds": rounds, "problem": small.to_json()}, limit)
                records.append(
                    {
                        "problem": small.to_json(),
                        "bound": small.lower_bound_bytes() / devices,
                        "tile": small.tile_bytes,
                        **answer,
                    }
                )
    return records


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
    parser.add_argument("--name", default="xla_cpu", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    sets = parse_sets(arguments.sets, FULL if arguments.full else SAMPLE)
    problems = [p for name, count in sets.items() for p in problem_set(name, arguments.seed, count)]
    options = {key: getattr(arguments, key) for key in ("rounds", "algorithm", "cost_model", "schedule", "null")}
    records = measure(problems, options, arguments.megabytes, arguments.limit)
    settings = {"seed": arguments.seed, "sets": sets, "megabytes": arguments.megabytes, **options}
    results.save(arguments.name, records, settings)
    from bench.summary import print_pairs

    print_pairs(records)
    return 0
