"""Seconds that programs take on an accelerator, beside those that searches predict.

The programs have sizes of models. Rates are calibrated in the same run, on other operations; nothing is fitted to the
programs. The bytes that their kernels access and the memory that they take are those of the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

from bench.children import Child, progress
from bench.kernel_programs import programs
from bench.results import Record
from bench.suite import Settings, Suite, once

NAMES = tuple(programs())
ENVIRONMENT = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92"}


def prepared(settings: Settings) -> Settings:
    """The settings, with the name of the accelerator and its rates."""
    with Child("bench.worker_accelerator_seconds", ENVIRONMENT) as child:
        answer = child.ask({"calibrate": True}, 300)
    if "rates" not in answer:
        raise RuntimeError(f"the rates could not be measured: {answer.get('log', answer['status'])}")
    figures = {name: answer[name] for name in ("fit", "chip", "kind")}
    return {**settings, **figures, "rates": json.loads(answer["rates"])}


def measure(names: list[Any], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program."""
    with Child("bench.worker_accelerator_seconds", ENVIRONMENT) as child:
        for name in progress(names, "seconds of an accelerator"):
            answer = child.ask({"name": name, "rates": settings["rates"], "chip": settings["chip"]}, limit)
            yield {"name": name, **answer}


def _missing(_: Settings) -> str | None:
    with Child("bench.worker_accelerator_seconds", ENVIRONMENT) as child:
        answer = child.ask({}, 120)
    return None if answer.get("platform", "cpu") != "cpu" else "it needs an accelerator"


SUITE = Suite(
    "accelerator_seconds",
    measure,
    once(NAMES),
    problems=lambda settings: {name: name for name in settings["sets"]},
    prepared=prepared,
    missing=_missing,
    limit=120.0,
)
