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
    """The settings, with the rates of this machine."""
    with Child("bench.worker_cpu_seconds", ENVIRONMENT) as child:
        answer = child.ask({"calibrate": True}, 300)
    if "rates" not in answer:
        raise RuntimeError(f"the rates could not be measured: {answer.get('log', answer['status'])}")
    return {**settings, "rates": json.loads(answer["rates"]), "fit": answer["fit"]}


def measure(names: list[Any], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program, and one for all schedules."""
    flags = f"{ONE_THREAD} --xla_force_host_platform_device_count={DEVICES}"
    with (
        Child("bench.worker_cpu_seconds", ENVIRONMENT) as one,
        Child("bench.worker_cpu_seconds", {**ENVIRONMENT, "XLA_FLAGS": flags}) as several,
    ):
        for name in progress(names, "processor seconds"):
            child = several if name == SCHEDULES else one
            answer = child.ask({"name": name, "rates": settings["rates"]}, limit)
            yield {"name": name, **answer}


SUITE = Suite(
    "cpu_seconds",
    measure,
    once(NAMES),
    problems=lambda settings: {name: name for name in settings["sets"]},
    prepared=prepared,
    limit=180.0,
)
