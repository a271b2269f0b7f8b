"""Child of `bench.tpu`: compiles for TPU topologies; no TPU is attached."""

from __future__ import annotations

from functools import cache
from typing import Any

from jax.experimental import mesh_utils, topologies

from bench.children import serve
from bench.links import busiest
from bench.pairing import Case, Part, compile_both
from bench.problems import Problem
from redistrib.theory.topology import Topology


@cache
def devices_of(topology: str) -> list[Any]:
    """The devices of a topology such as "v5e:2x4", in the compiler's order."""
    return list(topologies.get_topology_desc(topology, platform="tpu").devices)


def handle(task: dict[str, Any], part: Part) -> None:
    devices = devices_of(task["topology"])
    part({"topology_devices": len(devices)})
    if "problem" not in task:
        return
    problem = Problem.from_json(task["problem"])
    if not task.get("links"):
        compile_both(Case(problem, devices), task, part)
        return
    # In the order of `jax.make_mesh`: mesh axes go along those of the torus.
    devices = list(mesh_utils.create_device_mesh([size for _, size in problem.mesh], devices).flat)
    found = Topology.of_devices(devices)
    if found.torus is None:
        raise ValueError(f"{task['topology']} does not say where its devices are")
    options = {**task, "topology": None if task["flat"] else found}
    programs = compile_both(Case(problem, devices), options, part)
    for program in programs.values():
        part({"links": busiest(program, found.torus)})


if __name__ == "__main__":
    serve(handle)
