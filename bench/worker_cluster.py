"""Child of `bench.cluster`: one process of a `jax.distributed` job with gloo collectives.

All processes get the same tasks in the same order; each measures its time, and the parent takes the longest.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bench.children import serve
from bench.pairing import Case, Part, compile_both, run_paired
from bench.problems import Problem

ADDRESS, PROCESSES, NUMBER, DEVICES = (f"BENCH_CLUSTER_{n}" for n in ("ADDRESS", "PROCESSES", "NUMBER", "DEVICES"))


def start() -> None:
    """Join the job of the environment's variables."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", int(os.environ[DEVICES]))
    jax.distributed.initialize(os.environ[ADDRESS], int(os.environ[PROCESSES]), int(os.environ[NUMBER]))


def barrier() -> None:
    """Return when every process has called this function: a sum over one number per device."""
    _total(0)


def agree(fine: bool) -> bool:
    """Whether `fine` holds on every process; if one failed alone, the others would wait in a collective."""
    return _total(int(not fine)) == 0


def _total(number: int) -> int:
    """The sum of `number` over all devices, each with the number of its process."""
    devices, add = _adder()
    sharding = NamedSharding(devices, PartitionSpec("all"))
    return int(add(jax.make_array_from_callback((devices.size,), sharding, lambda _: np.array([number], np.int32))))


@cache
def _adder() -> tuple[Mesh, Any]:
    devices = Mesh(np.array(jax.devices()), ("all",))
    return devices, jax.jit(jnp.sum, out_shardings=NamedSharding(devices, PartitionSpec()))


def placed(hosts: list[int]) -> list[jax.Device]:
    """Devices in an order in which device `k` belongs to the process of `hosts[k]`."""
    left = {process: [d for d in jax.devices() if d.process_index == process] for process in range(max(hosts) + 1)}
    return [left[host].pop(0) for host in hosts]


def handle(task: dict[str, Any], part: Part) -> None:
    case = Case(Problem.from_json(task["problem"]), placed(task["hosts"]))
    first = jax.process_index() == 0
    programs = compile_both(case, task, part, report=first)
    if agree(len(programs) == 2 - len(task.get("skip", ()))):
        run_paired(case, programs, task, part, barrier)


if __name__ == "__main__":
    start()
    serve(handle)
