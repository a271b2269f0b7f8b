"""The order of launches, and the bytes alive on each device at the worst moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from redistrib.errors import MemoryLimitError
from redistrib.launches.buckets import Bucket, by_spec, even_groups
from redistrib.launches.ledger import MemoryLedger
from redistrib.launches.moves import BucketProgram, Group, LeafMove, MoveSpec, PlanEntry
from redistrib.plans.data import Short


@dataclass(frozen=True)
class LeafBatch:
    """Leaves that travel in one launch.

    Attributes:
        groups: the leaves, those of one spec side by side.
        program: of the launch, with an entry for each group.
        peak_bytes: bytes per device alive at the worst moment of the launch, with all leaves of the tree.
    """

    groups: Bucket
    program: BucketProgram
    peak_bytes: int

    @property
    def items(self) -> Group:
        """The leaves, in the order in which the program takes them."""
        return tuple(item for group in self.groups for item in group)

    @property
    def parts(self) -> list[tuple[Group, PlanEntry]]:
        """Every group with its entry."""
        return list(zip(self.groups, self.program.entries, strict=True))


def in_order_of_peak(buckets: Iterable[tuple[Bucket, BucketProgram]], alive: MemoryLedger) -> list[LeafBatch]:
    """Batches in the order of least peak, with the bytes alive at their worst moment.

    Args:
        buckets: leaves that travel together, and their program.
        alive: bytes per device of all leaves.
    """
    result = []
    for groups, program in sorted(buckets, key=lambda bucket: order([item for group in bucket[0] for item in group])):
        result.append(LeafBatch(groups, program, _fullest(groups, alive) + program.added_bytes))
        for group in groups:
            _settle(group, alive)
    return result


def _fullest(groups: Bucket, alive: MemoryLedger) -> int:
    """Bytes on the fullest device of a launch, with sources from other memory and the tiles of devices without one.

    The program of a leaf in parts counts these tiles itself, and has no whole tiles on devices without a target.
    """
    items = [item for group in groups for item in group]
    if any(item.without_source or item.parts > 1 or item.loaded_bytes for item in items):
        alive = alive.copy()
        for item in items:
            alive.add(item.devices, item.loaded_bytes)
            alive.add(item.without_source, -item.loaded_bytes)
            if item.parts > 1:
                alive.add(item.without_target, -item.target_bytes)
            else:
                alive.add(item.without_source, item.source_bytes)
    return alive.fullest(items[0].devices)


def _settle(group: Sequence[LeafMove], alive: MemoryLedger) -> None:
    for item in group:
        freed = item.freed_bytes if item.frees_source else 0
        alive.add(item.devices, item.resulting_bytes - freed)
        alive.add(item.without_source, freed)
        alive.add(item.without_target, -item.resulting_bytes)


def order(items: Sequence[LeafMove], scratch: int | None = None) -> tuple[int, int]:
    """The sort key of least peak of the leaves of one launch."""
    needs = sum(item.target_bytes + item.loaded_bytes for item in items)
    net = sum(item.resulting_bytes - (item.freed_bytes if item.gives_up_source else 0) for item in items)
    needs += sum(map(_scratch, items)) if scratch is None else scratch
    return least_peak(net, needs)


def least_peak(net: int, needs: int) -> tuple[int, int]:
    """The sort key of least peak for independent jobs, by the bytes that one leaves behind and that it needs.

    Jobs that free memory come first, the least demanding first. Then come jobs that take memory; first the one that
    leaves most to spare afterwards.

    >>> sorted([(8, 8), (8, 12), (-4, 6), (0, 2)], key=lambda job: least_peak(*job))
    [(0, 2), (-4, 6), (8, 12), (8, 8)]
    """
    return (0, needs) if net <= 0 else (1, net - needs)


def within_limit(
    items: Sequence[LeafMove],
    alive: MemoryLedger,
    memory_limit: int,
    together: Callable[[Group], BucketProgram],
    within: Callable[[LeafMove, int], BucketProgram | Short],
    least: Callable[[LeafMove], int],
) -> list[LeafBatch]:
    """Batches that keep every device within `memory_limit` bytes.

    Args:
        items: the leaves to move.
        alive: bytes per device of all leaves.
        memory_limit: bytes per device for all leaves, before and after, and scratch.
        together: the program of a group, without a limit.
        within: the fastest program of one leaf that adds at most so many bytes.
        least: the least bytes that any program of a leaf adds.

    Raises:
        MemoryLimitError: if no order and no program keeps within the limit; with the least limit that one keeps.
    """

    def batches(queue: list[LeafMove]) -> list[LeafBatch] | Short:
        return _in_order(queue, alive.copy(), memory_limit, together, within)

    found = batches(_ordered(items, {item.spec: _scratch(item) for item in items}))
    if not isinstance(found, Short):
        return found
    frugal = {item.spec: least(item) for item in items}
    queue = _ordered(items, {item.spec: frugal[item.spec] - item.target_bytes for item in items})
    needed = _least_limit(queue, alive.copy(), frugal)
    found = Short(needed) if needed > memory_limit else batches(queue)
    if isinstance(found, Short):
        raise MemoryLimitError(memory_limit, found.least)
    return found


def _in_order(
    queue: list[LeafMove],
    alive: MemoryLedger,
    memory_limit: int,
    together: Callable[[Group], BucketProgram],
    within: Callable[[LeafMove, int], BucketProgram | Short],
) -> list[LeafBatch] | Short:
    """Batches of leaves in this order."""
    result: list[LeafBatch] = []
    if alive.fullest() > memory_limit:
        return Short(alive.fullest())
    while queue:
        first = queue[0]
        group = even_groups(by_spec(queue)[0])[0]
        room = memory_limit - _fullest((group,), alive)
        launch: BucketProgram | None = None
        if len(group) > 1 and len(group) * first.target_bytes <= room:
            launch = together(group)
        if launch is None or launch.added_bytes > room:
            group = (first,)
            besides = _fullest((group,), alive)
            found = within(first, memory_limit - besides)
            if isinstance(found, Short):
                return Short(found.least + besides)
            launch = found
        result.append(LeafBatch((group,), launch, _fullest((group,), alive) + launch.added_bytes))
        _settle(group, alive)
        taken = {item.index for item in group}
        queue = [item for item in queue if item.index not in taken]
    return result


def _scratch(item: LeafMove) -> int:
    return item.plan.peak_bytes - item.source_bytes - item.target_bytes


def _ordered(items: Sequence[LeafMove], scratch: dict[MoveSpec, int]) -> list[LeafMove]:
    """Leaves in the order of least peak, those of one spec next to one another."""
    number: dict[tuple[MoveSpec, bool], int] = {}
    for item in items:
        number.setdefault((item.spec, item.gives_up_source), len(number))
    return sorted(items, key=lambda item: (*order([item], scratch[item.spec]), number[item.spec, item.gives_up_source]))


def _least_limit(queue: Sequence[LeafMove], alive: MemoryLedger, added: dict[MoveSpec, int]) -> int:
    """The least bytes per device that moving the leaves one by one, each in its most frugal way, takes."""
    worst = alive.fullest()
    for item in queue:
        worst = max(worst, _fullest(((item,),), alive) + added[item.spec])
        _settle((item,), alive)
    return worst
