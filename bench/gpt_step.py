"""Training steps of a GPT of six layers by `jax.jit` and by `rd.distribute`, with the same `in_shardings` and
`out_shardings`, in turns on the same arguments on 8 virtual CPU devices of one process.

A collective is a copy there, and the devices share the cores, so that most of the seconds are those of the products.
The bytes, of the compiled programs, hold on any network.
"""

from __future__ import annotations

import os
from collections.abc import Generator

from bench.children import Child, progress
from bench.programs.counted import names_of_programs
from bench.programs.gpt import MESHES
from bench.results import Record
from bench.stats import paired_ratio, quantile
from bench.suite import Settings, Suite, once
from bench.summary import OURS, XLA, timed
from bench.xla_cpu import environment

HEAD = ["mesh", "median s (range)", "jit", "jit/ours", "received, MB", "jit"]


def measure(names: list[str], settings: Settings, limit: float) -> Generator[Record]:
    """One record per mesh, with the load of the machine before and after."""
    for name in progress(names, "steps of a GPT"):
        before = os.getloadavg()[0]
        with Child("bench.programs.worker_gpt", environment(8)) as child:
            answer = child.ask({**settings, "case": name}, limit)
        yield {"name": name, "mesh": MESHES[name], **answer, "load": [before, os.getloadavg()[0]]}


def rows(records: list[Record]) -> list[list[str]]:
    """A row for each mesh: seconds of a step, their ratio, bytes that all devices receive."""
    return [
        [
            record["name"],
            *(_seconds(record["times"][side]) for side in (OURS, XLA)),
            str(paired_ratio(record["times"][XLA], record["times"][OURS])),
            *(f"{record[side]['received'] / 1e6:,.0f}" for side in (OURS, XLA)),
        ]
        for record in timed(records)
    ]


def _seconds(times: list[float]) -> str:
    return f"{quantile(times, 0.5):.2f} ({min(times):.2f}-{max(times):.2f})"


SUITE = Suite(
    "gpt_step",
    measure,
    once(MESHES),
    options={"size": "full", "rounds": 10, "cost_model": "tpu"},
    problems=names_of_programs,
    limit=900.0,
)
