"""Ours and XLA's reshard under XLA's GPU compiler, compiled for hosts of GPUs without a GPU.

Arrays keep their full size, since nothing runs. Each side compiles in a child process under a time limit.
"""

from __future__ import annotations

from functools import partial

from bench import gpus
from bench.suite import Suite
from bench.tpu import Job, identity, measure, problems_of

JOBS = (
    Job("h200:1x1x8", "U222", 12, 300),
    Job("h200:1x1x8", "A222", 6, 60),
    Job("h200:1x1x8", "H222", 6, 100),
    Job("h200:1x1x8", "layouts", 4, 15),
    Job("h200:1x2x8", "U44", 4, 40),
    Job("h200:1x2x8", "U2222", 4, 40),
    Job("h200:1x64x8", "U888", 2, 8),
)

SUITE = Suite(
    "gpu",
    partial(measure, environment=gpus.ENVIRONMENT, name="GPU compiler"),
    {job.name: job.sample for job in JOBS},
    {job.name: job.full for job in JOBS},
    options={"cost_model": "gpu", "null": False},
    problems=partial(problems_of, jobs=JOBS),
    missing=lambda _: gpus.missing(),
    limit=60.0,
    identity=identity,
)
