"""Ours against XLA's own reshard on virtual CPU devices of one process, paired.

A collective between virtual devices is a memory copy, so run times here weigh local copies and overheads; the
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
TIMED_BYTES = MEGABYTE  # smaller arrays only measure the launch of a collective between threads
TIMED_DEVICES = 24  # on more virtual devices than this only counts are taken: a core cannot time 64 of them


def environment(devices: int) -> dict[str, str]:
    """So that a child has `devices` virtual CPU devices and sees no other platform."""
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
