"""All suites one after the other, then the report: `sample` in minutes, `full` in hours.

A suite that lacks a requirement (root, libtpu, PyTorch) prints it and is skipped; the report names it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from bench.children import ROOT
from bench.problems import DEFAULT_SEED
from bench.suite import SKIPPED

# suite, minutes after which a sample takes no new problem, minutes after which a full run takes none
SUITES: tuple[tuple[str, float, float], ...] = (
    ("cluster", 4, 120),
    ("cluster --null --name cluster_null --sets U222=12", 1, 5),
    ("cluster --name partial_cluster --sets P8=100", 2, 30),
    ("cluster-mpi", 2, 60),
    ("xla-cpu", 4, 180),
    ("xla-cpu --null --name xla_cpu_null --sets U222=12,U234=6", 1, 5),
    ("tpu", 4, 240),
    ("gpu", 4, 60),
    ("dtensor", 1, 60),
    ("torch-cluster", 4, 30),
    ("trees", 2, 30),
    ("partial", 2, 60),
    ("sets", 4, 20),
    ("weights", 8, 20),
    ("programs", 10, 20),
    ("gpt-step", 5, 10),
    ("gpu-programs", 10, 20),
    ("programs-cluster", 4, 30),
    ("searched", 10, 20),
    ("searched-cluster", 12, 30),
    ("kernels", 3, 10),
    ("cpu-seconds", 3, 3),
    ("accelerator-seconds", 5, 5),
    ("planning", 2, 2),
    ("scale", 5, 10),
    ("answers", 3, 3),
    ("distir", 5, 60),
    ("eager", 2, 2),
    ("fuzz", 5, 60),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)


def main(arguments: argparse.Namespace) -> int:
    full = arguments.command == "full"
    failed = []
    for suite, short, long in SUITES:
        command = [sys.executable, "-m", "bench", *suite.split(), "--seed", str(arguments.seed)]
        command += ["--minutes", str(long if full else short)]
        command += ["--full"] if full and "--null" not in command else []
        print(f"== {' '.join(command[1:])}", flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code not in (0, SKIPPED):
            failed.append(suite)
    report = subprocess.run([sys.executable, "-m", "bench", "report"], cwd=ROOT, check=False).returncode
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or report else 0
