"""The plan of a tree of tensors: which travel together, in which order, within a memory limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch.distributed as dist

from redistrib.backends.torch.agreement import GroupCall
from redistrib.dtensor.buckets import Bucket, can_share_a_launch
from redistrib.dtensor.layouts import DTensorLayout, RedistributeSpec
from redistrib.dtensor.leaves import StateLeaf
from redistrib.dtensor.moves import Planned, steps_of
from redistrib.errors import LeafError, MemoryLimitError, RedistribError, TypeFormError

BUCKET_BYTES = 64 * 2**20  # bytes of source and target tiles in a launch, unless one tensor has more


@dataclass(frozen=True)
class LaunchGroup:
    """Tensors that travel together.

    Attributes:
        paths: of the tensors.
        launches: number of exchanges of messages.
        received_bytes: bytes that all ranks receive.
        peak_bytes: bytes alive on the fullest rank during these launches, with all tensors of the tree.
    """

    paths: tuple[str, ...]
    launches: int
    received_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class StatePlan:
    """The launches that move a tree of tensors, in order.

    Attributes:
        groups: tensors that travel together.
        kept: paths of the tensors that stay.
        lower_bound_bytes: a lower bound on the bytes that all ranks receive.
        before_bytes: bytes of all tensors on the fullest rank before anything moves.
        memory_limit: bytes per rank, or None.
        donate: whether memory of sources is released on the way.
    """

    groups: tuple[LaunchGroup, ...]
    kept: tuple[str, ...]
    lower_bound_bytes: int
    before_bytes: int
    memory_limit: int | None
    donate: bool

    @property
    def launches(self) -> int:
        """Exchanges of messages, over all groups."""
        return sum(group.launches for group in self.groups)

    @property
    def received_bytes(self) -> int:
        """Bytes that all ranks receive."""
        return sum(group.received_bytes for group in self.groups)

    @property
    def peak_bytes(self) -> int:
        """Bytes alive on the fullest rank at the worst moment."""
        return max(self.before_bytes, *[group.peak_bytes for group in self.groups], 0)

    def __str__(self) -> str:
        rows = [f"{'tensors':>8} {'launches':>9} {'received bytes':>16} {'peak bytes':>16}  first tensor"]
        rows += [
            f"{len(g.paths):8,} {g.launches:9,} {g.received_bytes:16,} {g.peak_bytes:16,}  {g.paths[0]}"
            for g in self.groups
        ]
        rows.append(
            f"{sum(len(g.paths) for g in self.groups):8,} {self.launches:9,} {self.received_bytes:16,} "
            f"{self.peak_bytes:16,}  in all; at least {self.lower_bound_bytes:,} bytes are received, "
            f"{len(self.kept):,} tensors stay"
        )
        return "\n".join(rows)


@dataclass(frozen=True)
class PlannedTree:
    """The plans of a tree, for all trees whose tensors have the same specs.

    Attributes:
        members: global ranks of all meshes.
        groups: numbers of leaves, and the bucket that moves them; None where each moves alone.
        plan: its summary.
        call: the description that all ranks compare.
    """

    members: tuple[int, ...]
    groups: tuple[tuple[tuple[int, ...], Bucket | None], ...]
    plan: StatePlan
    call: GroupCall


def plan_tree(
    leaves: Sequence[StateLeaf], firsts: Sequence[int], stays: tuple[int, ...], donate: bool, limit: int | None
) -> PlannedTree:
    """Plans and launches, the same on every rank: bytes are counted for all of them.

    Args:
        leaves: the leaves of the tree.
        firsts: for each leaf the number of the first with the same tensor and target, which alone moves.
        stays: for each leaf the bytes that stay on this rank.
        donate: whether memory of sources is released on the way.
        limit: bytes per rank, or None.

    Raises:
        LeafError: if a leaf cannot move.
        MemoryLimitError: if the limit is too small.
    """
    moving = {k: leaf.spec for k, leaf in enumerate(leaves) if leaf.spec is not None and firsts[k] == k}
    members = tuple(sorted({rank for spec in moving.values() for rank in spec.members}))
    place = {rank: k for k, rank in enumerate(members)}
    steps: dict[RedistributeSpec, Any] = {}
    for k, spec in moving.items():
        try:
            if spec not in steps:
                steps[spec] = steps_of(spec)
        except RedistribError as error:
            raise LeafError(leaves[k].path, str(error)) from None
    before = {spec: _bytes_on(spec, spec.source, place) for spec in steps}
    after = {spec: _bytes_on(spec, spec.target, place) for spec in steps}
    alive = sum((before[spec] for spec in moving.values()), np.full(max(1, len(members)), sum(stays), dtype=np.int64))
    start = int(alive.max())
    order = sorted(moving, key=lambda k: _order(before[moving[k]], after[moving[k]], donate))
    groups: list[tuple[tuple[int, ...], Bucket | None]] = []
    summaries: list[LaunchGroup] = []
    rank = dist.get_rank()
    while order:
        taken = _take(order, moving, steps, before, after, alive, limit)
        specs = [moving[k] for k in taken]
        peak = int((alive + _needed(specs, steps, after, place)).max())
        plans = [steps[spec][0].plan for spec in specs if len(steps[spec]) == 1 and isinstance(steps[spec][0], Planned)]
        mover: Bucket | None = None
        same = len({spec.members for spec in specs}) == 1
        if len(plans) == len(specs) and same and all(map(can_share_a_launch, plans)):
            if rank in specs[0].members:
                mover = Bucket(plans, specs[0].members.index(rank))
            launches = max((len(plan.steps) for plan in plans), default=0)
        else:
            launches = sum(len(step.plan.steps) for spec in specs for step in steps[spec] if isinstance(step, Planned))
        received = sum(
            sum(step.plan.received) * step.plan.itemsize
            for spec in specs for step in steps[spec] if isinstance(step, Planned)
        )  # fmt: skip
        groups.append((tuple(taken), mover))
        summaries.append(LaunchGroup(tuple(leaves[k].path for k in taken), launches, received, peak))
        for k in taken:
            alive = alive + after[moving[k]] - (before[moving[k]] if donate else 0)
            order.remove(k)
    bound = sum(
        steps[spec][-1].plan.least_received * spec.dtype.itemsize for spec in moving.values() if len(steps[spec]) == 1
    )
    staying = tuple(leaf.path for leaf in leaves if leaf.spec is None)
    plan = StatePlan(tuple(summaries), staying, bound, start, limit, donate)
    words = f"reshard of {len(moving)} tensors in {len(groups)} launches, donate={donate}, memory_limit={limit}"
    text = "\n".join([words, *(f"{leaf.path} {leaf.spec} {first}" for leaf, first in zip(leaves, firsts, strict=True))])
    return PlannedTree(members, tuple(groups), plan, GroupCall(words, dist.get_world_size(), text))


def _order(before: Any, after: Any, donate: bool) -> tuple[int, int]:
    """The sort key for the least peak: first tensors that free memory, the smallest first; then the largest first."""
    net = int((after - before).max()) if donate else int(after.max())
    return (0, int(after.max())) if net <= 0 else (1, -int(after.max()))


def _take(
    order: list[int], moving: Any, steps: Any, before: Any, after: Any, alive: Any, limit: int | None
) -> list[int]:
    """The next tensors that travel together: as many, in order, as fit a launch and the limit.

    Raises:
        MemoryLimitError: if the first does not fit alone.
    """
    taken: list[int] = []
    size, kind = 0, None
    for k in order:
        spec = moving[k]
        shares = (
            len(steps[spec]) == 1 and isinstance(steps[spec][0], Planned) and can_share_a_launch(steps[spec][0].plan)
        )
        group = (shares, spec.members)
        more = int(before[spec].max() + after[spec].max())
        if taken and (group != kind or not shares or size + more > BUCKET_BYTES):
            continue
        place = {rank: n for n, rank in enumerate(sorted({r for s in moving.values() for r in s.members}))}
        needed = int((alive + _needed([moving[j] for j in taken] + [spec], steps, after, place)).max())
        if limit is not None and needed > limit:
            if not taken:
                raise MemoryLimitError(limit, needed)
            continue
        taken.append(k)
        kind, size = group, size + more
    return taken


def _needed(specs: Sequence[RedistributeSpec], steps: Any, after: Any, place: Mapping[int, int]) -> Any:
    """`[ranks]` bytes that a launch adds: targets, tiles between, and messages in both directions."""
    total: Any = 0
    for spec in specs:
        total = total + after[spec]
        for step in steps[spec]:
            if not isinstance(step, Planned):
                total = total + after[spec]
                continue
            numbers = [place[rank] for rank in step.members]
            extra = np.zeros(len(place), dtype=np.int64)
            moved = np.array(step.plan.received, dtype=np.int64) + np.array(step.plan.sent, dtype=np.int64)
            extra[numbers] = moved * step.plan.itemsize
            extra[numbers] += sum(inner.after.tile_size for inner in step.plan.steps[:-1]) * step.plan.itemsize
            total = total + extra
    return total


def _bytes_on(spec: RedistributeSpec, layout: DTensorLayout, place: Mapping[int, int]) -> Any:
    """`[ranks]` bytes of a tensor on every rank of the tree."""
    result = np.zeros(len(place), dtype=np.int64)
    volumes: Any
    try:
        volumes = spec.typed_placement(layout).boxes.volumes()
    except TypeFormError:  # DTensor's own steps move it; no tile is larger than the tensor
        volumes = np.full(len(spec.members), prod(spec.shape))
    for k, rank in enumerate(spec.members):
        if rank in layout.ranks:
            result[place[rank]] = volumes[k] * spec.dtype.itemsize
    return result
