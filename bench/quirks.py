"""Every quirk of XLA on virtual CPU devices, switched off by itself: what it brings on whole models and on problems.

On and off take turns in one process: first calls with empty caches, later calls, bytes; resident memory is of fresh
processes that take turns. A ratio is off over on, so above 1 the quirk pays.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from dataclasses import fields
from typing import Any

from bench import results
from bench.children import Child, progress
from bench.job import Job
from bench.problems import DEFAULT_SEED, MEGABYTE, Problem, in_turn
from bench.stats import Interval, bootstrap_geomean, paired_ratio, quantile
from bench.trees import DEVICES, Case, Loopback
from bench.xla_cpu import TIMED_DEVICES, environment

TREES = (
    Case("minilm", 4),
    Case("minilm", 8),
    Case("billion", 4, 2),
    Case("billion", 8, 2),
    Case("minilm", 4, processes=2),
    Case("small leaves", 1),
)
ALONE = Case("minilm", 4)  # moved with a launch for every leaf, to see whether it arrives at all
SETS = {"U222": 10, "H222": 10, "U234": 8, "paper": 4, "layouts": 13}
# Quirks that a plan's own program heeds, and the size of arrays on which they are measured.
PROBLEMS = {"piecewise": 32.0, "ordered": 32.0, "chunk": 64.0}
MEMORY_TURNS = 3


def quirks() -> list[str]:
    """The names of all quirks."""
    from redistrib.backends.jax.xla_cpu import Quirks

    return [field.name for field in fields(Quirks)]


def started(case: Case) -> Job | Child:
    """The process of a case, or its processes."""
    if case.processes == 1:
        return Child("bench.worker_quirks", environment(DEVICES))
    variables = {
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "BENCH_CLUSTER_DEVICES": str(DEVICES // case.processes),
    }
    return Job(Loopback(), "bench.worker_quirks", variables, per_host=case.processes)


def on_trees(cases: tuple[Case, ...], names: list[str], turns: int, limit: float) -> Generator[dict[str, Any]]:
    """One record per case and quirk."""
    for case in cases:
        job = started(case)
        try:
            for name in progress(names, case.name):
                answer = job.ask(case.task(what="tree", quirk=name, turns=turns, calls=2), limit)
                if answer["status"] != "ok":
                    job.stop()
                yield {"case": case.name, "quirk": name, **answer}
        finally:
            job.stop()


def on_memory(case: Case, names: list[str], limit: float) -> Generator[dict[str, Any]]:
    """One record per quirk: the resident peak of the first call, and of the worst of three, in fresh processes."""
    for name in progress(names, f"memory of {case.name}"):
        found: dict[str, list[list[int]]] = {"on": [], "off": []}
        for _ in range(MEMORY_TURNS):
            for side in found:
                child = Child("bench.worker_quirks", environment(DEVICES))
                try:
                    answer = child.ask(case.task(what="memory", quirk=name, switched=side), limit)
                finally:
                    child.stop()
                if "resident" in answer:
                    found[side].append(answer["resident"])
        yield {"case": case.name, "quirk": name, "status": "ok", "resident": found}


def on_problems(problems: list[Problem], names: list[str], turns: int, limit: float) -> Generator[dict[str, Any]]:
    """One record per quirk and problem of which it changes the program."""
    children: dict[int, Child] = {}
    try:
        for name in names:
            for problem in progress([one for one in problems if one.devices <= TIMED_DEVICES], f"problems, {name}"):
                small = problem.scaled(int(PROBLEMS[name] * MEGABYTE))
                task = {"what": "problem", "quirk": name, "problem": small.to_json(), "compiles": 5, "turns": turns}
                several = environment(problem.devices)
                child = children.setdefault(problem.devices, Child("bench.worker_quirks", several))
                answer = child.ask(task, limit)
                if "same" not in answer:
                    yield {"case": "problems", "quirk": name, **small.record(), **answer}
    finally:
        for child in children.values():
            child.stop()


# --------------------------------------------------------------------------------------------------------- summary


HEAD = ["quirk", "case", "first call", "its processor time", "later call", "bytes", "resident, MB: off / on"]


def ratio(record: dict[str, Any], what: str) -> Interval | None:
    """Off over on, of seconds, in the turns that were taken; None where fewer than two were."""
    on, off = (record.get(what, {}).get(side, []) for side in ("on", "off"))
    turns = min(len(on), len(off))
    return paired_ratio(off[:turns], on[:turns]) if turns > 1 else None


def rows(records: list[dict[str, Any]]) -> list[list[str]]:
    """Of every quirk and case: seconds of the first call and of later ones, bytes of the plan, resident bytes."""
    there = quirks()
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault((record["quirk"], record["case"]), []).append(record)
    order = sorted(found, key=lambda name: (name[0] not in there, name[0] in there and there.index(name[0]), name))
    return [[f"{name}{'' if name in there else ', gone'}", case, *_cells(found[name, case])] for name, case in order]


def _cells(group: list[dict[str, Any]]) -> list[str]:
    cells = []
    for what in ("first", "busy", "call"):
        each = [found for record in group if (found := ratio(record, what))]
        if group[0]["case"] == "problems":
            cells.append(f"{bootstrap_geomean([one.value for one in each])} over {len(each)}" if each else "")
        else:
            cells.append(str(each[0]) if each else "")
    peaks = [record["peak"] for record in group if len(record.get("peak", {})) == 2]
    off, on = (sum(peak[side] for peak in peaks) for side in ("off", "on"))
    cells.append(f"{off / on:.3f}" if on else "")
    resident = [record["resident"] for record in group if "resident" in record]
    worst = [quantile([max(calls) for one in resident for calls in one[side]], 0.5) for side in ("off", "on")]
    cells.append(" / ".join(f"{size / 1e6:.0f}" for size in worst) if resident else "")
    if not any(cells):
        cells[0] = f"off: {', '.join(sorted({record['status'] for record in group}))}"
    return cells


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", help="quirks, with commas between them; all by default")
    parser.add_argument("--cases", default="", help="cases whose name contains this; `problems` and `memory` are two")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--turns", type=int, default=11, help="paired measurements")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds per case and quirk, above which it hangs")
    parser.add_argument("--minutes", type=float, default=None, help="take no new case after this time")
    parser.add_argument("--name", default="quirks", help="name of the results file")


def measure(arguments: argparse.Namespace) -> Generator[dict[str, Any]]:
    """One record after the other."""
    names = [name for name in quirks() if not arguments.only or name in arguments.only.split(",")]
    if arguments.cases in "problems":
        heeded = [name for name in names if name in PROBLEMS]
        yield from on_problems(in_turn(SETS, arguments.seed), heeded, 2 * arguments.turns, arguments.limit)
    if arguments.cases in "memory":
        yield from on_memory(TREES[0], names, arguments.limit)
    cases = tuple(case for case in TREES if arguments.cases in case.name)
    yield from on_trees(cases, names, arguments.turns, arguments.limit)
    if arguments.cases in "a launch for every leaf" and "one_at_a_time" in names:
        task = ALONE.task(what="tree", quirk="one_at_a_time", turns=2, calls=20, leaves=1)
        with Child("bench.worker_quirks", environment(DEVICES)) as child:
            answer = child.ask(task, arguments.limit)
        yield {"case": "a launch for every leaf", "quirk": "one_at_a_time", **answer}


def main(arguments: argparse.Namespace) -> int:
    settings = {"seed": arguments.seed, "devices": DEVICES, "turns": arguments.turns, "limit_s": arguments.limit}
    records = results.collect(arguments.name, measure(arguments), settings, arguments.minutes)
    for row in rows(records):
        print(" | ".join(row))
    return 1 if any("wrong" in record for record in records) else 0
