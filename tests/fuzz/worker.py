"""Child of `tests.fuzz.bench`: a chunk of cases, each announced before it runs, so that one that kills is known."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

from bench.children import serve
from tests.fuzz.kinds import KINDS, Tally, one

MEMORY = 6 * 2**30  # bytes of address space where no compiler runs: a case that wants more fails instead of the machine


def handle(task: dict[str, Any], part: Callable[[dict[str, Any]], None]) -> None:
    kind, tally = KINDS[task["kind"]], Tally()
    if not kind.compiles:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for index in range(task["start"], task["stop"]):
        part({"index": index})
        one(kind, task["seed"], index, tally)
    part({"tally": tally.to_json()})


if __name__ == "__main__":
    serve(handle)
