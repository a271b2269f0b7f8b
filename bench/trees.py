"""Whole models by `reshard`, by `jax.device_put` and by one `jit` with `out_shardings`: from fully sharded to tensor
parallel on 8 devices, in one process of virtual CPU devices and between processes on loopback.

Wall times, first calls and bytes are of one run that takes turns; memory is of each side alone in a fresh process.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from bench import results
from bench.children import Child, progress
from bench.job import Job
from bench.stats import paired_ratio, quantile
from bench.xla_cpu import environment

DEVICES = 8
SIDES = ("ours", "device_put", "jit")
BUDGET = 64 * 2**20  # bytes per device beyond source and target that ours is given when its peak is held to a limit
MEBIBYTE = 2**20


@dataclass(frozen=True)
class Case:
    """A model, how often its serving layout cuts it, and over how many processes the devices are spread."""

    model: str
    ways: int
    layers: int = 24
    processes: int = 1

    @property
    def name(self) -> str:
        where = f", {self.processes} processes" if self.processes > 1 else ""
        size = f", {self.layers} layers" if self.model == "billion" and self.layers != 24 else ""
        return f"{self.model}{size}, tensor parallel {self.ways}{where}"

    def task(self, **more: Any) -> dict[str, Any]:
        return {"model": self.model, "ways": self.ways, "layers": self.layers, **more}


SAMPLE = (Case("minilm", 4), Case("minilm", 8), Case("minilm", 4, processes=2))
FULL = (
    *SAMPLE,
    Case("billion", 4),
    Case("billion", 8),
    Case("minilm", 4, processes=4),
    Case("billion", 4, 6, processes=2),
    Case("billion", 8, 6, processes=4),
)


@dataclass(frozen=True)
class Loopback:
    """Processes side by side on this machine, as `Job` wants a network."""

    addresses: tuple[str, ...] = ("127.0.0.1",)

    def prefix(self, host: int) -> list[str]:
        """Nothing goes before the command."""
        return []


class Processes:
    """One process of all devices, or a job of several."""

    def __init__(self, case: Case) -> None:
        self._case = case
        devices = str(DEVICES // case.processes)
        self._job: Job | Child
        if case.processes == 1:
            self._job = Child("bench.worker_trees", environment(DEVICES))
        else:
            variables = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "BENCH_CLUSTER_DEVICES": devices}
            self._job = Job(Loopback(), "bench.worker_trees", variables, per_host=case.processes)

    def ask(self, task: dict[str, Any], limit: float) -> dict[str, Any]:
        """One task in fresh processes, which end with it."""
        try:
            return self._job.ask(task, limit)
        finally:
            self._job.stop()


def measure(cases: tuple[Case, ...], rounds: int, turns: int, limit: float) -> Generator[dict[str, Any]]:
    """One record per case."""
    for case in progress(cases, "trees"):
        answer = Processes(case).ask(case.task(what="times", rounds=rounds, turns=turns), limit)
        resident: dict[str, Any] = {}
        for side, budget in [*((side, None) for side in SIDES), ("ours", BUDGET)]:
            task = case.task(what="memory", side=side, budget=budget)
            name = side if budget is None else "ours, limited"
            resident[name] = Processes(case).ask(task, limit)
        yield {"case": case.name, "processes": case.processes, **answer, "memory": resident}


def lines(record: dict[str, Any]) -> list[str]:
    """What a record says, as lines of text; every ratio is theirs over ours, so above 1 ours is better."""
    if record["status"] != "ok" or "times" not in record:
        return [f"{record['case']}: {record['status']} {record.get('error', record.get('log', ''))}"]
    times = record["times"]
    found = [
        f"{record['case']}: {record['arrays']} arrays, {record['parameters']:,} parameters, "
        f"{record['launches']} launches of {record['programs']} programs, missed on later calls: {record['missed']}",
        "  seconds: " + ", ".join(f"{side} {quantile(times[side], 0.5):.3f}" for side in SIDES),
        "  faster than: " + ", ".join(f"{side} {paired_ratio(times[side], times['ours'])}" for side in SIDES[1:]),
        f"  received: ours {record['received']['ours']:,}, jit {record['received']['jit']:,}, "
        f"bound {record['bound']:,}",
        f"  device peak: ours {record['device_peak']['ours']:,}, jit {record['device_peak']['jit']:,}, "
        f"source and target {sum(record['device_bytes'].values()):,}",
    ]
    if "first_calls" in record:
        first = record["first_calls"]
        found.append(
            f"  first call: ours {quantile(first['ours'], 0.5):.2f} s, jit {quantile(first['jit'], 0.5):.2f} s, "
            f"ratio {paired_ratio(first['jit'], first['ours'])}"
        )
    for side, entry in record["memory"].items():
        if "resident" in entry:
            peaks = ", ".join(f"{peak / MEBIBYTE:,.0f}" for peak in entry["resident"])
            found.append(f"  resident beyond the source, MiB, {side}: {peaks} in calls 1 to 3")
        else:
            found.append(f"  {side}: {entry['status']} {entry.get('error', '')}")
    if "wrong" in record:
        found.append(f"  WRONG: {record['wrong']}")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="the model of a billion parameters too")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--seed", type=int, default=0, help="nothing is drawn; taken for the sake of the others")
    parser.add_argument("--rounds", type=int, default=7, help="paired calls per case")
    parser.add_argument("--turns", type=int, default=5, help="paired first calls per case")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds per case")
    parser.add_argument("--minutes", type=float, default=None, help="take no new case after this time")
    parser.add_argument("--name", default="trees", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    cases = FULL if arguments.full or arguments.only else SAMPLE
    cases = tuple(case for case in cases if not arguments.only or arguments.only in case.name)
    settings = {"devices": DEVICES, "budget": BUDGET, "rounds": arguments.rounds, "turns": arguments.turns}
    run = measure(cases, arguments.rounds, arguments.turns, arguments.limit)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    for record in records:
        print("\n".join(lines(record)))
    return 0 if all(record["status"] == "ok" and "wrong" not in record for record in records) else 1
