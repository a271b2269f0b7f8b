"""Files of weights for tests, and a file object that counts what is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from redistrib.weights.reading import LocalFile

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
        CountingFile.reads.append((self._name, start, start + count))
        return count
