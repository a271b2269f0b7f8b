"""A digest of the moves between processes of one call, equal in all processes that make the same call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from redistrib.backends.digests import digest_of
from redistrib.digests import digest_of_parts
from redistrib.launches.order import LeafBatch
from redistrib.plans.plan import Plan
from redistrib.resharding.actions import LeafRoute, is_of_strings
from redistrib.resharding.checks import placing
from redistrib.resharding.host_values import origin_of, owners_of
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.planning import Planner, leaf_spec, route_of
from redistrib.theory.boxes import boxes_of


def route_of_leaf(leaf: Leaf) -> LeafRoute:
    """The action for a leaf, the same in every process."""
    with placing(leaf):
        route = route_of(np.shape(leaf.value), origin_of(leaf), leaf.target, leaf.padding)
    return LeafRoute("via_device_put") if is_of_strings(leaf.value) else route


def call_between_processes(
    leaves: Sequence[Leaf], planner: Planner, batches: Sequence[LeafBatch], donate: bool, memory_limit: int | None
) -> tuple[tuple[int, ...], str]:
    """The processes that must make the same call, ascending, and a digest of the call.

    The digest covers all leaves that lie in several processes before or after, also those without a shard in this
    process, and those that stay where they are: another process may move them. Without such leaves there is no process,
    and the digest is empty.
    """
    processes: set[int] = set()
    parts: list[object] = []
    plans: dict[int, tuple[Plan, str]] = {}  # with their digests, by their identity: many leaves share one
    for leaf in leaves:
        route = route_of_leaf(leaf)
        source, owners = origin_of(leaf), owners_of(leaf)
        if not owners:
            continue
        processes |= owners
        parts.append((leaf.path, np.shape(leaf.value), str(jax.typeof(leaf.value).dtype), route.action))
        if route.ends is None:
            parts += [None if side is None else _placed(leaf, side) for side in (source, leaf.target)]
            continue
        plan = planner.plan(route.ends, str(leaf.value.dtype), route.devices[0].platform)
        if id(plan) not in plans:
            plans[id(plan)] = plan, digest_of(plan)
        parts.append(([device.id for device in route.devices], plans[id(plan)][1], route.kinds))
    if not processes:
        return (), ""
    if memory_limit is not None:  # launches depend on all arrays of a process, also on those that stay in it
        parts += _launches(batches)
    return tuple(sorted(processes)), digest_of_parts([*parts, donate, memory_limit])


def _placed(leaf: Leaf, sharding: Any) -> object:
    """Which device has which box of an array, and in which memory."""
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:  # of summands JAX has no boxes
        mesh = sharding.mesh
        return [device.id for device in mesh.devices.flat], dict(mesh.shape), str(sharding.spec), sharding.memory_kind
    boxes = boxes_of(sharding, np.shape(leaf.value))
    return [(device.id, box.edges) for device, box in boxes.items()], sharding.memory_kind


def _launches(batches: Sequence[LeafBatch]) -> Iterator[object]:
    """The launches between processes."""
    for batch in batches:
        if len({device.process_index for device in leaf_spec(batch.items[0]).devices}) > 1:
            yield [
                ([item.path for item in group], entry.times, entry.schedule, entry.stacked, digest_of(entry.plan))
                for group, entry in batch.parts
            ]
