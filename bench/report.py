"""Write docs/benchmarks.md and its pictures from the results there are; what has not been run is named as such."""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from bench import (
    cluster_mpi,
    dtensor_page,
    gradients,
    hosts_page,
    partial_page,
    pipelines_page,
    planning_page,
    results,
    sets,
    survivors,
    top_ten,
    tori,
    trees_page,
    verdicts,
    xla_page,
)
from bench.children import ROOT
from bench.fuzz import page as fuzz_page
from bench.illustrations import draw
from bench.programs import page as programs_page
from bench.programs import searched_page
from bench.results import Results

BENCHES = {
    "cluster": "the emulated cluster (`python -m bench cluster`)",
    "xla_cpu": "XLA on virtual CPU devices (`python -m bench xla-cpu`)",
    "tpu": "the TPU compiler (`python -m bench tpu`)",
    "tori": "the busiest link of TPU slices (`python -m bench tori`)",
    "dtensor": "DTensor's planners (`python -m bench dtensor`)",
    "dtensor_run": "DTensor on the emulated cluster (`python -m bench dtensor-run`)",
    "trees": "whole models (`python -m bench trees`)",
    "quirks": "quirks of virtual CPU devices (`python -m bench quirks`)",
    "quality": "plans, counted (`python -m bench quality`)",
    "hosts_interleaved": "hosts that take turns (`python -m bench cluster --hosts 0,1,2,3,0,1,2,3 "
    "--against 0,0,1,1,2,2,3,3 --name hosts_interleaved`)",
    "hosts_unequal": "unequal hosts (the same with `--hosts 0,1,1,2,2,3,3,3`, named hosts_unequal)",
    "partial": "summands, counted (`python -m bench partial`)",
    "partial_cluster": "summands on the emulated cluster (`python -m bench cluster --sets P8 --name partial_cluster`)",
    "gradients": "gradients on the emulated cluster (`python -m bench gradients`)",
    "cluster_mpi": "MPI on the emulated cluster (`python -m bench cluster-mpi`)",
    "sets": "other devices on the emulated cluster (`python -m bench sets`)",
    "programs": "programs, counted (`python -m bench programs`)",
    "programs_cluster": "programs on the emulated cluster (`python -m bench programs-cluster`)",
    "programs_searched": "programs, searched (`python -m bench.programs.searched`)",
    "searched_cluster": "searched schedules on the emulated cluster (`python -m bench searched-cluster`)",
    "planning": "the time of one plan (`python -m bench planning`)",
    "distir": "DistIR's tables, simulated (`python -m bench distir`)",
    "pipelines": "a transformer in stages on emulated hosts (`python -m bench pipelines`)",
    "scaling": "planning time and quality at scale (`python -m bench scaling`)",
    "fuzz": "the fuzzer (`python -m bench fuzz`)",
    "mutants": "faults put into the code (`python -m bench mutants`)",
}

INTRODUCTION = """# Benchmarks

Written by `python -m bench report` from the files in `bench/results`; edit the benches, not this page.

A ratio of run times is XLA's time over ours, so above 1 ours is faster. Both run in one process (one job on the
cluster) on the same input buffer in alternating order; a problem's ratio is the median over rounds of the ratio within
a round, with a 95% bootstrap interval over rounds as its noise. The interval of a geometric mean is over problems.
Every result was compared with the right answer, element by element, before it was timed.

Bytes are counted from the compiled program: what a device receives from others, mean over devices, over the exact lower
bound, which is the part of its target tile that a device does not hold already. *Over* is the share of problems with an
array larger than the larger of source and target tile. Scratch is what the compiler reports as temporary memory.

Sets: `U222` is drawn on a (2, 2, 2) mesh, each axis replicated or cutting one of the dimensions with equal odds; in `H`
it is replicated with odds one half; `S` has small dimensions, on which divisibility binds. `paper` is P1 to P4 of
Figure 13, `layouts` are changes from practice (FSDP to tensor parallel, tensor to expert parallel, sequence to head
parallel, checkpoints onto another topology).
"""


def load() -> Results:
    names = (*BENCHES, "xla_cpu_null", "cluster_null")
    return Results({name: file for name in names if (file := results.load(name))})


def write(found: Results, path: Path) -> None:
    """Pictures beside the page, in a folder of its name, and the page."""
    made = draw(found, path.parent / "benchmarks")
    picture = defaultdict(str, {name: f"![{name}](benchmarks/{name}.png)\n" for name in made})
    parts = [
        INTRODUCTION,
        "## What must hold, and whether it does\n",
        verdicts.goals_table(found),
        *xla_page.cluster(found, picture["run-times"], picture["ratios"]),
        *hosts_page.parts(found),
        *cluster_mpi.parts(found),
        *xla_page.cpu(found, picture["bytes-over-bound"], picture["scratch"]),
        *xla_page.tpu(found),
        *tori.parts(found),
        *dtensor_page.parts(found),
        *trees_page.parts(found),
        *planning_page.quality(found),
        *partial_page.parts(found),
        *gradients.parts(found),
        *sets.parts(found),
        *programs_page.parts(found),
        *searched_page.parts(found),
        *planning_page.planning(found, picture["planning"]),
        *pipelines_page.parts(found, picture["pipelines"]),
        *top_ten.parts(found),
        *fuzz_page.parts(found),
        *survivors.parts(found),
        *xla_page.worst(found),
        verdicts.provenance(found),
        verdicts.not_measured(found, BENCHES),
    ]
    path.write_text("\n".join(part.rstrip() + "\n" for part in parts if part))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md", help="where to write the page")


def main(arguments: argparse.Namespace) -> int:
    found = load()
    if not found.files:
        print(f"no results in {results.DIRECTORY}; run a bench first")
        return 1
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    write(found, arguments.page)
    print(f"wrote {arguments.page}")
    return 0
