"""Twenty programs by `rd.distribute` and by XLA with the same pins: bytes received, counted from both as compiled.

Each is compiled for 8 virtual CPU devices (or 4) twice: small, where both run and are held against the undistributed
function, and at a size of life, where the figures of the report are counted.
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
    """The programs that the settings name."""
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
