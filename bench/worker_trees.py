"""Child of `bench.trees`: moves a model's tree by ours, by `jax.device_put` and by one `jit`, in one process or in
several.

All sides are measured on one tree in one run, in alternating order. Every call gets new arrays, as after a step of
training: `jax.device_put` caches the host copy of an array, and would copy nothing the second time. The kernel measures
memory: the peak resident bytes during a call, less the resident bytes before the first call, after the process has
placed the source and has compiled and run a program. So the memory that a side keeps between calls counts for it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import redistrib as rd
from bench import models
from bench.children import serve
from bench.rounds import alternate
from bench.worker_cluster import ADDRESS, barrier, start

OURS, PUT, JIT = "ours", "device_put", "jit"
Part = Callable[[dict[str, Any]], None]


class Tree:
    """A model on its devices, and its target shardings."""

    def __init__(self, model: str, layers: int, ways: int) -> None:
        self._values = models.minilm() if model == "minilm" else None
        if self._values is not None:
            self.shapes: models.Shapes = {name: value.shape for name, value in self._values.items()}
        else:
            self.shapes = models.billion(layers)
        self.targets = models.serving(self.shapes, ways)
        self.arrays = {
            name: jax.make_array_from_callback(
                self.shapes[name], sharding, lambda index, name=name: self.value(name, index)
            )
            for name, sharding in models.training(self.shapes).items()
        }
        jax.block_until_ready(self.arrays)

    def value(self, name: str, index: tuple[slice, ...]) -> np.ndarray[Any, Any]:
        """A box of one array, on the host."""
        return models.values(self.shapes[name], index) if self._values is None else self._values[name][index]

    def renew(self) -> None:
        """Make new arrays of the same shards, without caches of earlier calls, and return free heap memory to the
        system, since the next call may need all of it."""
        self.arrays = {
            name: jax.make_array_from_single_device_arrays(x.shape, x.sharding, [s.data for s in x.addressable_shards])
            for name, x in self.arrays.items()
        }
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)

    def wrong(self, moved: dict[str, jax.Array]) -> list[str]:
        """Names of arrays whose sharding or bits differ from the expected ones."""
        return [name for name, array in moved.items() if not self._right(name, array)]

    def _right(self, name: str, array: jax.Array) -> bool:
        if array.sharding != self.targets[name]:
            return False
        return all(
            np.asarray(shard.data).tobytes() == self.value(name, shard.index).tobytes()
            for shard in array.addressable_shards
        )

    def bytes_per_device(self, tree: dict[str, jax.Array] | None = None) -> int:
        """Bytes on each device of `tree`, by default of the tree before the move."""
        return sum(leaf.addressable_shards[0].data.nbytes for leaf in (tree or self.arrays).values())


def compiled(tree: Tree) -> Any:
    """One program for the whole tree."""
    return jax.jit(lambda arrays: arrays, out_shardings=tree.targets).lower(tree.arrays).compile()


def sides(tree: Tree, limit: int | None = None) -> dict[str, Callable[[], dict[str, jax.Array]]]:
    identity = jax.jit(lambda arrays: arrays, out_shardings=tree.targets)
    return {
        OURS: lambda: rd.reshard(tree.arrays, tree.targets, memory_limit=limit),
        PUT: lambda: put(tree),
        JIT: lambda: identity(tree.arrays),
    }


def put(tree: Tree) -> dict[str, jax.Array]:
    """`jax.device_put` of the tree; between processes one leaf after the other. A call with all leaves launches a
    program per leaf, processes may run these in different orders, and gloo's collectives deadlock."""
    if jax.process_count() == 1:
        moved: dict[str, jax.Array] = jax.device_put(tree.arrays, tree.targets)
        return moved
    return {name: jax.block_until_ready(jax.device_put(x, tree.targets[name])) for name, x in tree.arrays.items()}


def warm_up(tree: Tree) -> None:
    """Compile and run a program on all devices, so that the compiler is loaded and the devices' threads have started,
    as in a process that trains."""
    leaf = min(tree.arrays.values(), key=lambda leaf: leaf.size)
    jax.block_until_ready(jax.jit(lambda x: x + x.sum())(leaf))


def first_calls(tree: Tree, turns: int) -> dict[str, list[float]]:
    """Seconds until ours and the jit can begin to move, with empty caches, in alternating order."""
    warm_up(tree)
    spent: dict[str, list[float]] = {OURS: [], JIT: []}
    for turn in range(turns):
        for name in (OURS, JIT) if turn % 2 == 0 else (JIT, OURS):
            rd.clear_caches()
            jax.clear_caches()
            gc.collect()
            begin = time.perf_counter()
            if name == OURS:
                rd.reshard_plan(tree.arrays, tree.targets)
            else:
                compiled(tree)
            spent[name].append(time.perf_counter() - begin)
    return spent


def timed(tree: Tree, calls: dict[str, Callable[[], Any]], rounds: int, several: bool) -> dict[str, list[float]]:
    """Seconds of each call per round, after one call that is not counted."""

    def before() -> None:
        tree.renew()
        if several:
            barrier()

    def finished(call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: jax.block_until_ready(call())

    blocking = {name: finished(call) for name, call in calls.items()}
    alternate(blocking, 1, before)
    return alternate(blocking, rounds, before)


def resident(tree: Tree) -> int:
    """Resident bytes of this process after it has run a program."""
    warm_up(tree)
    tree.renew()
    return _status("VmRSS")


def resident_peak(tree: Tree, call: Callable[[], Any], before: int) -> int:
    """Peak resident bytes of this process during a call, less `before`."""
    tree.renew()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    moved = jax.block_until_ready(call())
    peak = _status("VmHWM") - before
    del moved
    return peak


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def total(size: int) -> int:
    """The sum of bytes over all processes, rounded to kibibytes."""
    if jax.process_count() == 1:
        return size
    from jax.experimental import multihost_utils

    return 1024 * int(multihost_utils.process_allgather(np.array([size // 1024], dtype=np.int32)).sum(dtype=np.int64))


def handle(task: dict[str, Any], part: Part) -> None:
    tree = Tree(task["model"], task["layers"], task["ways"])
    several = jax.process_count() > 1
    if task["what"] == "memory":
        measure_memory(tree, task, part)
        return
    if not several:
        part({"first_calls": first_calls(tree, task["turns"])})
    program = compiled(tree)
    plan = rd.reshard_plan(tree.arrays, tree.targets)
    calls = sides(tree)
    for name, call in calls.items():
        tree.renew()
        moved = call()
        if wrong := tree.wrong(moved):
            part({"wrong": {name: wrong[:3], "arrays": len(wrong)}})
        after = tree.bytes_per_device(moved)
        del moved
    part(
        {
            "arrays": len(tree.shapes),
            "parameters": models.size_of(tree.shapes),
            "launches": len(plan.batches),
            "programs": len({id(batch.program) for batch in plan.batches}),
            "bound": plan.lower_bound_bytes,
            "received": {OURS: plan.received_bytes, JIT: _received(program)},
            "device_bytes": {"source": tree.bytes_per_device(), "target": after},
            "device_peak": {OURS: plan.peak_bytes, JIT: _device_peak(program)},
        }
    )
    misses = {name: info.misses for name, info in rd.cache_info().items()}
    part({"times": timed(tree, calls, task["rounds"], several)})
    part({"missed": sum(info.misses - misses[name] for name, info in rd.cache_info().items())})


def measure_memory(tree: Tree, task: dict[str, Any], part: Part) -> None:
    """The peaks of one side alone in a new process: of its first call, which plans and compiles, and of two more."""
    name, limit = task["side"], None
    if name == OURS and task["budget"] is not None:
        shards = {n: target.shard_shape(tree.shapes[n]) for n, target in tree.targets.items()}
        after = sum(int(np.prod(shards[n])) * leaf.dtype.itemsize for n, leaf in tree.arrays.items())
        limit = tree.bytes_per_device() + after + task["budget"]
    call = sides(tree, limit)[name]
    before = resident(tree)
    part({"resident": [total(resident_peak(tree, call, before)) for _ in range(3)], "limit": limit})


def _received(program: Any) -> int:
    from redistrib.explain.profiling.inspect import inspect

    return inspect(program).received_bytes


def _device_peak(program: Any) -> int:
    sizes = program.memory_analysis()
    return int(
        sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes + sizes.temp_size_in_bytes
    )


if __name__ == "__main__":
    if ADDRESS in os.environ:
        start()
    serve(handle)
