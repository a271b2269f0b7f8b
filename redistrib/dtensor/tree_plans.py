"""The plan of a tree of tensors: which travel together, in which order, within a memory limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch.distributed as dist

from redistrib.backends.ranks.bucket import can_share_a_launch
from redistrib.backends.torch.agreement import GroupCall
from redistrib.dtensor.buckets import Bucket
from redistrib.dtensor.layouts import DTensorLayout, RedistributeSpec
from redistrib.dtensor.leaves import StateLeaf
from redistrib.dtensor.moves import Planned, Reduce, steps_of
from redistrib.errors import LeafError, MemoryLimitError, RedistribError, TypeFormError
from redistrib.launches.order import least_peak
from redistrib.report import Printed, rendered

BUCKET_BYTES = 64 * 2**20  # bytes of source and target tiles in a launch, unless one tensor has more


@dataclass(frozen=True)
class LaunchGroup:
    """Tensors that travel together.

    Attributes:
        paths: of the tensors.
        launches: number of exchanges of messages.
        received_bytes: bytes that all ranks receive.
        peak_bytes: bytes alive on the fullest rank during these launches, with all tensors of the tree.

    >>> import torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> import redistrib as rd
    >>> mesh = init_device_mesh("cpu", (8,))  # under torchrun with 8 ranks
    >>> state = {"w": distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])}
    >>> [group.paths for group in rd.torch.reshard_plan(state, {"w": [Shard(1)]}).groups]
    [('w',)]
    """

    paths: tuple[str, ...]
    launches: int
    received_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class StatePlan(Printed):
    """The launches that move a tree of tensors, in order.

    Attributes:
        groups: tensors that travel together.
        kept: paths of the tensors that stay.
        lower_bound_bytes: a lower bound on the bytes that all ranks receive.
        before_bytes: bytes of all tensors on the fullest rank before anything moves.
        memory_limit: bytes per rank, or None.
        donate: whether memory of sources is released on the way.

    >>> import torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> import redistrib as rd
    >>> mesh = init_device_mesh("cpu", (8,))  # under torchrun with 8 ranks
    >>> state = {"w": distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])}
    >>> plan = rd.torch.reshard_plan(state, {"w": [Shard(1)]})
    >>> plan.launches, plan.received_bytes == plan.lower_bound_bytes
    (1, True)
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

    def _text(self) -> str:
        rows = [
            [g.paths[0], f"{len(g.paths):,}", f"{g.launches:,}", f"{g.received_bytes:,}", f"{g.peak_bytes:,}"]
            for g in self.groups
        ]
        tensors = sum(len(g.paths) for g in self.groups)
        total = ["in all", f"{tensors:,}", f"{self.launches:,}", f"{self.received_bytes:,}", f"{self.peak_bytes:,}"]
        columns = ["first tensor", "tensors", "launches", "received bytes", "peak bytes"]
        return (
            f"{rendered('', columns, rows, foot=total)}\n"
            f"at least {self.lower_bound_bytes:,} bytes are received, {len(self.kept):,} tensors stay"
        )


@dataclass(frozen=True)
class PlannedTree:
    """The plans of a tree, for all trees whose tensors have the same specs.

    Attributes:
        groups: numbers of leaves, and the bucket that moves them; None where each moves alone.
        plan: its summary.
        call: the description that all ranks compare.
    """

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
    loads: dict[RedistributeSpec, _Load] = {}
    for k, spec in moving.items():
        try:
            if spec not in loads:
                loads[spec] = _Load(spec, steps_of(spec), place)
        except RedistribError as error:
            raise LeafError(leaves[k].path, str(error)) from None
    load_of = {k: loads[spec] for k, spec in moving.items()}
    alive = sum((load.before for load in load_of.values()), np.full(max(1, len(members)), sum(stays), dtype=np.int64))
    start = int(alive.max())
    queue = sorted(moving, key=lambda k: load_of[k].order(donate))
    groups: list[tuple[tuple[int, ...], Bucket | None]] = []
    summaries: list[LaunchGroup] = []
    rank = dist.get_rank()
    for taken, peak in _batches(queue, load_of, alive, donate, limit):
        first = load_of[taken[0]]
        plans = [plan for k in taken for plan in load_of[k].plans]
        mover = None
        if first.shares_a_launch and rank in first.spec.members:
            mover = Bucket(plans, first.spec.members.index(rank))
        launches = [len(plan.steps) for plan in plans]
        number = max(launches, default=0) if first.shares_a_launch else sum(launches)
        received = sum(sum(plan.received) * plan.itemsize for plan in plans)
        groups.append((tuple(taken), mover))
        summaries.append(LaunchGroup(tuple(leaves[k].path for k in taken), number, received, peak))
    bound = sum(load.least_received for load in load_of.values())
    staying = tuple(leaf.path for leaf in leaves if leaf.spec is None)
    plan = StatePlan(tuple(summaries), staying, bound, start, limit, donate)
    words = f"reshard of {len(moving)} tensors in {len(groups)} launches, donate={donate}, memory_limit={limit}"
    moves = (f"{leaf.path} {leaf.spec} {first}" for leaf, first in zip(leaves, firsts, strict=True))
    text = "\n".join([words, *moves, *(str(taken) for taken, _ in groups)])  # what stays on a rank may part its groups
    return PlannedTree(tuple(groups), plan, GroupCall(words, dist.get_world_size(), text))


class _Load:
    """The bytes of a move on every rank of a tree.

    Attributes:
        spec, plans: the move, and the plans among its steps; DTensor's own steps have none.
        shares_a_launch: whether it can travel with others: it is one plan, that moves tiles.
        before, after: `[ranks]` bytes of the tensor at both ends.
        added: `[ranks]` bytes that its launch adds: the target, tiles between, and messages in both directions.
        least_received: a lower bound on the bytes that all ranks receive.
    """

    def __init__(
        self, spec: RedistributeSpec, steps: Sequence[Planned | Reduce] | None, place: Mapping[int, int]
    ) -> None:
        planned = [step for step in steps or () if isinstance(step, Planned)]
        others = 1 if steps is None else len(steps) - len(planned)
        self.spec, self.plans = spec, [step.plan for step in planned]
        is_one = len(planned) == 1 and not others
        self.shares_a_launch = is_one and can_share_a_launch(self.plans[0])
        self.least_received = self.plans[0].least_received * spec.dtype.itemsize if is_one else 0
        self.before, self.after = (_bytes_on(spec, layout, place) for layout in (spec.source, spec.target))
        self.added = self.after * (1 + others)
        for step in planned:
            plan, numbers = step.plan, [place[rank] for rank in step.members]
            moved = np.array(plan.received, dtype=np.int64) + np.array(plan.sent, dtype=np.int64)
            self.added[numbers] += (moved + sum(inner.after.tile_size for inner in plan.steps[:-1])) * plan.itemsize

    def left(self, donate: bool) -> Any:
        """`[ranks]` bytes that it leaves behind."""
        return self.after - self.before * donate

    def order(self, donate: bool) -> tuple[int, int]:
        """The sort key of least peak, by the ranks that need most."""
        return least_peak(int(self.left(donate).max()), int(self.added.max()))


def _batches(
    queue: Sequence[int], load_of: Mapping[int, _Load], alive: Any, donate: bool, limit: int | None
) -> list[tuple[list[int], int]]:
    """Tensors that travel together, and their peak bytes, in order.

    Raises:
        MemoryLimitError: if they do not even fit one by one.
    """
    result, waiting, now = [], list(queue), alive
    while waiting:
        taken, peak = _taken(waiting, load_of, now, limit)
        if not taken and limit is not None:
            return _one_by_one(queue, load_of, alive, donate, limit)
        result.append((taken, peak))
        for k in taken:
            now = now + load_of[k].left(donate)
            waiting.remove(k)
    return result


def _one_by_one(
    queue: Sequence[int], load_of: Mapping[int, _Load], alive: Any, donate: bool, limit: int
) -> list[tuple[list[int], int]]:
    """Each tensor alone, where one has no room behind later ones that joined a launch before it."""
    result = []
    for k in queue:
        result.append(([k], int((alive + load_of[k].added).max())))
        alive = alive + load_of[k].left(donate)
    least = max(peak for _, peak in result)
    if least > limit:
        raise MemoryLimitError(limit, least)
    return result


def _taken(queue: Sequence[int], load_of: Mapping[int, _Load], alive: Any, limit: int | None) -> tuple[list[int], int]:
    """The next tensors that travel together, as many, in order, as fit a launch and the limit; and their peak bytes.

    There are none if the first does not fit alone.
    """
    first = load_of[queue[0]]
    taken: list[int] = []
    size, total = 0, alive
    for k in queue:
        load = load_of[k]
        more = int(load.before.max() + load.after.max())
        together = first.shares_a_launch and load.shares_a_launch and load.spec.members == first.spec.members
        if taken and not (together and size + more <= BUCKET_BYTES):
            continue
        needed = int((total + load.added).max())
        if limit is None or needed <= limit:
            taken.append(k)
            size, total = size + more, total + load.added
        elif not taken:
            break
    return taken, int(total.max())


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
