"""`reshard` and `reshard_plan`, for arrays and for tracers alike."""

from __future__ import annotations

from typing import Any

import jax

from redistrib.errors import TracedError
from redistrib.plans.data import Order
from redistrib.resharding import traced
from redistrib.resharding.eager import PreparedReshard
from redistrib.resharding.interrupts import recoverable
from redistrib.resharding.leaves import matched, present
from redistrib.resharding.planning import Model, Planner
from redistrib.resharding.replicas import check_replicas
from redistrib.resharding.value import TreePlan


def reshard(
    tree: Any,
    shardings: Any,
    source: Any,
    logical_shape: Any,
    *,
    donate: bool,
    memory_limit: int | None,
    model: Model,
    accumulate: str | None,
    order: Order | None,
    check: bool,
    progress: bool | None,
    agreed: bool = False,
) -> Any:
    """See `redistrib.api.reshard`; the memory limit is in bytes.

    `agreed` says that all processes are known to make the same call, and need not tell each other.
    """
    leaves, structure = matched(tree, shardings, source, logical_shape)
    if check:
        check_replicas(tree)
    leaves = list(map(present, leaves))
    planner = Planner(model, accumulate, order)
    inside = [traced.is_traced(leaf.value) for leaf in leaves]
    if donate and any(inside):
        raise TracedError("traced donation")
    outside = [leaf for leaf, is_inside in zip(leaves, inside, strict=True) if not is_inside]
    prepared = PreparedReshard(outside, planner, donate=donate, memory_limit=memory_limit) if outside else None
    moved = [traced.moved(leaf, planner, memory_limit) for leaf, is_in in zip(leaves, inside, strict=True) if is_in]
    placed = [leaf.value for leaf in outside]
    if prepared is not None and donate:  # then no leaf is traced
        with recoverable(lambda: jax.tree.unflatten(structure, placed)) as pause:
            prepared.run(placed, progress, pause, agreed)
            return jax.tree.unflatten(structure, placed)
    if prepared is not None:
        prepared.run(placed, progress, lambda: None, agreed)
    results = [moved.pop(0) if is_inside else placed.pop(0) for is_inside in inside]
    return jax.tree.unflatten(structure, results)


def reshard_plan(
    tree: Any,
    shardings: Any,
    logical_shape: Any,
    *,
    donate: bool,
    memory_limit: int | None,
    model: Model,
    accumulate: str | None,
    order: Order | None,
) -> TreePlan:
    """See `redistrib.api.reshard_plan`."""
    leaves, _ = matched(tree, shardings, None, logical_shape)
    return PreparedReshard(leaves, Planner(model, accumulate, order), donate=donate, memory_limit=memory_limit).plan
