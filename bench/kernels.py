"""Bytes that kernels read and write: those that searches count, beside those that the TPU compiler of `libtpu` counts.

Nothing runs, so that arrays have the sizes of models. Each program is compiled for each TPU in a child process under a
time limit.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from typing import Any

from bench.children import Child, progress
from bench.kernel_programs import programs
from bench.results import Record
from bench.suite import Settings, Suite, once
from bench.tpu import ENVIRONMENT

TOPOLOGIES = {"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}


def problems_of(settings: Settings) -> dict[str, tuple[str, str]]:
    """A TPU and a program, by the name of the record."""
    return {f"{tpu} {name}": (tpu, name) for tpu in settings["sets"] for name in programs()}


def measure(work: list[Any], settings: Settings, limit: float) -> Generator[Record]:
    """One record per TPU and program."""
    with Child("bench.worker_kernels", ENVIRONMENT) as child:
        for tpu, name in progress(work, "kernels"):
            answer = child.ask({"name": name, "topology": TOPOLOGIES[tpu]}, limit)
            yield {"tpu": tpu, "name": name, **answer}


def identity(record: Record) -> str:
    """The TPU and the program of a record."""
    return f"{record['tpu']} {record['name']}"


SUITE = Suite(
    "kernels",
    measure,
    once(TOPOLOGIES),
    problems=problems_of,
    missing=lambda _: None if importlib.util.find_spec("libtpu") else "it needs libtpu: pip install libtpu",
    limit=120.0,
    identity=identity,
)
