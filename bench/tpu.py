"""Ours and XLA's own reshard under the real TPU compiler, without a TPU: what `libtpu` compiles for a topology.

Arrays keep their full size, since nothing runs. Each side compiles under its own time limit, in a child process.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from bench import results
from bench.children import Child, progress
from bench.problems import DEFAULT_SEED, Problem, problem_set, swap_problem
from bench.summary import OURS, XLA, print_pairs

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


@dataclass(frozen=True)
class Job:
    """Problems of one set for one topology.

    Attributes:
        topology: as `get_topology_desc` takes it.
        set: a problem set of as many devices, or "swap".
        sample, full: how many problems.
    """

    topology: str
    set: str
    sample: int
    full: int


JOBS = (
    Job("v5e:2x4", "U222", 12, 300),
    Job("v5e:2x4", "A222", 6, 60),
    Job("v5e:2x4", "H222", 6, 100),
    Job("v5e:2x4", "layouts", 4, 15),
    Job("v5e:4x4", "U44", 4, 40),
    Job("v5e:4x4", "U2222", 4, 40),
    Job("v4:4x4x4", "U888", 0, 6),
    Job("v5p:8x8x8", "U888", 2, 8),
    Job("v5p:16x16x16", "U161616", 1, 6),
    Job("v5p:16x20x28", "swap", 1, 1),
)
SWAP = swap_problem(80, 112, 394_240)  # 622 GB, the largest change of the report: 69 MB a device


def problems_of(job: Job, seed: int, count: int) -> list[Problem]:
    return [SWAP][:count] if job.set == "swap" else problem_set(job.set, seed, count)


def measure(jobs: list[tuple[Job, int]], seed: int, limit: float, options: dict[str, Any]) -> Generator[dict[str, Any]]:
    """One record per problem and topology."""
    drawn = [(job, problems_of(job, seed, count)) for job, count in jobs]
    longest = max(len(problems) for _, problems in drawn)
    work = [(job, problems[i]) for i in range(longest) for job, problems in drawn if i < len(problems)]
    with Child("bench.worker_tpu", ENVIRONMENT) as child:
        for job, problem in progress(work, "TPU compiler"):
            task = {**options, "topology": job.topology}
            size = child.ask(task, 120).get("topology_devices")
            if size is None or size < problem.devices:
                print(
                    f"skipped: {job.topology} has {size} devices, {problem.name} needs {problem.devices}",
                    file=sys.stderr,
                )
                continue
            task["problem"] = problem.to_json()
            mine = child.ask({**task, "skip": [XLA]}, limit)
            theirs = child.ask({**task, "skip": [OURS]}, limit)
            record = {"topology": job.topology, **problem.record()}
            for side, answer in ((OURS, mine), (XLA, theirs)):
                record[side] = answer.get(side, {"fate": answer["status"], "log": answer.get("log", "")})
            yield record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="all problems instead of a sample")
    parser.add_argument("--only", help="topologies and counts, such as v5e:2x4=20")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each side of a problem")
    parser.add_argument("--algorithm", default=None, help="algorithm given to synthesize")
    parser.add_argument("--cost-model", default="tpu", help="cost model, or profile in bench/profiles, for ours")
    parser.add_argument("--schedule", default=None, help="how ours runs its rounds")
    parser.add_argument("--null", action="store_true", help="XLA in both places")
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument("--name", default="tpu", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("libtpu") is None:
        print("skipped: the TPU compiler needs libtpu: pip install libtpu", file=sys.stderr)
        return 3
    counts = [(job, job.full if arguments.full else job.sample) for job in JOBS]
    if arguments.only:
        chosen = dict(item.split("=") if "=" in item else (item, "") for item in arguments.only.split(","))
        counts = [
            (job, int(chosen[key]) if chosen[key] else count)
            for job, count in counts
            for key in (job.topology, f"{job.topology}/{job.set}")
            if key in chosen
        ]
    options = {key: getattr(arguments, key) for key in ("algorithm", "cost_model", "schedule", "null")}
    settings = {
        "seed": arguments.seed,
        "limit_s": arguments.limit,
        **options,
        "jobs": [[job.topology, job.set, count] for job, count in counts],
    }
    run = measure(counts, arguments.seed, arguments.limit, options)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    for topology in dict.fromkeys(r["topology"] for r in records):
        print(topology)
        print_pairs([r for r in records if r["topology"] == topology])
    return 0
