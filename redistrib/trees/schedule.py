"""In what order leaves travel, how many together, and how many bytes per device are alive at the worst moment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from redistrib.errors import LeafError, MemoryLimitError
from redistrib.plans.plan import Plan

MOST_TOGETHER = 64
STACKED_BELOW = 64 * 1024  # bytes of tile below which a launch costs more than two copies


@dataclass(frozen=True)
class Item:
    """A leaf to be moved.

    Attributes:
        index: its place among the leaves.
        path: its path in the tree.
        kind: leaves of one kind share a plan and an executable.
        plan: the plan without a memory limit.
    """

    index: int
    path: str
    kind: Hashable
    plan: Plan

    @property
    def source_bytes(self) -> int:
        """Bytes of the source tile."""
        return self.plan.before.tile_size * self.plan.itemsize

    @property
    def target_bytes(self) -> int:
        """Bytes of the target tile."""
        return self.plan.after.tile_size * self.plan.itemsize

    @property
    def scratch_bytes(self) -> int:
        """Bytes of predicted scratch."""
        return self.plan.peak_bytes - self.source_bytes - self.target_bytes


@dataclass(frozen=True)
class Batch:
    """Leaves of one kind that travel in one launch.

    Attributes:
        items: the leaves.
        plan: the plan they share.
        stacked: whether their tiles travel side by side in the same collectives.
        peak_bytes: bytes per device alive while they travel, all leaves counted.
    """

    items: tuple[Item, ...]
    plan: Plan
    stacked: bool
    peak_bytes: int


def batches(
    items: Sequence[Item],
    resident: int,
    donate: bool,
    memory_limit: int | None,
    replan: Callable[[Item, int], Plan],
) -> list[Batch]:
    """Order the leaves and decide which travel together.

    Args:
        items: the leaves to move.
        resident: bytes per device of leaves that stay as they are.
        donate: whether a leaf's source is given up once it has travelled.
        memory_limit: bytes per device that all leaves, before and after, and scratch may take; None for no limit.
        replan: the plan of a leaf within so many bytes for its own source, target and scratch.

    Raises:
        MemoryLimitError: if no order and no plan keeps within the limit.
        LeafError: if one leaf alone does not.
    """
    alive = resident + sum(item.source_bytes for item in items)
    result: list[Batch] = []
    queue = sorted(items, key=lambda item: _order(item, donate))
    while queue:
        first = queue[0]
        together = [item for item in queue if item.kind == first.kind][:MOST_TOGETHER]
        plan, count = first.plan, len(together)
        each = first.target_bytes + first.scratch_bytes
        if memory_limit is not None:
            count = min(count, max(1, (memory_limit - alive) // each if each else count))
            own = memory_limit - (alive - first.source_bytes)
            if alive + each > memory_limit:
                plan, count = _within(first, own, memory_limit, items, resident, donate, replan), 1
        chosen = tuple(together[:count])
        scratch = plan.peak_bytes - first.source_bytes - first.target_bytes
        stacked = count > 1 and 0 < first.source_bytes <= STACKED_BELOW
        extra = (first.source_bytes + first.target_bytes) * count if stacked and memory_limit is None else 0
        stacked = stacked and memory_limit is None
        result.append(Batch(chosen, plan, stacked, alive + count * (first.target_bytes + scratch) + extra))
        alive += count * (first.target_bytes - (first.source_bytes if donate else 0))
        taken = {item.index for item in chosen}
        queue = [item for item in queue if item.index not in taken]
    return result


def _order(item: Item, donate: bool) -> tuple[int, int, int]:
    """The order of least peak for independent jobs: first what frees memory, the least demanding first; then what takes
    memory, the one that leaves most to spare afterwards first."""
    needs = item.target_bytes + item.scratch_bytes
    net = item.target_bytes - (item.source_bytes if donate else 0)
    if net <= 0:
        return (0, needs, item.index)
    return (1, net - needs, item.index)


def _within(
    item: Item,
    own: int,
    limit: int,
    items: Sequence[Item],
    resident: int,
    donate: bool,
    replan: Callable[[Item, int], Plan],
) -> Plan:
    try:
        return replan(item, max(own, 1))
    except MemoryLimitError:
        least = least_limit(items, resident, donate, replan)
        if least > limit:
            raise MemoryLimitError(limit, least) from None
        raise LeafError(item.path, f"does not fit in the {own:,} bytes per device that the others leave") from None


def least_limit(
    items: Sequence[Item], resident: int, donate: bool, replan: Callable[[Item, int], Plan]
) -> int:
    """The least bytes per device that moving the leaves one by one, each in its most frugal way, takes."""
    alive = resident + sum(item.source_bytes for item in items)
    worst = alive
    frugal: dict[Hashable, int] = {}
    for item in sorted(items, key=lambda item: _order(item, donate)):
        if item.kind not in frugal:
            try:
                frugal[item.kind] = replan(item, 1).peak_bytes
            except MemoryLimitError as error:
                frugal[item.kind] = error.least
        worst = max(worst, alive - item.source_bytes + frugal[item.kind])
        alive += item.target_bytes - (item.source_bytes if donate else 0)
    return max(worst, alive)
