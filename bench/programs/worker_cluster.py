"""Child of `bench.programs.cluster`: one process of a `jax.distributed` job."""

from __future__ import annotations

from typing import Any

import jax

from bench.children import serve
from bench.pairing import Part, run_paired
from bench.programs.all import cases
from bench.programs.pair import Pair
from bench.worker_cluster import agree, barrier, start


def handle(task: dict[str, Any], part: Part) -> None:
    pair = Pair(cases(task["size"])[task["case"]], jax.devices())
    programs = pair.compile(task, part, report=jax.process_index() == 0)
    if agree(len(programs) == 2):
        run_paired(pair, programs, task, part, barrier)


if __name__ == "__main__":
    start()
    serve(handle)
