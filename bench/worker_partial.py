"""Child of `bench.partial`: compiles for virtual CPU devices, or for a TPU topology without a TPU."""

from __future__ import annotations

from typing import Any

import jax

from bench.children import serve
from bench.pairing import Case, Part, compile_both
from bench.problems import Problem
from bench.worker_tpu import devices_of


def handle(task: dict[str, Any], part: Part) -> None:
    devices = devices_of(task["topology"]) if task["topology"] else jax.devices()
    compile_both(Case(Problem.from_json(task["problem"]), devices), task, part)
    jax.clear_caches()


if __name__ == "__main__":
    serve(handle)
