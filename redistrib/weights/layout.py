"""The layout of reading: which device's process reads which box of a tensor, so that each byte is read once.

A tensor is cut into as many equal boxes as there are devices, along a dimension that gives long runs of bytes. So
processes read as much as their devices are many. Which of these boxes a process reads is chosen by what its devices
need of the tensor, so that the least moves between processes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax.rows import AXIS, line_of
from redistrib.cache import Cache
from redistrib.weights.headers import StoredTensor
from redistrib.weights.runs import Box, box_of

LEAST_RUN = 64 * 2**10  # bytes of a run; tensors that cannot be cut into such are read together, as one
MOST_PADDING = 1 / 8  # of a tensor's first dimension, as zeros; else another dimension is cut

_HOST_LINK = 16  # elements moved between devices of a host that take as long as one between hosts

_LAYOUTS: Cache[Any] = Cache(4096)


@dataclass(frozen=True)
class ReadingLayout:
    """How a tensor is cut for reading.

    Attributes:
        sharding: over all devices that take part, in a line; the device at a place of the line reads that box.
        shape: of the array that is cut: the tensor's, with zeros behind it where the cut leaves a remainder.
    """

    sharding: NamedSharding
    shape: tuple[int, ...]

    def boxes(self, tensor: StoredTensor) -> dict[Any, Box]:
        """The part of the tensor that each device of this process has, in file order; empty ones included."""
        indices = self.sharding.addressable_devices_indices_map(self.shape)
        boxes = {device: box_of(index or (), self.shape) for device, index in indices.items()}
        return {
            device: tuple(
                (min(start, size), min(stop, size)) for (start, stop), size in zip(box, tensor.shape, strict=True)
            )
            for device, box in sorted(boxes.items(), key=lambda item: item[1])
        }


def reading_layout(
    tensor: StoredTensor, line: Mesh, targets: Sequence[Sharding], hosts: Mapping[Any, Hashable] | None = None
) -> ReadingLayout | None:
    """How to read a tensor over the devices of a line; None if its runs would be too short.

    Of the dimensions that give runs of at least `LEAST_RUN` bytes one is cut that needs little padding, or else that
    which needs least; of several the one that leaves most where it is needed, or else the first.

    Args:
        tensor: in its file.
        line: all devices that take part; those of a host side by side.
        targets: the shardings under which it is loaded.
        hosts: the host of each device; by default its process.
    """
    host = tuple(device.process_index if hosts is None else hosts[device] for device in line.devices.flat)
    key = (tensor.shape, tensor.itemsize, line, tuple(targets), host)
    layout: ReadingLayout | None = _LAYOUTS.get(key, lambda: _layout(tensor, line, targets, host))
    return layout


def _layout(
    tensor: StoredTensor, line: Mesh, targets: Sequence[Sharding], host: Sequence[Hashable]
) -> ReadingLayout | None:
    ways = []
    for dim, size in enumerate(tensor.shape):
        part = -(-size // line.size)
        run = part * math.prod(tensor.shape[dim + 1 :]) * tensor.itemsize
        if run < LEAST_RUN or size == 0:
            continue
        padding = part * line.size / size - 1
        order, kept = _readers(tensor.shape, dim, part, line, targets, host)
        ways.append((max(padding, MOST_PADDING), -kept, dim, part * line.size, order))
    if not ways:
        return None
    _, _, dim, padded, order = min(ways)
    shape = (*tensor.shape[:dim], padded, *tensor.shape[dim + 1 :])
    if order != list(range(line.size)):
        line = line_of(line.devices.flat[order])
    return ReadingLayout(NamedSharding(line, PartitionSpec(*[None] * dim, AXIS)), shape)


def _readers(
    shape: Sequence[int], dim: int, part: int, line: Mesh, targets: Sequence[Sharding], host: Sequence[Hashable]
) -> tuple[list[int], int]:
    """For each box the place in the line of the device that reads it, and the elements that stay on their host.

    As much as possible stays on its host, and then on its device; else boxes are in the order of the line.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    count = line.size
    by_host, by_device = _needed(shape, dim, part, line, targets, host)
    numbers = {name: k for k, name in enumerate(dict.fromkeys(host))}
    row = np.array([numbers[name] for name in host])
    in_order = (row[:, None] == row[None, :]) + np.eye(count)  # decides between what is equally good: 2 at most a box
    worth = (_HOST_LINK * by_host[row] + by_device) * (2 * count + 1) + in_order
    device, box = linear_sum_assignment(worth, maximize=True)
    return device[np.argsort(box)].tolist(), int(by_host[row[device], box].sum())


def _needed(
    shape: Sequence[int], dim: int, part: int, line: Mesh, targets: Sequence[Sharding], host: Sequence[Hashable]
) -> tuple[np.ndarray, np.ndarray]:
    """Elements of each box that a host's devices need, each once, by host; and that a device needs, by device."""
    first = np.arange(line.size, dtype=np.float64) * part
    numbers = {name: k for k, name in enumerate(dict.fromkeys(host))}
    place = {device: k for k, device in enumerate(line.devices.flat)}
    by_host, by_device = np.zeros((len(numbers), line.size)), np.zeros((line.size, line.size))
    for target in targets:
        seen: set[tuple[int, Box]] = set()
        for device, index in target.devices_indices_map(tuple(shape)).items():
            box = box_of(index or (), shape)
            start, stop = box[dim]
            others = math.prod(b - a for k, (a, b) in enumerate(box) if k != dim)
            inside = np.clip(np.minimum(first + part, stop) - np.maximum(first, start), 0, None) * others
            by_device[place[device]] += inside
            number = numbers[host[place[device]]]
            if (number, box) not in seen:
                seen.add((number, box))
                by_host[number] += inside
    return by_host, by_device


def line_sharding(shape: tuple[int, ...], line: Mesh) -> NamedSharding:
    """The first dimension that the devices of a line divide is cut; none if they divide none."""
    dim = next((k for k, size in enumerate(shape) if size and size % line.size == 0), None)
    return NamedSharding(line, PartitionSpec(*[AXIS if k == dim else None for k in range(len(shape))]))
