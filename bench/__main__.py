"""`python -m bench COMMAND` runs a suite, or writes the page from the saved results."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from bench.results import Results
from bench.suite import Suite

# Every module defines `SUITE`, or the functions `add_arguments` and `main`.
COMMANDS = {
    "xla-cpu": ("bench.xla_cpu", "ours and XLA's reshard on virtual CPU devices, paired"),
    "cluster": ("bench.cluster", "ours and XLA's reshard on an emulated cluster of four hosts, paired"),
    "cluster-mpi": ("bench.cluster_mpi", "ours through MPI and a plain Alltoallw on the emulated cluster, paired"),
    "tpu": ("bench.tpu", "ours and XLA's reshard under the TPU compiler"),
    "gpu": ("bench.gpu", "ours and XLA's reshard under the GPU compiler"),
    "gpu-programs": ("bench.gpu_programs", "programs by ours and by XLA's partitioner under the GPU compiler"),
    "torch-cluster": ("bench.torch_cluster", "DTensors by plans and by DTensor on the emulated cluster, interleaved"),
    "dtensor": ("bench.dtensor", "PyTorch DTensor's planners on the same problems"),
    "trees": ("bench.trees", "whole models by reshard, by device_put and by one jit, paired"),
    "partial": ("bench.partial", "partial sums: bytes of plans over the bound, and XLA's for CPU and TPU, counted"),
    "sets": (
        "bench.sets",
        "trainers to samplers on the emulated cluster: ours, direct, through the host, by JAX, paired",
    ),
    "weights": ("bench.weights", "weights loaded, cast and fused on the emulated cluster, beside simpler methods"),
    "programs": ("bench.programs.counted", "twenty programs by rd.distribute and by XLA with the same pins, counted"),
    "gpt-step": ("bench.gpt_step", "steps of a GPT by rd.distribute and by jax.jit with the same shardings, in turns"),
    "programs-cluster": ("bench.programs.cluster", "the same programs on the emulated cluster, paired"),
    "searched": ("bench.programs.searched", "the same programs by rd.search, counted"),
    "searched-cluster": ("bench.programs.searched_cluster", "searched schedules against XLA's layouts, paired"),
    "scale": ("bench.scale", "language models of real size on up to 8,192 devices, searched"),
    "answers": ("bench.answers", "worked answers of others on how to cut transformers, beside those of searches"),
    "kernels": ("bench.kernels", "bytes of kernels as searches count them, and as the TPU compiler does"),
    "accelerator-seconds": (
        "bench.accelerator_seconds",
        "seconds of programs on an accelerator, and predictions",
    ),
    "cpu-seconds": ("bench.cpu_seconds", "processor seconds of programs on one core, measured and predicted"),
    "features": ("bench.features", "predicted seconds that features of planning save, by kinds of hosts"),
    "planning": ("bench.planning", "seconds of one call of synthesize, on 8, 4,096 and 65,536 devices"),
    "distir": ("bench.distir", "DistIR's tables by simulation, every layout of every model and batch size"),
    "eager": ("bench.eager", "a layer of GPT-2 175B on a GPU where Python starts every operation, as DistIR ran it"),
    "fuzz": ("tests.fuzz.bench", "random problems, forged plans, hostile texts and trees: no wrong result, no crash"),
    "mutants": ("tests.mutants.bench", "mutants of the code, and the tests that kill them"),
    "report": ("bench.report", "write docs/benchmarks.md, its pictures and docs/real-size.md from the results"),
    "sample": ("bench.everything", "a sample of every suite, then the report: minutes"),
    "full": ("bench.everything", "every suite in full, then the report: hours"),
}


def suite_of(command: str) -> Any:
    """The suite or module of a command; both define `add_arguments` and `main`."""
    module = importlib.import_module(COMMANDS[command][0])
    return getattr(module, "SUITE", module)


def parser_for(command: str) -> argparse.ArgumentParser:
    """The parser of the command line. It imports one suite alone, that of `command`, and has its options."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        if name == command:
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
