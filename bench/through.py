"""Weights cast and fused on their way against cast, then reshard, then fuse: `python -m bench.through`.

FSDP float32 on devices 0 to 3 goes to q, k and v as one bfloat16 array, tensor parallel on devices 4 to 7.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.resharding.packing.buckets import BUCKET_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)
    devices, width = np.array(jax.devices()), options.width
    train, serve = Mesh(devices[:4], ("fsdp",)), Mesh(devices[4:], ("tp",))
    values = {
        f"{layer}.{name}": np.ones((width, width), np.float32) for layer in range(options.layers) for name in "qkv"
    }
    params = jax.device_put(values, NamedSharding(train, P("fsdp")))
    columns = NamedSharding(serve, P(None, "tp"))
    targets = dict.fromkeys(map(str, range(options.layers)), columns)

    def fused(tree: Any) -> Any:
        parts = {str(k): [tree[f"{k}.{name}"] for name in "qkv"] for k in range(options.layers)}
        return {k: jnp.concatenate(each, 1) for k, each in parts.items()}

    def on_the_way(tree: Any) -> Any:
        return jax.tree.map(lambda array: array.astype(jnp.bfloat16), fused(tree))

    cast = jax.jit(lambda tree: jax.tree.map(lambda array: array.astype(jnp.bfloat16), tree))
    fuse = jax.jit(fused, out_shardings=targets)

    ways: dict[str, Callable[[], Any]] = {
        "on the way": lambda: rd.reshard(params, targets, through=on_the_way),
        "cast, reshard, fuse": lambda: fuse(rd.reshard(cast(params), columns)),
        "reshard, fuse, cast": lambda: cast(fuse(rd.reshard(params, columns))),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(options.rounds + 1):
        for way, act in ways.items():
            start = time.perf_counter()
            jax.block_until_ready(act())
            if turn:
                times[way].append(time.perf_counter() - start)
    plan: Any = rd.reshard_plan(params, targets, through=on_the_way)
    size = sum(array.nbytes for array in values.values())
    room = size // 4 + size // 8 + BUCKET_BYTES
    print(plan)
    print(
        f"received over the bound {plan.received_bytes / plan.bound_bytes:.3f}; the bound is bfloat16's {size // 2:,}"
    )
    print(f"peak over source, target and one bucket {plan.peak_bytes / room:.2f}")
    base = statistics.median(times["on the way"])
    for way, each in times.items():
        print(f"{way}: {1e3 * statistics.median(each):.0f} ms, {statistics.median(each) / base:.2f}x")


if __name__ == "__main__":
    main()
