"""The memory that leaves are in before their launches, and the copies of leaves between kinds of memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from redistrib.backends.jax.memory_kinds import in_default, kind_of, other_kind
from redistrib.launches.ledger import MemoryLedger
from redistrib.plans.dtypes import itemsize_of
from redistrib.report import counted
from redistrib.resharding.actions import LeafRoute, is_of_strings
from redistrib.resharding.leaves import Leaf


@dataclass(frozen=True)
class MemoryCopies:
    """The copies of a tree's leaves from one kind of memory to another.

    Attributes:
        source, target: the kinds, as JAX names them.
        leaves: the number of leaves.
        bytes: of their tiles, summed over the devices.
    """

    source: str
    target: str
    leaves: int
    bytes: int

    def __str__(self) -> str:
        return f"{counted(self.leaves, 'leaf', 'leaves')} from {self.source} to {self.target}, {self.bytes:,} bytes"


def copies_between_kinds(leaves: Sequence[Leaf], routes: Sequence[LeafRoute]) -> tuple[MemoryCopies, ...]:
    """The copies between kinds of memory that the moves of leaves make, by kinds.

    A leaf that moves by a plan comes to the default memory of its devices first, and leaves it last.
    """
    copies: list[tuple[str, str, int]] = []
    for leaf, route in zip(leaves, routes, strict=True):
        if route.kinds == (None, None) or route.action not in ("move", "via_device_put"):
            continue
        source: Any = getattr(leaf.value, "sharding", None)
        before, after = None if source is None else kind_of(source), kind_of(leaf.target)
        steps: list[tuple[str | None, str, Sharding]] = [(before, after, leaf.target)]
        if route.action == "move":
            inner = [kind_of(in_default(side)) for side in (source, leaf.target)]
            steps = [(before, inner[0], source), (inner[1], after, leaf.target)]
        for first, last, sharding in steps:
            if first is None or first == last:
                continue
            devices, size = share(leaf.value, sharding)
            copies.append((first, last, len(devices) * size))
    return by_kinds(copies)


def by_kinds(copies: Iterable[tuple[str, str, int]]) -> tuple[MemoryCopies, ...]:
    """Copies of one leaf each, by source and target kind with its bytes, taken together by their kinds."""
    totals: dict[tuple[str, str], list[int]] = {}
    for source, target, size in copies:
        totals.setdefault((source, target), []).append(size)
    return tuple(MemoryCopies(*kinds, len(sizes), sum(sizes)) for kinds, sizes in totals.items())


def said_of_copies(copies: Sequence[MemoryCopies]) -> list[str]:
    """A line about the copies between kinds of memory, if there are any."""
    return [f"copies between kinds of memory: {'; '.join(map(str, copies))}"] if copies else []


def alive_before(leaves: Sequence[Leaf], routes: Sequence[LeafRoute]) -> MemoryLedger:
    """Bytes on each device before the launches: all sources, and the results of `jax.device_put` and of copies.

    Only the default memory of devices counts.
    """
    alive = MemoryLedger()
    shares: dict[tuple[int, Any], list[tuple[list[int], int]]] = {}
    for leaf, route in zip(leaves, routes, strict=True):
        name = (id(route), getattr(leaf.value, "dtype", type(leaf.value)))
        if name not in shares:
            source = getattr(leaf.value, "sharding", None)
            shardings = [source] if source is not None else []
            shardings += [leaf.target] if route.action in ("via_device_put", "copy") else []
            shares[name] = [share(leaf.value, side) for side in shardings if other_kind(side) is None]
        for devices, size in shares[name]:
            alive.add(devices, size)
    return alive


def share(value: Any, sharding: Any) -> tuple[list[int], int]:
    """Ids of an array's devices, and its bytes on each."""
    shape, dtype = np.shape(value), getattr(value, "dtype", None)
    if dtype == jax.dtypes.float0:  # of tangents of integers, which `jax.device_put` returns unchanged
        return [], 0
    dtype = np.asarray(value).dtype if dtype is None else dtype
    size = dtype.itemsize if is_of_strings(value) else itemsize_of(str(dtype))
    return [device.id for device in sharding.device_set], math.prod(sharding.shard_shape(shape)) * size
