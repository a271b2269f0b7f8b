"""Is a plan correct? The check reads its placements and groups alone, and trusts no claim of the search.

`verify` reads a plan as `reference` does. It accepts a plan only if its steps take every device from its source tile
to its target tile, and every device sends only elements that it holds. Each rule has a name in `VERIFICATION_RULES`.
The certificate is the one sketched in Section 5 of the paper (a sequence of collectives realises a
redistribution iff its base offset maps join up), with explicit groups in the place of mesh axes.
On purpose it does not read `messages`, by which backends run a step, so that both do not share an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

import numpy as np

from redistrib.errors import PlacementError, TileAboveBoundError, VerificationError
from redistrib.plans._diagnostics import describe, first, row
from redistrib.plans.data import PlanData
from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Step,
    Unreduce,
)
from redistrib.plans.verify_exchange import check_exchange
from redistrib.plans.verify_groups import check_allgather, check_alltoall
from redistrib.plans.verify_reductions import as_slabs, check_reduce_exchange, check_reduction, check_unreduce
from redistrib.plans.verify_tiles import check_allpermute, check_dynslice
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.splits import normal_cuts

_Plan = TypeVar("_Plan", bound=PlanData)


def verify(plan: _Plan, bound: int | None = None) -> _Plan:
    """Check a plan and return it.

    Args:
        plan: any plan, of any origin.
        bound: the largest tile allowed on the way, in elements. By default the larger of the source tile and the
            target tile (the promise of Section 6), or none where the plan has a memory limit. `verify` does not check
            that limit, since predicted memory depends on measured figures, and a new measurement makes no plan wrong.
            Synthesis and backends check it.

    Raises:
        VerificationError: for the first rule that is broken, with step, device and values.
        TypeFormError: if a type of the plan is not well-formed over its mesh.
    """
    source = placement_of(plan.source, plan.source_mesh, plan.devices)
    target = placement_of(plan.target, plan.target_mesh, plan.devices)
    if source.shape != target.shape:
        raise VerificationError(
            "shape mismatch",
            f"the source is an array of shape {source.shape} and the target one of shape {target.shape}; "
            "a plan moves one array, so both must be equal",
            source=source.shape,
            target=target.shape,
        )
    if bound is None and plan.memory_limit is None:
        bound = max(source.tile_size, target.tile_size)
    _check_bound(0, source, bound)
    current = source
    for number, step in enumerate(plan.steps, 1):
        if type(step) not in _CHECKS:
            raise VerificationError(
                "unknown step",
                f"step {number} is a {type(step).__name__}; a step is one of "
                + ", ".join(kind.__name__ for kind in _CHECKS),
                number,
                kind=type(step).__name__,
            )
        if step.before is not current:
            _check_placement(number, step.before, source)
            if step.before != current:
                _fail_start(number, step.before, current)
        _check_placement(number, step.after, source)
        if (step.before.cuts or step.after.cuts) and type(step) is not Exchange:
            raise VerificationError(
                "uneven step",
                f"step {number} is a step {step.kind} on tiles of unequal size, which move by exchanges; make it one",
                number,
                kind=step.kind,
            )
        check, reduces = _CHECKS[type(step)]
        check(number, step if reduces else as_slabs(number, step))
        _check_bound(number, step.after, bound)
        current = step.after
    if current != target:
        device = _first_difference(current, target)
        raise VerificationError(
            "wrong end",
            f"the plan ends with device {device} holding {describe(current, device)}, "
            f"where the target {plan.target} gives it {describe(target, device)}",
            len(plan.steps) or None,
            device,
            ends=describe(current, device),
            target=describe(target, device),
        )
    _check_everywhere(plan, source)
    if plan.order == "fixed":
        _check_order(plan, source)
    return plan


def _check_everywhere(plan: PlanData, source: Placement) -> None:
    """Check that a plan with partial sums leaves no device without a tile, as docs/format.md requires."""
    ends: list[tuple[int | None, str, Placement]] = [(None, "at the source", source)]
    ends += [(number, f"after step {number} ({step.kind})", step.after) for number, step in enumerate(plan.steps, 1)]
    adds = next((where for _, where, placement in ends if placement.summands > 1), None)
    if adds is None:
        return
    for number, where, placement in ends:
        if placement.nowhere.any():
            device = first(placement.nowhere)
            raise VerificationError(
                "summands everywhere",
                f"{where} device {device} holds nothing, and {adds} tiles are partial sums; in a plan that has "
                "partial sums "
                "every device holds a tile all the way",
                number,
                device,
            )


def _check_order(plan: PlanData, source: Placement) -> None:
    """Check that one step makes all sums, by the library itself, in the order of the partial sums of the source."""
    current, added = source, 0
    for number, step in enumerate(plan.steps, 1):
        if not np.array_equal(step.before.label, current.label):
            _fail_order(number, step, "its partial sums are numbered anew")
        if step.before.summands > step.after.summands:
            added += 1
            if isinstance(step, AllReduce) or (isinstance(step, ReduceScatter) and step.implementation == "native"):
                _fail_order(number, step, "the platform adds in an order of its own")
            if added > 1:
                _fail_order(number, step, "sums of sums are other sums")
        current = step.after


def _fail_order(number: int, step: Step, why: str) -> NoReturn:
    raise VerificationError(
        "fixed order",
        f"step {number} ({step.kind}) does not keep the plan's fixed order of partial sums: {why}; reduce in one "
        "step by "
        "an all-to-all or an exchange, or let the order be any",
        number,
    )


def _check_placement(number: int, placement: Placement, source: Placement) -> None:
    """Check shape, grid and indices again, since a placement may bypass its constructor."""
    if placement.shape != source.shape:
        raise VerificationError(
            "shape mismatch",
            f"step {number} is about an array of shape {placement.shape}, the plan about one of shape {source.shape}",
            number,
            step_shape=placement.shape,
            plan_shape=source.shape,
        )
    if placement.index.shape != source.index.shape:
        raise VerificationError(
            "placed devices",
            f"step {number} places {placement.index.shape[0]} devices by rows of length {placement.index.shape[1]}, "
            f"the plan has {source.devices} devices and rank {source.rank}",
            number,
            devices=placement.index.shape[0],
            expected=source.devices,
        )
    grid = placement.grid
    _check_splits(number, placement)
    if len(grid) != source.rank or any(
        n < 1 or (points is None and s % n) for s, n, points in zip(source.shape, grid, placement.points, strict=True)
    ):
        raise VerificationError(
            "tile index",
            f"step {number} cuts an array of shape {source.shape} by the grid {grid}, which does not divide it",
            number,
            grid=grid,
        )
    index = placement.index
    if index.size and (index.min() < 0 or (index.max(axis=0) >= grid).any()):
        nowhere = (index == -1).all(axis=1)
        outside = ((index < 0) | (index >= np.array(grid))).any(axis=1) & ~nowhere
        if outside.any():
            device = first(outside)
            raise VerificationError(
                "tile index",
                f"step {number} gives device {device} the tile {row(index[device])}, which is not on the grid {grid}",
                number,
                device,
                index=row(index[device]),
                grid=grid,
            )
    _check_summands(number, placement)


def _check_splits(number: int, placement: Placement) -> None:
    if not placement.cuts:
        return
    try:
        proper = len(placement.grid) == placement.rank and normal_cuts(placement.cuts, placement.shape, placement.grid)
    except PlacementError as error:
        raise VerificationError("tile index", f"step {number} has tiles that cannot be: {error}", number) from None
    if proper != placement.cuts:
        raise VerificationError(
            "tile index", f"step {number} has split points for tiles of one size, or no grid for them", number
        )


def _check_summands(number: int, placement: Placement) -> None:
    if placement.summand is None and placement.summands == 1:
        return
    try:
        Placement(placement.shape, placement.grid, placement.index, *placement.partial)
    except PlacementError as error:
        raise VerificationError(
            "summand count", f"step {number} has partial sums that cannot be: {error}", number
        ) from None


def _check_bound(number: int, placement: Placement, bound: int | None) -> None:
    if bound is not None and placement.tile_size > bound:
        where = f"after step {number}" if number else "at the source"
        raise TileAboveBoundError(
            "tile above bound",
            f"{where} a tile has {placement.tile_size} elements, more than the bound of {bound}; "
            "choose another plan, or pass the bound that this one was made under",
            number,
            tile=placement.tile_size,
            bound=bound,
        )


def _fail_start(number: int, before: Placement, current: Placement) -> None:
    device = _first_difference(before, current)
    starts, expected = describe(before, device), describe(current, device)
    if number == 1:
        raise VerificationError(
            "wrong start",
            f"step 1 starts with device {device} holding {starts}, where the source gives it {expected}",
            number,
            device,
            starts=starts,
            source=expected,
        )
    raise VerificationError(
        "disconnected steps",
        f"step {number} starts with device {device} holding {starts}, where step {number - 1} left it {expected}",
        number,
        device,
        starts=starts,
        ended=expected,
    )


def _first_difference(one: Placement, other: Placement) -> int:
    """The first device that holds different boxes in two unequal placements of one shape."""
    if one.tile != other.tile or one.partial[1:] != other.partial[1:]:
        return 0
    tiles = ((one.start != other.start) | (one.boxes.size != other.boxes.size)).any(axis=1)
    return first(tiles if tiles.any() else one.ranked != other.ranked)


# The check of each kind of step, and whether it handles partial sums; the other checks get slabs of their stack.
_CHECKS: dict[type, tuple[Callable[..., None], bool]] = {
    DynSlice: (check_dynslice, False),
    AllGather: (check_allgather, False),
    AllToAll: (check_alltoall, False),
    AllPermute: (check_allpermute, False),
    Exchange: (check_exchange, False),
    ReduceScatter: (check_reduction, True),
    AllReduce: (check_reduction, True),
    ReduceExchange: (check_reduce_exchange, True),
    Unreduce: (check_unreduce, True),
}
