"""Whole models by `reshard`, by `jax.device_put` and by one `jit` with `out_shardings`: from fully sharded to tensor
parallel on 8 devices, in one process of virtual CPU devices and between processes on loopback.

Wall times, first calls and bytes are of one run in which the sides alternate; memory is of each side alone in a new
process.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from bench.children import Child, progress
from bench.job import Job
from bench.results import Record
from bench.suite import Settings, Suite, cases, once
from bench.xla_cpu import environment

DEVICES = 8
SIDES = ("ours", "device_put", "jit")
BUDGET = 64 * 2**20  # bytes per device beyond source and target in the memory limit of ours


@dataclass(frozen=True)
class Case:
    """A model, the devices of its tensor parallel groups, its layers, and the processes of the devices."""

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
    """A network of this machine alone, for the processes of a `Job`."""

    addresses: tuple[str, ...] = ("127.0.0.1",)

    def prefix(self, host: int) -> list[str]:
        """No words before the command."""
        return []


class Processes:
    """One process with all devices, or a job of several processes."""

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
        """Run one task in new processes, which end with it."""
        try:
            return self._job.ask(task, limit)
        finally:
            self._job.stop()


def measure(models: list[Case], settings: Settings, limit: float) -> Generator[Record]:
    """One record per case."""
    for case in progress(models, "trees"):
        times = case.task(what="times", rounds=settings["rounds"], turns=settings["turns"])
        answer = Processes(case).ask(times, limit)
        resident: dict[str, Any] = {}
        for side, budget in [*((side, None) for side in SIDES), ("ours", BUDGET)]:
            task = case.task(what="memory", side=side, budget=budget)
            name = side if budget is None else "ours, limited"
            resident[name] = Processes(case).ask(task, limit)
        yield {"case": case.name, "processes": case.processes, **answer, "memory": resident}


SUITE = Suite(
    "trees",
    measure,
    once(case.name for case in SAMPLE),
    once(case.name for case in FULL),
    options={"rounds": 7, "turns": 5},
    problems=cases({case.name: case for case in FULL}),
    prepared=lambda settings: {**settings, "devices": DEVICES, "budget": BUDGET},
    limit=900.0,
)
