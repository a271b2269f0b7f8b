"""Fuses float32 layers of devices 0 to 3 as bfloat16 on 4 to 7; prints the bytes that the process held meanwhile."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd

LAYERS, SIZE = 24, 1024


def resident(name: str) -> int:
    """Bytes of this process: `VmRSS` now, `VmHWM` at most since the mark was cleared."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def fused(tree: Any) -> Any:
    parts = {f"{k}.qkv": jnp.concatenate([tree[f"{k}.{name}"] for name in "qkv"], 1) for k in range(LAYERS)}
    others = {f"{k}.o": tree[f"{k}.o"].T for k in range(LAYERS)}
    return {name: array.astype(jnp.bfloat16) for name, array in (parts | others).items()}


def main(donate: bool) -> None:
    devices = jax.devices()
    source = NamedSharding(Mesh(devices[:4], ("fsdp",)), P("fsdp"))
    serving = Mesh(devices[4:], ("tp",))
    names = [f"{k}.{name}" for k in range(LAYERS) for name in "qkvo"]
    specs = {"qkv": P(None, "tp"), "o": P("tp")}
    targets = {f"{k}.{name}": NamedSharding(serving, spec) for k in range(LAYERS) for name, spec in specs.items()}
    form = jax.ShapeDtypeStruct((SIZE, SIZE), np.float32, sharding=source)
    plan = rd.reshard_plan(dict.fromkeys(names, form), targets, through=fused, donate=donate)  # compiles
    layer = jax.jit(lambda: jnp.ones((SIZE, SIZE)), out_shardings=source)
    layer().delete()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    moved = rd.reshard({name: layer() for name in names}, targets, through=fused, donate=donate)
    held = resident("VmHWM") - before
    element = len(names) * SIZE**2
    bucket = plan.received_bytes // len(plan.buckets)
    assert all(np.asarray(array[:2, :2]).tolist() == [[1, 1], [1, 1]] for array in moved.values())
    print(json.dumps({"held": held, "source": 4 * element, "target": 2 * element, "bucket": bucket}))


if __name__ == "__main__":
    main(sys.argv[1] == "donate")
