"""Processor seconds: those that searches predict from measured rates, beside those that programs take on one core.

The rates are calibrated in the same run. Nothing is fitted to the programs.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

from bench.children import Child, progress
from bench.kernel_programs import ONE_CORE, programs
from bench.results import Record
from bench.suite import Settings, Suite, once

MORE = ("grouped heads", "RNN by scan", "conjugate gradients", "FFT by transposes", "SpMV", "Monte Carlo")
SCHEDULES = "schedules"
NAMES = (*programs(ONE_CORE), *MORE, SCHEDULES)
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
DEVICES = 8
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": ONE_THREAD,
    # Freed memory stays with the process. Else the system hands out new pages in every call that takes above 32 MiB,
    # at about 2 GB/s, which no operation is to blame for.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(2**28),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


def prepared(settings: Settings) -> Settings:
    """The settings, with the rates of this machine and the seconds of the programs, of the quickest of several passes.

    Other work on the machine slows some passes down, and each measures both.
    """
    names = [name for name in settings["sets"] if name != SCHEDULES]
    samples: dict[str, Record] = {}
    measured: dict[str, Record] = {}
    with Child("bench.worker_cpu_seconds", ENVIRONMENT) as child:
        for number in range(settings["passes"]):
            answer = child.ask({"calibrate": True}, 300)
            if "samples" not in answer:
                raise RuntimeError(f"the rates could not be measured: {answer.get('log', answer['status'])}")
            for sample in answer["samples"]:
                keep_least(samples, sample["name"], sample, "seconds")
            for name in progress(names, f"processor seconds, pass {number + 1}"):
                answer = child.ask({"time": name}, settings["limit_s"])
                if answer["status"] == "ok":
                    keep_least(measured, name, answer, "measured")
        fit = child.ask({"fit": [*samples.values()]}, 60)
    return {**settings, "rates": json.loads(fit["rates"]), "fit": fit["fit"], "measured": measured}


def keep_least(kept: dict[str, Record], name: str, timed: Record, seconds: str) -> None:
    """Keep what was timed under a name, unless an earlier pass took less."""
    kept[name] = min(kept.get(name, timed), timed, key=lambda one: one[seconds])


def measure(names: list[Any], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program, and one for all schedules."""
    flags = f"{ONE_THREAD} --xla_force_host_platform_device_count={DEVICES}"
    with (
        Child("bench.worker_cpu_seconds", ENVIRONMENT) as one,
        Child("bench.worker_cpu_seconds", {**ENVIRONMENT, "XLA_FLAGS": flags}) as several,
    ):
        for name in progress(names, "prices"):
            child = several if name == SCHEDULES else one
            answer = child.ask({"price": name, "rates": settings["rates"]}, limit)
            yield {"name": name, **settings["measured"].get(name, {}), **answer}


SUITE = Suite(
    "cpu_seconds",
    measure,
    once(NAMES),
    options={"passes": 3},
    problems=lambda settings: {name: name for name in settings["sets"]},
    prepared=prepared,
    limit=180.0,
)
