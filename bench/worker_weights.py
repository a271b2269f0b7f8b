"""Child of `bench.weights`: one host that loads a file from storage of a limited rate, or moves weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from bench.children import serve
from bench.library import model_of
from bench.summary import OURS
from bench.weights import EACH, EARLY, FUSED, LATE, ONE
from bench.worker_cluster import barrier, start
from redistrib.weights import open_files
from redistrib.weights.headers import PREFIX_BYTES
from redistrib.weights.opening import read_headers
from redistrib.weights.planning import cut_by_axes

RUN = 2**20  # bytes of one read, between which the reader may wait
FUSED_LAYERS, FUSED_WIDTH = 6, 1024

Ways = dict[str, Callable[[], Any]]


class SlowFile(open_files.LocalFile):
    """A file with a limited read rate, which counts the bytes that this process reads."""

    rate = float("inf")
    read = 0
    began = 0.0

    def read_into(self, buffer: memoryview, start: int) -> int:
        count = super().read_into(buffer[:RUN], start)
        if start > PREFIX_BYTES:  # what comes before is the header
            SlowFile.read += count
        ahead = SlowFile.read / SlowFile.rate - (time.perf_counter() - SlowFile.began)
        if ahead > 0:
            time.sleep(ahead)
        return count


def shardings(names: dict[str, tuple[int, ...]], layout: str) -> dict[str, NamedSharding]:
    mesh = Mesh(np.array(jax.devices()).reshape(2, -1).T, ("fsdp", "tp"))  # a host has two FSDP shards of one TP half
    replicated = NamedSharding(mesh, PartitionSpec())
    return {name: replicated if layout == "replicas" else cut_by_axes(shape, mesh) for name, shape in names.items()}


def one_host_reads(path: Path, targets: dict[str, NamedSharding], model: Any) -> Any:
    """The first host reads every tensor, and sends it to the others."""
    first = Mesh(np.array(jax.local_devices(process_index=0)[:1]), ("host",))
    on_one = {name: NamedSharding(first, PartitionSpec()) for name in targets}
    return rd.reshard(rd.load(path, on_one), targets, donate=True, machine=model)


def loads(path: Path, layout: str, model: Any) -> Ways:
    """The methods that load a file onto a layout, with plans under a cost model."""
    names = {name: stored.shape for name, stored in read_headers(path).tensors.items()}
    targets = shardings(names, layout)
    open_files.open_file = SlowFile
    return {
        OURS: lambda: rd.load(path, targets, machine=model),
        EACH: lambda: rd.load(path, targets, local=True),
        ONE: lambda: one_host_reads(path, targets, model),
    }


def wrong(result: dict[str, jax.Array]) -> str | None:
    """The name of a wrong tensor of this process, or None. Each tensor is filled with the number of its layer."""
    for name, array in result.items():
        number = int(name.removeprefix("layers.").split(".")[0])
        if not all((np.asarray(shard.data) == number).all() for shard in array.addressable_shards):
            return name
    return None


def moves() -> tuple[Ways, int]:
    """The methods that move trainers' float32 q, k and v to samplers as one bfloat16 array; and the bytes moved."""
    devices, width = np.array(jax.devices()), FUSED_WIDTH
    train, sample = Mesh(devices[:4], ("fsdp",)), Mesh(devices[4:], ("tp",))
    rows, columns = NamedSharding(train, PartitionSpec("fsdp")), NamedSharding(sample, PartitionSpec(None, "tp"))
    trains = any(device.process_index == jax.process_index() for device in train.devices.flat)
    names = [f"layers.{layer}.{name}" for layer in range(FUSED_LAYERS) for name in "qkv"]
    targets = {f"layers.{layer}.qkv": columns for layer in range(FUSED_LAYERS)}

    def filled(name: str) -> Any:
        number = float(name.split(".")[1])
        values = np.full((width, width), number, np.float32)
        return jax.make_array_from_callback(values.shape, rows, lambda index: values[index])

    def shape(dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((width, width), dtype, sharding=rows)

    params = {name: filled(name) if trains else shape(jnp.float32) for name in names}

    def fused(tree: Any) -> Any:
        return {name: jnp.concatenate([tree[name.replace("qkv", x)] for x in "qkv"], 1) for name in targets}

    def narrow(tree: Any) -> Any:
        return jax.tree.map(lambda array: array.astype(jnp.bfloat16), tree)

    cast, fuse = jax.jit(narrow), jax.jit(fused, out_shardings=targets)
    both = jax.jit(lambda tree: narrow(fused(tree)), out_shardings=targets)

    def early() -> Any:
        small = cast(params) if trains else dict.fromkeys(names, shape(jnp.bfloat16))
        moved = rd.reshard(small, columns)
        return moved if trains else fuse(moved)

    def late() -> Any:
        moved = rd.reshard(params, columns)
        return moved if trains else both(moved)

    ways: Ways = {OURS: lambda: rd.reshard(params, targets, through=lambda tree: narrow(fused(tree)))}
    return ways | {EARLY: early, LATE: late}, FUSED_LAYERS * 3 * width * width * 2


def handle(task: dict[str, Any], part: Callable[[dict[str, Any]], None]) -> None:
    answer: dict[str, Any] = {"status": "ok"}
    if task["case"] == FUSED:
        ways, answer["bytes"] = moves()
    else:
        ways = loads(Path(task["path"]), task["case"], model_of(task["cost_model"]))
    times: dict[str, list[float]] = {way: [] for way in ways}
    read: dict[str, int] = {}
    for turn in range(task["rounds"] + 1):
        for way, act in ways.items():
            SlowFile.rate = float(task["storage"]) if turn else float("inf")  # the first round compiles
            barrier()
            SlowFile.read, SlowFile.began = 0, time.perf_counter()
            result = act()
            jax.block_until_ready(result)
            seconds = time.perf_counter() - SlowFile.began
            read[way] = SlowFile.read
            tensor = wrong(result)
            if tensor is not None:
                part({"status": "wrong", "wrong": f"{way}: {tensor}"})
                return
            del result
            if turn:
                times[way].append(seconds)
    part({**answer, "times": times, "read": read})


if __name__ == "__main__":
    start()
    serve(handle)
