"""Child of `bench.programs.counted` and `bench.gpu_programs`: compiles programs, and runs the small ones."""

from __future__ import annotations

from typing import Any

import jax

from bench.children import serve
from bench.pairing import Part
from bench.programs.all import cases
from bench.programs.pair import Pair
from bench.worker_compiled import devices_of


def handle(task: dict[str, Any], part: Part) -> None:
    pair = Pair(cases(task["size"])[task["case"]], devices_of(task.get("compile_for", "")))
    programs = pair.compile(task, part)
    if task["size"] == "small":
        args = pair.array()
        part({"wrong": {name: wrong for name, run in programs.items() if (wrong := pair.check(run(args)))}})
    jax.clear_caches()


if __name__ == "__main__":
    serve(handle)
