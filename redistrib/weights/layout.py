"""The layout of reading: which device's process reads which box of a tensor, so that each byte is read once.

A tensor is cut into as many equal boxes as there are devices, along the dimension that gives long runs of bytes. So
processes read as much as their devices are many, and each device's process reads on where the one before stops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jax.sharding import Mesh, NamedSharding, PartitionSpec

from redistrib.backends.jax.rows import AXIS
from redistrib.weights.headers import StoredTensor
from redistrib.weights.runs import Box, box_of

LEAST_RUN = 64 * 2**10  # bytes of a run; tensors that cannot be cut into such are read together, as one
MOST_PADDING = 1 / 8  # of a tensor's first dimension, as zeros; else another dimension is cut


@dataclass(frozen=True)
class ReadingLayout:
    """How a tensor is cut for reading.

    Attributes:
        sharding: over all devices that take part, in a line.
        shape: of the array that is cut: the tensor's, with zeros behind it where the cut leaves a remainder.
    """

    sharding: NamedSharding
    shape: tuple[int, ...]

    def boxes(self, tensor: StoredTensor) -> dict[Any, Box]:
        """The part of the tensor that each device of this process has; empty ones included."""
        indices = self.sharding.addressable_devices_indices_map(self.shape)
        return {
            device: tuple(
                (min(start, size), min(stop, size))
                for (start, stop), size in zip(box_of(index or (), self.shape), tensor.shape, strict=True)
            )
            for device, index in indices.items()
        }


def reading_layout(tensor: StoredTensor, line: Mesh) -> ReadingLayout | None:
    """How to read a tensor over the devices of a line; None if its runs would be too short.

    Of the dimensions that give runs of at least `LEAST_RUN` bytes the first one is cut that needs little padding, or
    else that which needs least.
    """
    ways = []
    for dim, size in enumerate(tensor.shape):
        part = -(-size // line.size)
        run = part * math.prod(tensor.shape[dim + 1 :]) * tensor.itemsize
        if run < LEAST_RUN or size == 0:
            continue
        padding = part * line.size / size - 1
        ways.append((max(padding, MOST_PADDING), dim, part * line.size))
    if not ways:
        return None
    _, dim, padded = min(ways)
    shape = (*tensor.shape[:dim], padded, *tensor.shape[dim + 1 :])
    spec = PartitionSpec(*[None] * dim, AXIS)
    return ReadingLayout(NamedSharding(line, spec), shape)


def line_sharding(shape: tuple[int, ...], line: Mesh) -> NamedSharding:
    """The first dimension that the devices of a line divide is cut; none if they divide none."""
    dim = next((k for k, size in enumerate(shape) if size and size % line.size == 0), None)
    return NamedSharding(line, PartitionSpec(*[AXIS if k == dim else None for k in range(len(shape))]))
