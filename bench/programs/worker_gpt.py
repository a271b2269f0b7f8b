"""Child of `bench.gpt_step`: compiles the step by ours and by `jax.jit`, compares the results, and times both."""

from __future__ import annotations

from typing import Any

import jax

from bench.children import serve
from bench.pairing import Part, run_paired
from bench.programs.gpt import gpt
from bench.programs.pair import Pair


def handle(task: dict[str, Any], part: Part) -> None:
    pair = Pair(gpt(task["case"], task["size"]), jax.devices())
    programs = pair.compile(task, part)
    if len(programs) == 2:
        run_paired(pair, programs, task, part)


if __name__ == "__main__":
    serve(handle)
