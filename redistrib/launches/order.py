"""The order of launches, and the bytes alive on each device at the worst moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from redistrib.errors import MemoryLimitError
from redistrib.launches.buckets import Bucket, by_spec, even_groups
from redistrib.launches.ledger import LaunchBytes, MemoryLedger
from redistrib.launches.moves import BucketProgram, Group, LeafMove, MoveSpec, PlanEntry
from redistrib.plans.data import Short

Item = TypeVar("Item")
Launch = TypeVar("Launch")


def walk(
    queue: Sequence[Item],
    alive: MemoryLedger,
    form: Callable[[Sequence[Item], MemoryLedger], tuple[Launch, LaunchBytes, Sequence[Item]] | Short],
) -> list[tuple[Launch, int]] | Short:
    """Launches of all that waits, in order, each with the bytes on the fullest device meanwhile.

    Args:
        queue: what waits.
        alive: bytes before; counts them on the way.
        form: from what waits and the bytes alive then the next launch, its bytes, and what still waits.
    """
    result = []
    while queue:
        found = form(queue, alive)
        if isinstance(found, Short):
            return found
        launch, size, queue = found
        result.append((launch, alive.run(size)))
    return result


def least_limit(launches: Iterable[LaunchBytes], alive: MemoryLedger) -> int:
    """The bytes on the fullest device at the worst moment of launches, one after the other."""
    return max([alive.fullest(), *map(alive.run, launches)])


def first_within(memory_limit: int | None, tries: Iterable[Launch | Short]) -> Launch:
    """The first try that keeps within a limit.

    Raises:
        MemoryLimitError: if none does; with the bytes of the last one.
    """
    least = 0
    for found in tries:
        if not isinstance(found, Short):
            return found
        least = found.least
    raise MemoryLimitError(memory_limit or 0, least)


@dataclass(frozen=True, eq=False)
class Job:
    """What travels in a launch, alone or with others, and takes the same bytes either way; equal to itself only.

    Attributes:
        bytes: those of its launch; all devices count.
        size: bytes of source and target that count in a launch with others.
        shares: equal for jobs that may share a launch; None for one that travels alone.
    """

    bytes: LaunchBytes
    size: int
    shares: Hashable

    @cached_property
    def order(self) -> tuple[int, int]:
        """The sort key of least peak, by the devices that need most."""
        return least_peak(self.bytes.change.fullest(), self.bytes.added.fullest())


def first_fit(
    jobs: Mapping[int, Job], alive: MemoryLedger, most_bytes: int, memory_limit: int | None
) -> list[tuple[list[int], int]]:
    """The numbers of jobs that travel together, as many as fit, and the bytes on the fullest device meanwhile.

    Where a job has no room behind later ones that joined a launch before it, each travels alone.

    Args:
        jobs: by number.
        alive: bytes of all of them before.
        most_bytes: bytes of source and target in a launch, unless one job has more.
        memory_limit: bytes on the fullest device, or None.

    Raises:
        MemoryLimitError: if they do not even fit one by one.
    """
    jobs, alive = _on_one_of_each_kind(jobs, alive)
    order_of_peak = sorted(jobs, key=lambda k: jobs[k].order)

    def next_launch(queue: Sequence[int], now: MemoryLedger) -> tuple[list[int], LaunchBytes, list[int]] | Short:
        first, total, size = jobs[queue[0]], now.copy(), 0
        together, waiting, misfits = list[int](), list[int](), set[Job]()
        for k in queue:
            job = jobs[k]
            shares = first.shares is not None and job.shares == first.shares and size + job.size <= most_bytes
            joins = not together or (job not in misfits and shares)
            if joins and (memory_limit is None or (peak := total.peak(job.bytes)) <= memory_limit):
                together.append(k)
                size += job.size
                total.count(job.bytes.added.bytes)
            elif together:
                waiting.append(k)
                misfits.add(job)
            else:
                return Short(peak)
        launch = LaunchBytes()
        for job, times in Counter(jobs[k] for k in together).items():
            launch.added.count(job.bytes.added.bytes, times)
            launch.change.count(job.bytes.change.bytes, times)
        return together, launch, waiting

    def tries() -> Iterator[list[tuple[list[int], int]] | Short]:
        yield walk(order_of_peak, alive.copy(), next_launch)
        least = least_limit((jobs[k].bytes for k in order_of_peak), alive.copy())
        fits = memory_limit is None or least <= memory_limit
        yield [([k], alive.run(jobs[k].bytes)) for k in order_of_peak] if fits else Short(least)

    return first_within(memory_limit, tries())


def _on_one_of_each_kind(jobs: Mapping[int, Job], alive: MemoryLedger) -> tuple[dict[int, Job], MemoryLedger]:
    """The jobs and the bytes before, on one device of all those on which they count the same."""
    distinct = dict.fromkeys(jobs.values())
    ledgers = [alive, *(side for job in distinct for side in (job.bytes.added, job.bytes.change))]
    every = dict.fromkeys(device for ledger in ledgers for device in ledger.bytes)
    counts = [[ledger.bytes.get(device, 0) for device in every] for ledger in ledgers]
    uneven = [each for each in counts if len(set(each)) > 1]
    kinds = zip(*uneven, strict=True) if uneven else [()] * len(every)
    some, fewer = list(dict(zip(kinds, every, strict=True)).values()), dict[Job, Job]()
    for job in distinct:
        size = job.bytes
        fewer[job] = replace(job, bytes=replace(size, added=size.added.on(some), change=size.change.on(some)))
    return {k: fewer[job] for k, job in jobs.items()}, alive.on(some)


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
    peak_bytes: int = 0

    @property
    def items(self) -> Group:
        """The leaves, in the order in which the program takes them."""
        return tuple(item for group in self.groups for item in group)

    @property
    def bytes(self) -> LaunchBytes:
        """What the launch adds and leaves behind."""
        return _bytes_of(self.items, self.program.added_bytes)

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
    batches = sorted((LeafBatch(*bucket) for bucket in buckets), key=lambda batch: order(batch.items))
    return [replace(batch, peak_bytes=alive.run(batch.bytes)) for batch in batches]


def _bytes_of(items: Group, scratch: int = 0) -> LaunchBytes:
    """Bytes of the launch of leaves, with sources from other memory and the tiles of devices without one.

    The program of a leaf in parts counts these tiles itself, and has no whole tiles on devices without a target.
    """
    result = LaunchBytes(scratch=scratch, devices=items[0].devices)
    for item in items:
        if item.loads:
            result.added.add(item.devices, item.loaded_bytes)
            result.added.add(item.without_source, -item.loaded_bytes)
        if item.parts > 1:
            result.added.add(item.without_target, -item.target_bytes)
        else:
            result.added.add(item.without_source, item.source_bytes)
        freed = item.freed_bytes if item.frees_source else 0
        result.change.add(item.devices, item.resulting_bytes - freed)
        result.change.add(item.without_source, freed)
        result.change.add(item.without_target, -item.resulting_bytes)
    return result


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

    def next_batch(
        queue: Sequence[LeafMove], now: MemoryLedger
    ) -> tuple[LeafBatch, LaunchBytes, list[LeafMove]] | Short:
        group = even_groups(by_spec(queue)[0])[0]
        room = memory_limit - now.peak(_bytes_of(group))
        several = len(group) > 1 and len(group) * group[0].target_bytes <= room
        program = together(group) if several else None
        if program is None or program.added_bytes > room:
            group = group[:1]
            besides = now.peak(_bytes_of(group))
            found = within(group[0], memory_limit - besides)
            if isinstance(found, Short):
                return Short(found.least + besides)
            program = found
        gone = {item.index for item in group}
        batch = LeafBatch((group,), program)
        return batch, batch.bytes, [item for item in queue if item.index not in gone]

    def tries() -> Iterator[list[tuple[LeafBatch, int]] | Short]:
        if alive.fullest() <= memory_limit:
            yield walk(_ordered(items, {item.spec: _scratch(item) for item in items}), alive.copy(), next_batch)
        frugal = {item.spec: least(item) for item in items}
        queue = _ordered(items, {item.spec: frugal[item.spec] - item.target_bytes for item in items})
        needed = least_limit((_bytes_of((item,), frugal[item.spec]) for item in queue), alive.copy())
        yield Short(needed) if needed > memory_limit else walk(queue, alive.copy(), next_batch)

    return [replace(batch, peak_bytes=peak) for batch, peak in first_within(memory_limit, tries())]


def _scratch(item: LeafMove) -> int:
    return item.plan.peak_bytes - item.source_bytes - item.target_bytes


def _ordered(items: Sequence[LeafMove], scratch: dict[MoveSpec, int]) -> list[LeafMove]:
    """Leaves in the order of least peak, those of one spec next to one another."""
    number: dict[tuple[MoveSpec, bool], int] = {}
    for item in items:
        number.setdefault((item.spec, item.gives_up_source), len(number))
    return sorted(items, key=lambda item: (*order([item], scratch[item.spec]), number[item.spec, item.gives_up_source]))
