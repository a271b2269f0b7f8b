"""Child of `bench.pipelines`: one host of the emulated cluster, which runs its part of every layout.

All processes get the same tasks in the same order. A calibration times single operations alone; a layout is compiled,
compared with the step on one device, and timed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from bench import step as model
from bench.children import serve
from bench.fitted import FittedLinks
from bench.worker_cluster import barrier, start
from redistrib.backends.jax.measure.calibrate import measure
from redistrib.pipelines.entry import resharded
from redistrib.programs.fused import fused
from redistrib.simulate.machine import Machine, Rates

Part = Callable[[dict[str, Any]], None]
REPEATS = 64  # of an operation inside one program, so that what starting the program takes is left out


def handle(task: dict[str, Any], part: Part) -> None:
    if task["task"] == "calibrate":
        part({"operations": list(_operations())})
        part({"collectives": [vars(sample) for sample in measure(jax.devices(), task["tiles"], progress=False)]})
        part({"reductions": list(_reductions(task["tiles"]))})
        part({"sends": list(_sends(task["tiles"]))})
    else:
        _layout(task, part)


def _seconds(call: Callable[[], Any], rounds: int = 15) -> float:
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def _operations() -> Iterator[dict[str, Any]]:
    """Products and sums of several sizes on the one device of this process, while the other hosts do the same."""

    def repeated(function: Callable[[Any], Any], times: int) -> Any:
        def run(x: Any) -> Any:
            for _ in range(times):
                x = lax.optimization_barrier(function(x))
            return x

        return jax.jit(run)

    device = jax.local_devices()[0]
    cases: list[tuple[Callable[[Any], Any], tuple[int, int], int, int]] = []
    for n in (32, 128, 512):
        w = jnp.ones((n, n), jnp.float32) / n
        cases.append((lambda x, w=w: x @ w, (256, n), 4 * (2 * 256 * n + n * n), 2 * 256 * n * n))  # type: ignore[misc]
    cases += [(lambda x: x + 1.0, (n, 256), 8 * n * 256, n * 256) for n in (16, 256, 4096)]
    for function, shape, size, flops in cases:
        x = jax.device_put(np.ones(shape, np.float32), device)
        several = repeated(function, REPEATS)
        jax.block_until_ready(several(x))  # hosts take unequally long to compile
        barrier()
        yield {"bytes": size, "flops": flops, "seconds": _seconds(lambda: several(x)) / REPEATS}  # noqa: B023


def _reductions(tiles: list[int]) -> Iterator[dict[str, Any]]:
    """Sums over groups of two devices and over all, whole and scattered, as tensor parts and replicas make them."""
    devices = np.array(jax.devices())
    for members in (2, devices.size):
        mesh = Mesh(devices.reshape(-1, members), ("rest", "group"), axis_types=(AxisType.Auto,) * 2)
        spec = PartitionSpec(("rest", "group"))
        for tile in tiles:
            x = jax.jit(lambda n=tile // 4: jnp.ones(n * devices.size), out_shardings=NamedSharding(mesh, spec))()  # type: ignore[misc]
            part = tile * (members - 1) // members
            for kind, received in (("all_reduce", 2 * part), ("reduce_scatter", part)):
                add = jax.shard_map(
                    lambda x, kind=kind: (
                        lax.psum(x, "group")  # type: ignore[misc]
                        if kind == "all_reduce"
                        else lax.psum_scatter(x, "group", tiled=True)
                    ),
                    mesh=mesh,
                    in_specs=spec,
                    out_specs=spec,
                    check_vma=False,
                )
                program = jax.jit(add)
                barrier()
                seconds = _seconds(lambda: program(x))  # noqa: B023
                yield {"kind": kind, "members": members, "bytes": received, "seconds": seconds}


def _sends(tiles: list[int]) -> Iterator[dict[str, Any]]:
    """An array from the first half of the hosts to the second, as values go from stage to stage: half the time of there
    and back, since a sender is done before its array has arrived."""
    halves = np.split(np.array(jax.devices()), 2)
    meshes = [Mesh(half, ("half",), axis_types=(AxisType.Auto,)) for half in halves]
    here, there = (NamedSharding(mesh, PartitionSpec("half")) for mesh in meshes)
    for tile in tiles:
        ones = np.ones(tile // 4 * halves[0].size, np.float32)
        x = jax.make_array_from_callback(ones.shape, here, lambda index: ones[index], dtype=np.float32)  # noqa: B023
        barrier()
        seconds = _seconds(lambda: resharded(resharded([x], [there], agreed=True), [here], agreed=True)) / 2  # noqa: B023
        yield {"bytes": tile, "seconds": seconds}
        barrier()


def machine_of(given: dict[str, Any]) -> Machine:
    """A machine from what the parent has fitted."""
    return Machine("cluster", Rates(**given["rates"]), FittedLinks("fitted", given["links"]))


def _layout(task: dict[str, Any], part: Part) -> None:
    layout = rd.Layout(*task["layout"])
    params, state = model.init()
    tokens, targets = model.batch(task["batch"])
    args = (params, state, tokens, targets)
    f = rd.pipeline(model.step, args, {"tokens": 0, "targets": 0}, layout, cost_model=task["links"])
    found = rd.simulate(fused(f.program), machine_of(task["machine"]), streams="moves", record=False)
    received = rd.simulate(f.program, machine_of(task["machine"]), record=False).received_bytes
    part({"predicted": found.seconds, "received": max(received.values()), "peak": max(found.peak_bytes.values())})
    begin = time.perf_counter()
    made = jax.block_until_ready(f(*args))
    part({"first_s": time.perf_counter() - begin})
    with jax.default_device(jax.local_devices()[0]):
        wanted = jax.jit(model.step)(*args)
    away = 0.0
    for one, other in zip(jax.tree.leaves(made), jax.tree.leaves(wanted), strict=True):
        for shard in one.addressable_shards:
            away = max(away, float(np.abs(np.asarray(shard.data) - np.asarray(other)[shard.index]).max()))
    if away > 1e-3:  # the first step of AdamW moves parameters by the sign of a gradient
        part({"wrong": f"results are away by {away:.3g}"})
    params, state = made[:2]
    taken = []
    for _ in range(task["rounds"]):
        barrier()
        begin = time.perf_counter()
        params, state, _ = jax.block_until_ready(f(params, state, tokens, targets))
        taken.append(time.perf_counter() - begin)
    part({"times": {"step": taken}})


if __name__ == "__main__":
    start()
    serve(handle)
