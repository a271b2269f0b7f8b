"""`python -m bench COMMAND`: run a suite, or write the page from the results there are."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from bench.results import Results
from bench.suite import Suite

# Every module has a `SUITE`, or functions `add_arguments` and `main`.
COMMANDS = {
    "xla-cpu": ("bench.xla_cpu", "ours and XLA's reshard on virtual CPU devices, paired"),
    "cluster": ("bench.cluster", "ours and XLA's reshard on an emulated cluster of four hosts, paired"),
    "cluster-mpi": ("bench.cluster_mpi", "ours through MPI and a plain Alltoallw on the emulated cluster, paired"),
    "tpu": ("bench.tpu", "ours and XLA's reshard under the TPU compiler"),
    "torch-cluster": ("bench.torch_cluster", "DTensors by plans and by DTensor on the emulated cluster, interleaved"),
    "dtensor": ("bench.dtensor", "PyTorch DTensor's planners on the same problems"),
    "trees": ("bench.trees", "whole models by reshard, by device_put and by one jit, paired"),
    "partial": ("bench.partial", "summands: bytes of plans over the bound, and XLA's for CPU and TPU, counted"),
    "sets": ("bench.sets", "trainers to samplers on the emulated cluster: ours, direct, by the host, by JAX, paired"),
    "weights": ("bench.weights", "weights loaded, cast and fused on the emulated cluster, beside plain ways"),
    "programs": ("bench.programs.counted", "twenty programs by rd.distribute and by XLA with the same pins, counted"),
    "programs-cluster": ("bench.programs.cluster", "the same programs on the emulated cluster, paired"),
    "searched": ("bench.programs.searched", "the same programs by rd.search, counted"),
    "searched-cluster": ("bench.programs.searched_cluster", "searched schedules against XLA's layouts, paired"),
    "scale": ("bench.scale", "language models of real size on up to 8,192 devices, searched"),
    "planning": ("bench.planning", "seconds of one call of synthesize, on 8, 4,096 and 65,536 devices"),
    "distir": ("bench.distir", "DistIR's tables by simulation, every layout of every model and batch size"),
    "fuzz": ("tests.fuzz.bench", "random problems, forged plans, hostile texts and trees: nothing wrong, no crash"),
    "mutants": ("bench.mutants", "faults put into the code on purpose, and whether the tests find them"),
    "report": ("bench.report", "write docs/benchmarks.md and its pictures from the results"),
    "sample": ("bench.everything", "a sample of everything, then the report: minutes"),
    "full": ("bench.everything", "everything, then the report: hours"),
}


def suite_of(command: str) -> Any:
    """The module of a command: it has `add_arguments` and `main`."""
    module = importlib.import_module(COMMANDS[command][0])
    return getattr(module, "SUITE", module)


def parser_for(wanted: str) -> argparse.ArgumentParser:
    """The parser of the command line, with the options of the wanted command alone: only that suite is imported."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        if name == wanted:
            suite_of(name).add_arguments(sub)
    return parser


def main() -> int:
    arguments = parser_for(sys.argv[1] if len(sys.argv) > 1 else "").parse_args()
    command = suite_of(arguments.command)
    result: int = command.main(arguments, show) if isinstance(command, Suite) else command.main(arguments)
    return result


def show(name: str, measured: Results) -> None:
    """Print the table and the goals of a suite."""
    from bench import goals, tables

    print(tables.of(name, measured))
    for goal in goals.of(name, measured):
        print(goal)


if __name__ == "__main__":
    sys.exit(main())
