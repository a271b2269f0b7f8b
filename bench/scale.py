"""Language models at real size, searched: seconds to the first schedule, memory, and the best step over its bound.

Each model is searched in a new process, so that its memory can be measured. It is searched until the first schedule,
then up to the limit, and then, where the limit stopped that search, four times as long. Limits count seconds of the
processor, which other processes of the machine do not change. Seconds include tracing, and those to the first schedule
the imports of the search too: they are the median of three processes, since the speed of a shared machine changes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Generator
from typing import Any, NamedTuple

from bench.children import progress
from bench.results import Record
from bench.suite import Settings, Suite, cases, once


class Problem(NamedTuple):
    """A training step on a mesh.

    Attributes:
        name: the name of the row.
        model: a name in `bench.language_models`.
        mesh: sizes of the axes by name, as text.
        sequences, tokens: sequences of a batch, tokens of a sequence.
        memory_limit: bytes of a device; empty for no limit.
        profile: the machine's profile.
        is_scanned: whether layers are the steps of a scan.
    """

    name: str
    model: str
    mesh: str
    sequences: int
    tokens: int
    memory_limit: str
    profile: str
    is_scanned: bool = False


STEPS = (
    Problem("8B, 256 devices", "LLAMA_8B", "data=32,model=8", 256, 4096, "", "tpu"),
    Problem("8B, 256 devices, 16 GB", "LLAMA_8B", "data=32,model=8", 256, 4096, "16GB", "tpu"),
    Problem("70B, 8,192 devices", "LLAMA_70B", "data=1024,model=8", 1024, 4096, "", "v5p"),
    Problem("70B, 8,192 devices, 95 GB", "LLAMA_70B", "data=1024,model=8", 1024, 4096, "95GB", "v5p"),
)
PROBLEMS = {
    problem.name: problem
    for problem in (
        *STEPS,
        *(step._replace(name=f"{step.name}, scanned", is_scanned=True) for step in STEPS),
        # "How to Scale Your Model", part 6: Llama 3 70B with batches of 4M tokens; short sequences, since it leaves
        # attention out.
        *(
            Problem(f"book: {mesh}", "LLAMA_70B", mesh, 8192, 512, "95GB", "v5p")
            for mesh in ("data=8192", "data=4096,model=2", "data=2048,model=4", "data=1024,model=8")
        ),
    )
}

SCRIPT = """
import json, resource, sys, time
import bench.language_models as models
import redistrib as rd
time.monotonic = time.process_time  # limits are of the processor
problem, limit = json.loads(sys.argv[1]), json.loads(sys.argv[2])
model = getattr(models, problem["model"])
function, args = models.training(model, problem["sequences"], problem["tokens"], stacked=problem["is_scanned"])
def search(limit):
    start, processor = time.perf_counter(), time.process_time()
    result = rd.search(
        function, args, problem["mesh"], state={"params": 0}, machine=problem["profile"], limit=limit,
        memory_limit=problem["memory_limit"] or None, progress=False,
    )[0]
    return result, time.perf_counter() - start, time.process_time() - processor

first, first_s, first_processor_s = search(0.1)
if limit is None:
    print(first_processor_s)
    sys.exit()
result, search_s, processor_s = search(limit)
is_over = not result.stopped  # then the schedule is the one that a longer search finds
last = result if is_over else search(4 * limit)[0]
print(json.dumps({
    "first_s": first_s, "first_processor_s": first_processor_s, "first_step_s": first.seconds,
    "search_s": search_s, "processor_s": processor_s, "step_s": result.seconds, "name": problem["name"],
    "last_step_s": last.seconds, "is_over": is_over,
    "found": result.name, "improvements": len(result.improvements), "bytes": result.memory,
    "joint_bound_s": result.joint_bound, "bound_s": result.bound, "axis": result.result.axis,
    "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def measure(problems: list[Any], settings: Settings, limit: float) -> Generator[Record]:
    """A record for each problem."""
    for problem in progress(problems, "searches"):
        ran = [searched(problem, limit), searched(problem, None), searched(problem, None)]
        failed = [process for process in ran if process.returncode]
        if failed:
            yield {"name": problem.name, "error": failed[0].stderr.strip().splitlines()[-1]}
            continue
        record, *more = (json.loads(process.stdout.splitlines()[-1]) for process in ran)
        yield {**record, "first_processor_s": statistics.median([record["first_processor_s"], *more])}


def searched(problem: Problem, limit: float | None) -> subprocess.CompletedProcess[str]:
    """The script in a new process; without a limit it prints the processor seconds to the first schedule alone."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(problem._asdict()), json.dumps(limit)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.getcwd()}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


SUITE = Suite("scale", measure, once(PROBLEMS), problems=cases(PROBLEMS), limit=60.0)
