"""A training checkpoint in files, loaded for serving: fused, in bfloat16, tensor parallel, each byte read once.

python examples/load_and_fuse.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd

DEVICES, LAYERS, WIDTH = 8, 4, 64


def save(path: Path, layers: int) -> dict[str, jax.Array]:
    """Training: float32, cut over the devices; saved in several files."""
    train = Mesh(np.array(jax.devices()[:DEVICES]), ("fsdp",))
    keys = iter(jax.random.split(jax.random.key(0), 4 * layers))
    params = {
        f"layers.{layer}.{name}": jax.device_put(
            jax.random.normal(next(keys), (WIDTH, WIDTH)), NamedSharding(train, P("fsdp"))
        )
        for layer in range(layers)
        for name in "qkvo"
    }
    rd.save(params, path, shard_bytes="100kB")
    return params


def serving(tensors: dict[str, Any]) -> list[dict[str, jax.Array]]:
    """The form that the server wants: q, k and v as one array, o transposed, all in bfloat16."""
    layers = [{name: tensors[f"layers.{layer}.{name}"] for name in "qkvo"} for layer in range(len(tensors) // 4)]
    fused = [{"qkv": jnp.concatenate([each[n] for n in "qkv"], axis=1), "o": each["o"].T} for each in layers]
    return jax.tree.map(lambda array: array.astype(jnp.bfloat16), fused)


def main(layers: int = LAYERS) -> None:
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 4), ("replica", "tensor"))
    cuts = [{"qkv": NamedSharding(mesh, P(None, "tensor")), "o": NamedSharding(mesh, P("tensor"))}] * layers
    with tempfile.TemporaryDirectory() as folder:
        params = save(Path(folder), layers)
        files = len(list(Path(folder).glob("*.safetensors")))
        served = rd.load(folder, cuts, through=serving)
    for layer, expected, cut in zip(served, serving(params), cuts, strict=True):
        for name in layer:
            assert layer[name].sharding == cut[name]
            assert np.array_equal(layer[name], expected[name])
    print(f"loaded {len(params)} tensors from {files} files as {2 * layers} fused arrays, cut for {mesh}")


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    main()
