"""`python -m bench COMMAND`: run a bench, or write the report from the results there are."""

from __future__ import annotations

import argparse
import importlib
import sys

COMMANDS = {
    "xla-cpu": ("bench.xla_cpu", "ours and XLA's reshard on virtual CPU devices, paired"),
    "cluster": ("bench.cluster", "ours and XLA's reshard on an emulated cluster of four hosts, paired"),
    "cluster-mpi": ("bench.cluster_mpi", "ours through MPI and a plain Alltoallw on the emulated cluster, paired"),
    "tpu": ("bench.tpu", "ours and XLA's reshard under the TPU compiler"),
    "tori": ("bench.tori", "the busiest link of a TPU slice, under ours and under XLA's reshard"),
    "dtensor": ("bench.dtensor", "PyTorch DTensor's planners on the same problems"),
    "dtensor-run": ("bench.dtensor_run", "DTensor and ours on the emulated cluster, by wall time"),
    "trees": ("bench.trees", "whole models by reshard, by device_put and by one jit, paired"),
    "quirks": ("bench.quirks", "what each quirk of XLA on virtual CPU devices brings, on and off in turns"),
    "quality": ("bench.quality", "bytes, tiles and collectives of plans, counted, on every problem set"),
    "partial": ("bench.partial", "summands: bytes of plans over the bound, and XLA's for CPU and TPU, counted"),
    "sets": ("bench.sets", "trainers to samplers on the emulated cluster: ours, direct, by the host, by JAX, paired"),
    "gradients": ("bench.gradients", "the gradients of the example on the emulated cluster, three ways"),
    "programs": ("bench.programs.bench", "twenty programs by rd.distribute and by XLA with the same pins, counted"),
    "programs-cluster": ("bench.programs.cluster", "the same programs on the emulated cluster, paired"),
    "searched-cluster": (
        "bench.programs.searched_cluster",
        "searched schedules against XLA by batch and as written by hand, on the emulated cluster, paired",
    ),
    "planning": ("bench.planning", "seconds of one call of synthesize, on 8, 4,096 and 65,536 devices"),
    "distir": ("bench.distir", "DistIR's tables by simulation, every layout of every model and batch size"),
    "pipelines": ("bench.pipelines", "a transformer in stages on four emulated hosts, beside what was predicted"),
    "scaling": ("bench.scaling", "planning time and quality against devices, rank and primes"),
    "fuzz": (
        "bench.fuzz.bench",
        "random problems, forged plans, hostile texts and trees: nothing wrong, nothing that crashes",
    ),
    "report": ("bench.report", "write docs/benchmarks.md and its pictures from the results"),
    "sample": ("bench.everything", "a sample of everything, then the report: minutes"),
    "full": ("bench.everything", "everything, then the report: hours"),
    "mutants": ("bench.mutants", "faults put into the code on purpose, and whether the tests find them"),
    "compare": ("bench.compare", "the speed tests of the parts against their stored baseline"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        if name == wanted:
            importlib.import_module(module).add_arguments(sub)
    arguments = parser.parse_args()
    result: int = importlib.import_module(COMMANDS[arguments.command][0]).main(arguments)
    return result


if __name__ == "__main__":
    sys.exit(main())
