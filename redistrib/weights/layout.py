"""The layout of reading: for each device the box of a tensor that its process reads, so that each byte is read once.

A tensor is cut into equal boxes, one for each device, along a dimension that gives long runs of bytes. So each process
reads in proportion to its devices. The boxes are assigned so that as few elements as possible move between processes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax.rows import AXIS, by_process, line_of
from redistrib.cache import Cache
from redistrib.theory.boxes import Box, boxes_of
from redistrib.weights.headers import StoredTensor

LEAST_RUN = 64 * 2**10  # bytes of a run; tensors that would have shorter runs are read together
MOST_PADDING = 1 / 8  # zeros over elements, up to which dimensions count as equally good to cut

_HOST_LINK = 16  # elements that move within a host in the time of one between hosts

_LAYOUTS: Cache[Any] = Cache(4096)


@dataclass(frozen=True)
class ReadingLayout:
    """The cut of a tensor for reading.

    Attributes:
        sharding: over a line of all devices that take part; the device at place k of the line reads box k.
        shape: of the array that is cut: the tensor's shape, with zeros at the end where the devices do not divide it.
    """

    sharding: NamedSharding
    shape: tuple[int, ...]


def reading_layout(
    tensor: StoredTensor, line: Mesh, targets: Sequence[Sharding], hosts: Mapping[Any, Hashable] | None = None
) -> ReadingLayout | None:
    """The layout of reading of a tensor over a line of devices; None if its runs would be too short.

    The candidates are the dimensions that give runs of at least `LEAST_RUN` bytes. Those with padding up to
    `MOST_PADDING` come first, then those with less padding; among equals the one that moves fewest elements between
    hosts, then the first.

    Args:
        tensor: the tensor in its file.
        line: all devices that take part, those of a host side by side.
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
        order, local = _readers(tensor.shape, dim, part, line, targets, host)
        ways.append((max(padding, MOST_PADDING), -local, dim, part * line.size, order))
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
    """For each box the place in the line of the device that reads it, and the number of elements that stay on a host.

    The assignment keeps as many elements as possible on their host, then on their device; ties follow the line.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    count = line.size
    by_host, by_device = _needed(shape, dim, part, line, targets, host)
    numbers = {name: k for k, name in enumerate(dict.fromkeys(host))}
    row = np.array([numbers[name] for name in host])
    in_order = (row[:, None] == row[None, :]) + np.eye(count)  # breaks ties; at most 2 for a box
    worth = (_HOST_LINK * by_host[row] + by_device) * (2 * count + 1) + in_order
    device, box = linear_sum_assignment(worth, maximize=True)
    return device[np.argsort(box)].tolist(), int(by_host[row[device], box].sum())


def _needed(
    shape: Sequence[int], dim: int, part: int, line: Mesh, targets: Sequence[Sharding], host: Sequence[Hashable]
) -> tuple[np.ndarray, np.ndarray]:
    """`[hosts, boxes]` elements of a box that the devices of a host need, each once; `[devices, boxes]` by device."""
    first = np.arange(line.size, dtype=np.float64) * part
    numbers = {name: k for k, name in enumerate(dict.fromkeys(host))}
    place = {device: k for k, device in enumerate(line.devices.flat)}
    by_host, by_device = np.zeros((len(numbers), line.size)), np.zeros((line.size, line.size))
    for target in targets:
        seen: set[tuple[int, Box]] = set()
        for device, box in boxes_of(target, tuple(shape)).items():
            start, stop = box.edges[dim]
            others = math.prod(size for k, size in enumerate(box.size) if k != dim)
            inside = np.clip(np.minimum(first + part, stop) - np.maximum(first, start), 0, None) * others
            by_device[place[device]] += inside
            number = numbers[host[place[device]]]
            if (number, box) not in seen:
                seen.add((number, box))
                by_host[number] += inside
    return by_host, by_device


def line_by_process(devices: Iterable[Any]) -> Mesh:
    """The devices as a line, those of a process side by side."""
    return line_of(by_process(devices))


def line_sharding(shape: tuple[int, ...], line: Mesh) -> NamedSharding:
    """The sharding that cuts the first dimension that the number of devices divides; replicated if it divides none."""
    dim = next((k for k, size in enumerate(shape) if size and size % line.size == 0), None)
    return NamedSharding(line, PartitionSpec(*[AXIS if k == dim else None for k in range(len(shape))]))
