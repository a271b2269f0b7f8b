"""Twenty programs by `rd.distribute` and by XLA with the same pins: bytes received, counted from both as compiled.

Each is compiled for 8 virtual CPU devices (or 4) twice: small, where both run and are held against the undistributed
function, and at a size of life, where the figures of the report are counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator

from bench import results
from bench.children import Child, progress
from bench.programs import page
from bench.programs.all import cases
from bench.summary import Record
from bench.xla_cpu import environment

SMALL, FULL = "small", "full"


def measure(names: list[str], cost_model: str | None, limit: float) -> Generator[Record]:
    """One record per program."""
    with Child("bench.programs.worker", environment(8)) as child:
        for name in progress(names, "programs"):
            record: Record = {"name": name, "mesh": dict(cases()[name].mesh)}
            for size in (SMALL, FULL):
                task = {"case": name, "size": size, "cost_model": cost_model}
                record[size] = child.ask(task, limit)
            yield record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="all programs are counted either way")
    parser.add_argument("--only", default="", help="programs with this in their names")
    parser.add_argument("--seed", type=int, default=0, help="nothing is drawn here")
    parser.add_argument("--cost-model", default="exact", help="what our plans minimise")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds to compile, and run, one program")
    parser.add_argument("--minutes", type=float, default=None, help="take no new program after this time")
    parser.add_argument("--name", default="programs", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    names = [name for name in cases() if arguments.only in name]
    run = measure(names, arguments.cost_model, arguments.limit)
    settings = {"cost_model": arguments.cost_model, "limit_s": arguments.limit}
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    head, *rows = page.rows(records)
    for row in [head, *rows]:
        print(" | ".join(row))
    print(page.verdict(records))
    return 1 if any(record[SMALL].get("wrong") for record in records) else 0
