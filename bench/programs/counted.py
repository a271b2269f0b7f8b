"""Twenty programs by `rd.distribute` and by XLA with the same pins: bytes received, from both compiled programs.

Each is compiled for 8 virtual CPU devices (or 4) at two sizes. The small programs run, and their results are compared
with those of the undistributed function. The figures of the report are counted at the size of practice.
"""

from __future__ import annotations

from collections.abc import Generator

from bench.children import Child, progress
from bench.programs.all import cases
from bench.results import Record
from bench.suite import Settings, Suite, once
from bench.xla_cpu import environment

SMALL, FULL = "small", "full"


def names_of_programs(settings: Settings) -> dict[str, str]:
    """The names of the programs in the settings, as the problems of a suite."""
    return {name: name for name in settings["sets"]}


def measure(names: list[str], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program."""
    with Child("bench.programs.worker", environment(8)) as child:
        for name in progress(names, "programs"):
            record: Record = {"name": name, "mesh": dict(cases()[name].mesh)}
            for size in (SMALL, FULL):
                task = {"case": name, "size": size, "cost_model": settings["cost_model"]}
                record[size] = child.ask(task, limit)
            yield record


SUITE = Suite(
    "programs", measure, once(cases()), options={"cost_model": "exact"}, problems=names_of_programs, limit=300.0
)
