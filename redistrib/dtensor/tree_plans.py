"""The plan of a tree of tensors: which travel together, in which order, within a memory limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch.distributed as dist

from redistrib.backends.ranks.bucket import can_share_a_launch
from redistrib.backends.torch.agreement import GroupCall
from redistrib.dtensor.buckets import Bucket
from redistrib.dtensor.layouts import DTensorLayout, RedistributeSpec
from redistrib.dtensor.leaves import StateLeaf
from redistrib.dtensor.moves import Planned, Reduce, steps_of
from redistrib.errors import LeafError, RedistribError, TypeFormError
from redistrib.launches.ledger import LaunchBytes, MemoryLedger
from redistrib.launches.order import Job, first_fit
from redistrib.report import Printed, rendered

LAUNCH_BYTES = 64 * 2**20  # bytes of source and target tiles in a launch, unless one tensor has more


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
    moves: dict[RedistributeSpec, _Move] = {}
    for k, spec in moving.items():
        try:
            if spec not in moves:
                moves[spec] = _Move(spec, steps_of(spec), donate)
        except RedistribError as error:
            raise LeafError(leaves[k].path, str(error)) from None
    rank, alive = dist.get_rank(), MemoryLedger()
    alive.add({rank for spec in moves for rank in spec.members} or {rank}, sum(stays))
    for spec in moving.values():
        alive.count(moves[spec].before)
    start = alive.fullest()
    groups: list[tuple[tuple[int, ...], Bucket | None]] = []
    summaries: list[LaunchGroup] = []
    for numbers, peak in first_fit({k: moves[spec].job for k, spec in moving.items()}, alive, LAUNCH_BYTES, limit):
        first = moves[moving[numbers[0]]]
        plans = [plan for k in numbers for plan in moves[moving[k]].plans]
        shared, members = first.job.shares is not None, first.spec.members
        mover = Bucket(plans, members.index(rank)) if shared and rank in members else None
        launches = [len(plan.steps) for plan in plans]
        number = max(launches, default=0) if shared else sum(launches)
        received = sum(sum(plan.received) * plan.itemsize for plan in plans)
        groups.append((tuple(numbers), mover))
        summaries.append(LaunchGroup(tuple(leaves[k].path for k in numbers), number, received, peak))
    bound = sum(moves[spec].least_received for spec in moving.values())
    staying = tuple(leaf.path for leaf in leaves if leaf.spec is None)
    plan = StatePlan(tuple(summaries), staying, bound, start, limit, donate)
    words = f"reshard of {len(moving)} tensors in {len(groups)} launches, donate={donate}, memory_limit={limit}"
    lines = (f"{leaf.path} {leaf.spec} {first}" for leaf, first in zip(leaves, firsts, strict=True))
    text = "\n".join([words, *lines, *(str(numbers) for numbers, _ in groups)])  # what stays may part the groups
    return PlannedTree(tuple(groups), plan, GroupCall(words, dist.get_world_size(), text))


class _Move:
    """The move of leaves of a spec.

    Attributes:
        spec, plans: the move, and the plans among its steps; DTensor's own steps have none.
        before: bytes of the source on each rank.
        job: its launch, which adds the target, tiles between, and messages in both directions. It shares one with
            others between the same ranks if it is one plan, that moves tiles.
        least_received: a lower bound on the bytes that all ranks receive.
    """

    def __init__(self, spec: RedistributeSpec, steps: Sequence[Planned | Reduce] | None, donate: bool) -> None:
        planned = [step for step in steps or () if isinstance(step, Planned)]
        others = 1 if steps is None else len(steps) - len(planned)
        self.spec, self.plans = spec, [step.plan for step in planned]
        is_one = len(planned) == 1 and not others
        self.least_received = self.plans[0].least_received * spec.dtype.itemsize if is_one else 0
        self.before, after = (_bytes_on(spec, layout) for layout in (spec.source, spec.target))
        launch = LaunchBytes()
        launch.added.count(after, 1 + others)
        launch.change.count(after)
        launch.change.count(self.before, -donate)
        for step in planned:
            plan = step.plan
            between = sum(inner.after.tile_size for inner in plan.steps[:-1])
            moved = zip(step.members, plan.received, plan.sent, strict=True)
            launch.added.count({rank: (received + sent + between) * plan.itemsize for rank, received, sent in moved})
        shares = spec.members if is_one and can_share_a_launch(self.plans[0]) else None
        self.job = Job(launch, max(self.before.values()) + max(after.values()), shares)


def _bytes_on(spec: RedistributeSpec, layout: DTensorLayout) -> dict[int, int]:
    """Bytes of a tensor on each rank of a layout."""
    try:
        volumes = spec.typed_placement(layout).boxes.volumes()
    except TypeFormError:  # DTensor's own steps move it; no tile is larger than the tensor
        volumes = [prod(spec.shape)] * len(spec.members)
    sizes = dict(zip(spec.members, volumes, strict=True))
    return {rank: sizes[rank] * spec.dtype.itemsize for rank in layout.ranks}
