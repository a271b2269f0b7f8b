"""Bytes that kernels read and write: those that searches count, beside those that the TPU compiler of `libtpu` counts.

Nothing runs, so that arrays have the sizes of models. Each program is compiled in a child process under a time limit.
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

TOPOLOGY = "v5p:2x2x1"
NAMES = tuple(programs())


def measure(names: list[Any], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program."""
    with Child("bench.worker_kernels", ENVIRONMENT) as child:
        for name in progress(names, "kernels"):
            answer = child.ask({"name": name, "topology": TOPOLOGY}, limit)
            yield {"name": name, **answer}


SUITE = Suite(
    "kernels",
    measure,
    once(NAMES),
    problems=lambda settings: {name: name for name in settings["sets"]},
    missing=lambda _: None if importlib.util.find_spec("libtpu") else "it needs libtpu: pip install libtpu",
    limit=120.0,
)
