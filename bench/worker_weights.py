"""Child of `bench.weights`: one host that loads a file whose storage gives it a limited rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from bench.children import serve
from bench.worker_cluster import barrier, start
from redistrib.weights import reading
from redistrib.weights.planning import cut_by_axes

RUN = 2**20  # bytes after which a reader may have to wait


class SlowFile(reading.LocalFile):
    """A file that gives this process so many bytes per second, and counts them."""

    rate = float("inf")
    read = 0
    began = 0.0

    def read_into(self, buffer: memoryview, start: int) -> int:
        count = super().read_into(buffer[:RUN], start)
        SlowFile.read += count
        ahead = SlowFile.read / SlowFile.rate - (time.perf_counter() - SlowFile.began)
        if ahead > 0:
            time.sleep(ahead)
        return count


def shardings(names: dict[str, tuple[int, ...]], layout: str) -> dict[str, NamedSharding]:
    mesh = Mesh(np.array(jax.devices()).reshape(2, -1).T, ("fsdp", "tp"))  # a host has two FSDP parts of one TP half
    whole = NamedSharding(mesh, PartitionSpec())
    return {name: whole if layout == "replicas" else cut_by_axes(shape, mesh) for name, shape in names.items()}


def one_host_reads(path: Path, targets: dict[str, NamedSharding]) -> Any:
    """The first host reads all of every tensor, and the others have it from there."""
    first = Mesh(np.array(jax.local_devices(process_index=0)[:1]), ("host",))
    alone = {name: NamedSharding(first, PartitionSpec()) for name in targets}
    shapes = rd.load(path, alone)
    return rd.reshard(shapes, targets, donate=True)


WAYS: dict[str, Callable[[Path, dict[str, NamedSharding]], Any]] = {
    "ours": lambda path, targets: rd.load(path, targets),
    "each reads its own": lambda path, targets: rd.load(path, targets, local=True),
    "one reads all": one_host_reads,
}


def handle(task: dict[str, Any], part: Callable[[dict[str, Any]], None]) -> None:
    path = Path(task["path"])
    from redistrib.weights.headers import read_headers

    names = {name: stored.shape for name, stored in read_headers(path).tensors.items()}
    targets = shardings(names, task["layout"])
    reading.open_file = SlowFile
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    read: dict[str, int] = {}
    for turn in range(task["rounds"] + 1):
        for way, act in WAYS.items():
            SlowFile.rate = float(task["rate"]) if turn else float("inf")  # the first round compiles
            barrier()
            SlowFile.read, SlowFile.began = 0, time.perf_counter()
            result = act(path, targets)
            jax.block_until_ready(result)
            taken = time.perf_counter() - SlowFile.began
            read[way] = SlowFile.read
            del result
            if turn:
                times[way].append(taken)
    part({"status": "ok", "times": times, "read": read})


if __name__ == "__main__":
    start()
    serve(handle)
