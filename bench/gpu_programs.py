"""Twenty programs by `rd.distribute` and by XLA's partitioner with the same pins, under XLA's GPU compiler.

Bytes are counted in both compiled programs, and memory is what the compiler reports. Nothing runs.
"""

from __future__ import annotations

from collections.abc import Generator

from bench import gpus
from bench.children import Child, progress
from bench.programs.all import cases
from bench.programs.counted import FULL, names_of_programs
from bench.results import Record
from bench.suite import Settings, Suite, once

TOPOLOGY = "h200:1x1x8"


def measure(names: list[str], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program."""
    with Child("bench.programs.worker", gpus.ENVIRONMENT) as child:
        for name in progress(names, "programs for GPUs"):
            task = {"case": name, "size": FULL, "cost_model": settings["cost_model"], "compile_for": TOPOLOGY}
            yield {"name": name, "mesh": dict(cases()[name].mesh), FULL: child.ask(task, limit)}


SUITE = Suite(
    "gpu_programs", measure, once(cases()), options={"cost_model": "gpu"}, problems=names_of_programs,
    missing=lambda _: gpus.missing(), limit=300.0,
)  # fmt: skip
