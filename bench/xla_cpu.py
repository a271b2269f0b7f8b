"""Ours against XLA's reshard on virtual CPU devices of one process, paired.

A collective between virtual devices is a copy in memory, so these run times measure local copies and overheads. The
counts from the compiled HLO hold on any network.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import cache

from bench.children import Child, progress
from bench.problems import MEGABYTE, SETS, Problem
from bench.results import Record
from bench.suite import Settings, Suite

SAMPLE = {"H222": 20, "U222": 30, "U234": 10, "U46": 8, "U444": 4, "U88": 4, "S234": 20, "paper": 4, "layouts": 14}
DRAWN = ("H222", "U222", "U444", "U88", "U46", "U234", "U2222", "S223", "S233", "S234")
FULL = {**{name: SETS[name].count for name in DRAWN}, "paper": 4, "layouts": 15}
TIMED_BYTES = MEGABYTE  # with smaller arrays the launch of a collective between threads dominates the time
TIMED_DEVICES = 24  # with more virtual devices per core the times have no meaning, so only counts are taken


def environment(devices: int) -> dict[str, str]:
    """Variables that give a child `devices` virtual CPU devices and no other platform."""
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def children(stack: ExitStack) -> Callable[[int], Child]:
    """A function from a number of virtual CPU devices to a child that compiles for them; the stack ends it."""
    return cache(lambda devices: stack.enter_context(Child("bench.worker_compiled", environment(devices))))


def measure(problems: list[Problem], settings: Settings, limit: float) -> Generator[Record]:
    """One record per problem; problems of one device count share a child."""
    with ExitStack() as stack:
        child_of = children(stack)
        for problem in progress(problems, "XLA on CPU"):
            small = problem.scaled(int(settings["megabytes"] * MEGABYTE))
            timed = problem.devices <= TIMED_DEVICES and small.nbytes >= TIMED_BYTES
            task = {**settings, "rounds": settings["rounds"] * timed, "problem": small.to_json()}
            yield {**small.record(), **child_of(problem.devices).ask(task, limit)}


SUITE = Suite(
    "xla_cpu",
    measure,
    SAMPLE,
    FULL,
    options={"rounds": 9, "megabytes": 32.0, "cost_model": "cpu", "null": False},
)
