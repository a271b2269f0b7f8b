"""Child of `bench.tpu`: compiles for TPU topologies; no TPU is attached."""

from __future__ import annotations

from functools import cache
from typing import Any

from jax.experimental import topologies

from bench.children import serve
from bench.pairing import Case, Part, compile_both
from bench.problems import Problem


@cache
def devices_of(topology: str) -> list[Any]:
    """The devices of a topology such as "v5e:2x4", in the compiler's order."""
    return list(topologies.get_topology_desc(topology, platform="tpu").devices)


def handle(task: dict[str, Any], part: Part) -> None:
    devices = devices_of(task["topology"])
    part({"topology_devices": len(devices)})
    if "problem" in task:
        compile_both(Case(Problem.from_json(task["problem"]), devices), task, part)


if __name__ == "__main__":
    serve(handle)
