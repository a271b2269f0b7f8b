"""Ours and XLA's reshard under the TPU compiler of `libtpu`, compiled for topologies without a TPU.

Arrays keep their full size, since nothing runs. Each side compiles in a child process under a time limit.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from bench.children import Child, progress
from bench.problems import Problem, interleaved, problem_set, swap_problem
from bench.results import Record
from bench.suite import Settings, Suite
from bench.summary import OURS, XLA

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
        topology: a name of `get_topology_desc`.
        set: a problem set with the topology's number of devices, or "swap".
        sample, full: number of problems.
    """

    topology: str
    set: str
    sample: int
    full: int

    @property
    def name(self) -> str:
        """The name of the job in the settings."""
        return f"{self.topology}/{self.set}"


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


def problems_of(settings: Settings, jobs: Sequence[Job] = JOBS) -> dict[str, tuple[Job, Problem]]:
    """The problems of all jobs in turn, so that an interrupted run has problems of each."""
    counts = {job: settings["sets"].get(job.name, 0) for job in jobs}
    seed = settings["seed"]
    lists = {job: [SWAP][:n] if job.set == "swap" else problem_set(job.set, seed, n) for job, n in counts.items()}
    work = interleaved([[(job, problem) for problem in problems] for job, problems in lists.items()])
    return {f"{job.topology} {problem.name}": (job, problem) for job, problem in work}


def measure(
    work: list[tuple[Job, Problem]],
    settings: Settings,
    limit: float,
    environment: Mapping[str, str] = ENVIRONMENT,
    name: str = "TPU compiler",
) -> Generator[Record]:
    """One record per problem and topology."""
    with Child("bench.worker_compiled", environment) as child:
        for job, problem in progress(work, name):
            task = {**settings, "compile_for": job.topology}
            size = child.ask(task, 120).get("topology_devices")
            if size is None or size < problem.devices:
                print(
                    f"skipped: {job.topology} has {size} devices, {problem.name} needs {problem.devices}",
                    file=sys.stderr,
                )
                continue
            task["problem"] = problem.to_json()
            record = {"topology": job.topology, **problem.record()}
            for side, other in ((OURS, XLA), (XLA, OURS)):
                answer = child.ask({**task, "skip": [other]}, limit)
                record[side] = answer.get(side, {"fate": answer["status"], "log": answer.get("log", "")})
            yield record


def identity(record: Record) -> str:
    """The topology and the problem of a record."""
    return f"{record['topology']} {record['problem']['name']}"


SUITE = Suite(
    "tpu",
    measure,
    {job.name: job.sample for job in JOBS},
    {job.name: job.full for job in JOBS},
    options={"cost_model": "tpu", "null": False},
    problems=problems_of,
    missing=lambda _: None if importlib.util.find_spec("libtpu") else "it needs libtpu: pip install libtpu",
    limit=60.0,
    identity=identity,
)
