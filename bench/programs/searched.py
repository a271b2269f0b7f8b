"""The twenty programs searched, with the pins of XLA, beside the bytes that XLA receives.

The bytes of XLA and of the schedules written by hand are read from `bench/results/programs.json`.
"""

from __future__ import annotations

from collections.abc import Generator

import jax

import redistrib as rd
from bench import results
from bench.children import progress
from bench.programs.all import cases
from bench.programs.counted import names_of_programs
from bench.results import Record
from bench.suite import Settings, Suite, once


def measure(names: list[str], settings: Settings, limit: float) -> Generator[Record]:
    """A record for each program."""
    jax.config.update("jax_platforms", "cpu")
    counted = results.load("programs")
    compiled = {record["name"]: record["full"] for record in counted["records"]} if counted else {}
    programs = cases("full")
    for name in progress(names, "searches"):
        case = programs[name]
        result = rd.search(
            case.function, case.args, case.mesh, in_shardings=case.ins, out_shardings=case.outs,
            objective="bytes", machine=settings["profile"], limit=limit, progress=False,
        )[0]  # fmt: skip
        yield {
            "name": name,
            **{side: compiled[name][side]["received"] for side in ("xla", "ours")},
            "received": result.received_bytes,
            "bound": result.bound,
            "complete": result.result.complete,
        }


SUITE = Suite(
    "programs_searched",
    measure,
    once(cases()),
    options={"profile": "gpu"},
    problems=names_of_programs,
    missing=lambda _: None if results.load("programs") else "needs the results of `python -m bench programs`",
    limit=60.0,
)
