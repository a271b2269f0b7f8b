"""Child of `bench.xla_cpu`, `bench.tpu`, `bench.gpu` and `bench.partial`: compiles for virtual CPU devices, and times
the programs there, or compiles for a topology of TPUs or GPUs without any."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax

from bench import gpus
from bench.children import serve
from bench.pairing import Case, Part, compile_both, run_paired
from bench.problems import Problem


@cache
def devices_of(topology: str) -> list[Any]:
    """The devices of a topology ("v5e:2x4"), in the compiler's order; for an empty name those of this process."""
    if not topology:
        return list(jax.devices())
    if gpus.is_gpu(topology):
        return gpus.devices_of(topology)
    from jax.experimental import topologies

    return list(topologies.get_topology_desc(topology, platform="tpu").devices)


def handle(task: dict[str, Any], part: Part) -> None:
    devices = devices_of(task.get("compile_for", ""))
    if "problem" not in task:
        part({"topology_devices": len(devices)})
        return
    case = Case(Problem.from_json(task["problem"]), devices)
    programs = compile_both(case, task, part)
    if task.get("rounds") and len(programs) == 2:
        run_paired(case, programs, task, part)
    jax.clear_caches()


if __name__ == "__main__":
    serve(handle)
