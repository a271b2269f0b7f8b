"""Files of weights for tests, and a file object that counts what is read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors import deserialize
from safetensors.numpy import save_file

from redistrib.weights.headers import DTYPES, PREFIX_BYTES
from redistrib.weights.open_files import LocalFile

NARROW = sorted(set(DTYPES.values()) - {"float64", "int64", "uint64"})  # those that JAX has without jax_enable_x64

# Large and small tensors, of sizes that 8 does not divide, of several types, empty and without dimensions.
SHAPES: dict[str, tuple[tuple[int, ...], Any]] = {
    "embed.weight": ((1003, 640), np.float32),
    "layers.0.attn.q": ((512, 512), ml_dtypes.bfloat16),
    "layers.0.attn.k": ((512, 512), ml_dtypes.bfloat16),
    "layers.0.mlp.up": ((512, 1024), np.float32),
    "layers.0.norm": ((512,), np.float32),
    "layers.1.experts": ((3, 512, 512), np.float16),
    "layers.1.norm": ((513,), np.float32),
    "ids": ((7, 3), np.int32),
    "flags": ((5,), np.bool_),
    "scale": ((), np.float32),
    "nothing": ((0, 4), np.float32),
}


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Tensors with every bit drawn, so that what is not a number is among them."""
    rng = np.random.default_rng(seed)
    result = {}
    for name, (shape, dtype) in SHAPES.items():
        if np.dtype(dtype) == np.bool_:
            result[name] = rng.integers(0, 2, shape).astype(np.bool_)
        else:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            result[name] = rng.integers(0, 256, size, dtype=np.uint8).view(dtype).reshape(shape)
    return result


def written(folder: Path, tensors: dict[str, np.ndarray], files: int = 1) -> Path:
    """Tensors in so many files, with an index if they are several; the path to load from."""
    if files == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder / "model.safetensors"
    names = sorted(tensors)
    index = {}
    for k in range(files):
        name = f"model-{k + 1:05d}-of-{files:05d}.safetensors"
        save_file({tensor: tensors[tensor] for tensor in names[k::files]}, folder / name)
        index |= dict.fromkeys(names[k::files], name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def same_bits(one: Any, other: Any) -> bool:
    """Whether two arrays have the same shape, type and bits."""
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


class CountingFile(LocalFile):
    """A file that notes which bytes are read."""

    reads: ClassVar[list[tuple[str, int, int]]] = []

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._name = path.name

    def read_into(self, buffer: memoryview, start: int) -> int:
        count = super().read_into(buffer, start)
        if start > PREFIX_BYTES:  # what comes before is the header
            CountingFile.reads.append((self._name, start, start + count))
        return count


def read_by_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file, as safetensors reads them. Its NumPy functions know no float8, so this takes the bytes."""
    dtypes = {name: jnp.dtype(dtype) for name, dtype in DTYPES.items()}
    return {
        name: np.frombuffer(tensor["data"], dtypes[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in deserialize(path.read_bytes())
    }


def drawn_tree(seed: int) -> dict[str, np.ndarray]:
    """A few tensors of any element type that JAX has, of shapes that meshes may and may not divide, with any bits."""
    rng = np.random.default_rng(seed)
    result = {}
    for k in range(rng.integers(1, 8)):
        dtype = np.dtype(jnp.dtype(NARROW[rng.integers(len(NARROW))]))
        shape = tuple(
            rng.choice([0, 1, 3, 8, 16, 24, 512], rng.integers(0, 4), p=[0.04, 0.16, 0.1, 0.3, 0.2, 0.1, 0.1])
        )
        shape = tuple(int(size) for size in shape)
        data = rng.integers(0, 2 if dtype == np.bool_ else 256, math.prod(shape) * dtype.itemsize, dtype=np.uint8)
        result[f"block.{k % 3}.tensor {k}"] = data.view(dtype).reshape(shape)
    return result


def drawn_sharding(rng: np.random.Generator, shape: tuple[int, ...], devices: Sequence[Any]) -> NamedSharding:
    """Some of the devices in any order, as a mesh whose axes cut dimensions that they divide."""
    count = int(rng.choice([n for n in (1, 2, 4, 8) if n <= len(devices)]))
    rows = int(rng.choice([n for n in (1, 2, 4, 8) if count % n == 0]))
    mesh = Mesh(rng.permutation(np.array(devices))[:count].reshape(rows, -1), ("a", "b"))
    axes = list(rng.permutation(["a", "b"]))
    spec: list[str | None] = []
    for size in shape:
        fits = bool(axes) and size % mesh.shape[axes[0]] == 0 and rng.random() < 0.8
        spec.append(str(axes.pop(0)) if fits else None)
    return NamedSharding(mesh, P(*spec))
