"""Ours against XLA's reshard on virtual CPU devices of one process, paired.

A collective between virtual devices is a copy in memory, so these run times measure local copies and overheads. The
counts from the compiled HLO hold on any network.
"""

from __future__ import annotations

from collections.abc import Generator

from bench.children import Child, progress
from bench.problems import MEGABYTE, Problem
from bench.results import Record
from bench.suite import Settings, Suite

SAMPLE = {"H222": 20, "U222": 30, "U234": 10, "U46": 8, "U444": 4, "U88": 4, "S234": 20, "paper": 4, "layouts": 14}
FULL = {
    "H222": 500,
    "U222": 500,
    "U444": 60,
    "U88": 60,
    "U46": 60,
    "U234": 60,
    "U2222": 60,
    "S223": 300,
    "S233": 300,
    "S234": 300,
    "paper": 4,
    "layouts": 15,
}
TIMED_BYTES = MEGABYTE  # with smaller arrays the launch of a collective between threads dominates the time
TIMED_DEVICES = 24  # with more virtual devices per core the times have no meaning, so only counts are taken


def environment(devices: int) -> dict[str, str]:
    """Variables that give a child `devices` virtual CPU devices and no other platform."""
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def measure(problems: list[Problem], settings: Settings, limit: float) -> Generator[Record]:
    """One record per problem; problems of one device count share a child."""
    children: dict[int, Child] = {}
    try:
        for problem in progress(problems, "XLA on CPU"):
            count = problem.devices
            child = children.setdefault(count, Child("bench.worker_compiled", environment(count)))
            small = problem.scaled(int(settings["megabytes"] * MEGABYTE))
            timed = count <= TIMED_DEVICES and small.nbytes >= TIMED_BYTES
            answer = child.ask({**settings, "rounds": settings["rounds"] * timed, "problem": small.to_json()}, limit)
            yield {**small.record(), **answer}
    finally:
        for child in children.values():
            child.stop()


SUITE = Suite(
    "xla_cpu",
    measure,
    SAMPLE,
    FULL,
    options={"rounds": 9, "megabytes": 32.0, "algorithm": None, "cost_model": "cpu", "schedule": None, "null": False},
)
