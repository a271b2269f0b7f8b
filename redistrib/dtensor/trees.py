"""Model states: trees of DTensors onto other layouts, in few launches, within a memory limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from redistrib.backends.torch.agreement import GroupCall
from redistrib.backends.torch.channels import channel_of, compare
from redistrib.backends.torch.private import finished
from redistrib.cache import Cache
from redistrib.dtensor.buckets import Bucket, can_share_a_launch
from redistrib.dtensor.containers import children_of, put, rebuilt
from redistrib.dtensor.leaves import StateLeaf, leaves_of
from redistrib.dtensor.moves import DTensorLayout, Options, Planned, RedistributeSpec, move_of, steps_of
from redistrib.dtensor.redistribute import as_dtensor
from redistrib.errors import CommunicatorError, LeafError, MemoryLimitError, RedistribError
from redistrib.sizes import parse_size

BUCKET_BYTES = 64 * 2**20  # bytes of source and target tiles in a launch, unless one tensor has more


def reshard(
    state: Any,
    targets: Any,
    *,
    donate: bool = False,
    memory_limit: int | str | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
    cost_model: Any = None,
    topology: Sequence[Hashable] | None = None,
) -> Any:
    """Redistribute a tree of DTensors by plans, many tensors in a launch; all ranks call it together.

    All arguments are checked and all plans are made before data moves. If a rank passes other arguments, every rank
    raises the same error, and nothing has moved.

    Args:
        state: DTensors and plain tensors in containers, nested in any way; for example a `state_dict`. A plain tensor
            is a whole tensor that every rank of its target's mesh holds. Containers are mappings, lists, tuples, named
            tuples, dataclasses, and classes registered with PyTorch's pytrees; other leaves stay.
        targets: a target for every tensor, in containers with the same parts, or in mappings by their keys or names:
            `(mesh, placements)`, or placements for the mesh of the DTensor, or another DTensor, whose layout it gets;
            or one target for a whole subtree. A subtree whose target is None stays.
        donate: whether each tensor is released as soon as it has moved: the result replaces it in the dict, list or
            dataclass of `state`, so that its memory is free unless something else refers to it. After an error `state`
            holds every tensor, moved or not.
        memory_limit: bytes per rank for all tensors, before and after, and for messages: an integer or a text.
        progress: called with (bytes moved, bytes in total) after each launch; True prints them on rank 0.
        cost_model, topology: as for `redistribute`.

    Returns:
        A tree of the same structure.

    Raises:
        LeafError: for a leaf or a target that breaks a rule; names its path.
        MemoryLimitError: on every rank, if the limit is too small; nothing has moved.
        CommunicatorError: on every rank, if the ranks make different calls; nothing has moved.
    """
    if not dist.is_initialized():
        raise CommunicatorError("there is no process group; call torch.distributed.init_process_group first")
    try:
        tree = _prepared(state, targets, donate, memory_limit, cost_model, topology)
    except RedistribError as error:
        _agree(GroupCall("reshard", dist.get_world_size()), error)
        raise
    _agree(tree.call)
    return tree.run(progress)


def _agree(call: GroupCall, problem: RedistribError | None = None) -> None:
    """Compare calls on all ranks of the default group."""
    compare(tuple(range(dist.get_world_size())), call, problem)


def reshard_plan(
    state: Any,
    targets: Any,
    *,
    donate: bool = False,
    memory_limit: int | str | None = None,
    cost_model: Any = None,
    topology: Sequence[Hashable] | None = None,
) -> StatePlan:
    """The plan of `reshard` with the same arguments; print it for a table. Nothing is sent."""
    return _prepared(state, targets, donate, memory_limit, cost_model, topology).plan


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
class _PlannedTree:
    """The plans of a tree, for all trees whose tensors have the same specs.

    Attributes:
        groups: numbers of leaves, and the bucket that moves them; None where each moves alone.
    """

    members: tuple[int, ...]
    groups: tuple[tuple[tuple[int, ...], Bucket | None], ...]
    plan: StatePlan
    call: GroupCall


_TREES: Cache[_PlannedTree] = Cache(64)


class _Prepared:
    """A tree that has been checked and planned."""

    def __init__(self, state: Any, leaves: list[StateLeaf], planned: _PlannedTree, donate: bool) -> None:
        self._state, self._planned, self._donate = state, planned, donate
        self._specs = [leaf.spec for leaf in leaves]
        self._places = [(leaf.holder, leaf.key) for leaf in leaves]
        self._values = [leaf.value for leaf in leaves]  # sources, and then results
        self.plan, self.call = planned.plan, planned.call

    def run(self, progress: Callable[[int, int], None] | bool | None) -> Any:
        """Move everything, and return the tree of results."""
        planned = self._planned
        total = sum(self._bytes(k) for numbers, _ in planned.groups for k in numbers)
        moved_bytes = 0
        for numbers, mover in planned.groups:
            self._launch(numbers, mover)
            for k in numbers:
                if self._donate:
                    put(*self._places[k], self._values[k])
                moved_bytes += self._bytes(k)
            if callable(progress):
                progress(moved_bytes, total)
            elif progress and dist.get_rank() == 0:
                print(f"{moved_bytes:,} of {total:,} bytes moved", flush=True)
        return _rebuilt(self._state, iter(self._values))

    def _launch(self, numbers: tuple[int, ...], mover: Bucket | None) -> None:
        rank = dist.get_rank()
        specs = [self._specs[k] for k in numbers]
        if isinstance(mover, Bucket):
            locals_ = [self._local(k) if s is not None and rank in s.source.ranks else None
                       for k, s in zip(numbers, specs, strict=True)]  # fmt: skip
            assert specs[0] is not None
            tiles = self._run(mover, locals_, self._local(numbers[0]).device, specs[0].members)
        else:
            tiles = [move_of(s)(self._local(k)) for k, s in zip(numbers, specs, strict=True) if s is not None]
        for k, spec, tile in zip(numbers, specs, tiles, strict=True):
            assert spec is not None
            if tile is None:
                tile = self._local(k).new_empty((0,) if spec.shape else ())
            tile = tile if rank not in spec.target.ranks or spec.shape else tile.reshape(())
            result = as_dtensor(tile, spec.target, spec.shape)
            self._values[k] = result.requires_grad_(self._values[k].requires_grad)

    def _run(
        self, bucket: Bucket, locals_: list[Any], device: torch.device, members: tuple[int, ...]
    ) -> list[torch.Tensor | None]:
        channel = channel_of(members)
        try:
            channel.begin(self.call)
            return bucket.run(locals_, device, channel.links)
        except RuntimeError as error:
            raise channel.explain(error) from error
        finally:
            channel.end()

    def _local(self, k: int) -> torch.Tensor:
        value = self._values[k]
        local: torch.Tensor = finished(value.to_local()) if isinstance(value, DTensor) else value
        return local.detach()

    def _bytes(self, k: int) -> int:
        spec = self._specs[k]
        return 0 if spec is None else prod(spec.shape) * spec.dtype.itemsize


def _rebuilt(state: Any, results: Iterator[Any]) -> Any:
    children = children_of(state)
    if children is None:
        return next(results)
    return rebuilt(state, [_rebuilt(child.value, results) for child in children])


def _prepared(
    state: Any, targets: Any, donate: bool, memory_limit: int | str | None, cost_model: Any, topology: Any
) -> _Prepared:
    limit = None if memory_limit is None else parse_size(memory_limit)
    options = Options(None, cost_model, None if topology is None else tuple(topology))
    leaves = list(leaves_of(state, targets, options))
    stays = tuple(_stays(leaf) for leaf in leaves)
    key = (tuple((leaf.path, leaf.spec) for leaf in leaves), stays, donate, limit)
    planned = _TREES.get(key, lambda: _plan_tree(leaves, stays, donate, limit))
    return _Prepared(state, leaves, planned, donate)


def _stays(leaf: StateLeaf) -> int:
    """Bytes of a tensor that stays."""
    if leaf.spec is not None or not isinstance(leaf.value, torch.Tensor):
        return 0
    local = leaf.value.to_local() if isinstance(leaf.value, DTensor) else leaf.value
    return int(local.nbytes)


def _plan_tree(leaves: list[StateLeaf], stays: tuple[int, ...], donate: bool, limit: int | None) -> _PlannedTree:
    """Plans and launches, the same on every rank: bytes are counted for all of them."""
    moving = {k: leaf.spec for k, leaf in enumerate(leaves) if leaf.spec is not None}
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
    text = "\n".join([words, *(f"{leaf.path} {leaf.spec}" for leaf in leaves)])
    return _PlannedTree(members, tuple(groups), plan, GroupCall(words, dist.get_world_size(), text))


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
    volumes = spec.typed_placement(layout).boxes.volumes()
    for k, rank in enumerate(spec.members):
        if rank in layout.ranks:
            result[place[rank]] = volumes[k] * spec.dtype.itemsize
    return result
