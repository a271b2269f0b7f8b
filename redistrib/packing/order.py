"""In what order leaves travel, how many together, and how many bytes per device are alive at the worst moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from redistrib.errors import MemoryLimitError
from redistrib.plans.plan import Plan

MOST_TOGETHER = 128
TOGETHER_BYTES = 32 * 2**20  # bytes of source and target tiles that travel in one launch, unless one leaf has more


class Kind(Protocol):
    """What leaves that share a plan and an executable have in common, equal for those that do."""

    @property
    def source_bytes(self) -> int: ...

    @property
    def target_bytes(self) -> int: ...

    @property
    def plan(self) -> Plan: ...


@dataclass(frozen=True)
class Item:
    """A leaf to be moved.

    Attributes:
        index: its place among the leaves.
        path: its path in the tree.
        kind: leaves of one kind share a plan and an executable.
        devices: ids of its devices.
        donated: whether its source is given up once it has travelled.
    """

    index: int
    path: str
    kind: Kind
    devices: tuple[int, ...]
    donated: bool = False

    @property
    def source_bytes(self) -> int:
        """Bytes of the source tile."""
        return self.kind.source_bytes

    @property
    def target_bytes(self) -> int:
        """Bytes of the target tile."""
        return self.kind.target_bytes

    @property
    def plan(self) -> Plan:
        """The plan without a memory limit, made when it is first asked for."""
        return self.kind.plan


class Load(Protocol):
    """What leaves of one kind go through."""

    @property
    def plan(self) -> Plan: ...

    @property
    def stacked(self) -> bool: ...


class Program(Protocol):
    """What carries out a batch."""

    @property
    def loads(self) -> Sequence[Load]: ...

    @property
    def added_bytes(self) -> int: ...


Group: TypeAlias = tuple[Item, ...]  # leaves of one kind


@dataclass(frozen=True)
class Batch:
    """Leaves that travel in one launch.

    Attributes:
        groups: the leaves, those of one kind side by side.
        program: what moves them, with a load for each group.
        peak_bytes: bytes per device alive at the worst moment of the launch, all leaves of the tree counted.
    """

    groups: tuple[Group, ...]
    program: Program
    peak_bytes: int

    @property
    def items(self) -> Group:
        """The leaves, in the order in which the program takes them."""
        return tuple(item for group in self.groups for item in group)

    @property
    def parts(self) -> list[tuple[Group, Load]]:
        """Every group with its load."""
        return list(zip(self.groups, self.program.loads, strict=True))


@dataclass
class Alive:
    """Bytes alive on each device, by id."""

    bytes: dict[int, int] = field(default_factory=dict)

    def add(self, devices: Sequence[int], count: int) -> None:
        """Account for bytes that come or, if negative, go on each device."""
        for device in devices:
            self.bytes[device] = self.bytes.get(device, 0) + count

    def most(self, devices: Sequence[int] | None = None) -> int:
        """Bytes on the fullest of some devices, or of all."""
        chosen = self.bytes.values() if devices is None else [self.bytes.get(device, 0) for device in devices]
        return max(chosen, default=0)

    def copy(self) -> Alive:
        """An account of its own."""
        return Alive(dict(self.bytes))


def alike(items: Iterable[Item]) -> list[list[Item]]:
    """Leaves that may share an executable, in the order in which kinds first appear."""
    kinds: dict[tuple[Kind, bool], list[Item]] = {}
    for item in items:
        kinds.setdefault((item.kind, item.donated), []).append(item)
    return list(kinds.values())


def grouped(items: Sequence[Item]) -> list[Group]:
    """Leaves of one kind side by side, in groups as even as can be, in the order in which kinds first appear."""
    result = []
    for several in alike(items):
        each = max(1, several[0].source_bytes + several[0].target_bytes)
        size = _even(len(several), max(1, min(MOST_TOGETHER, TOGETHER_BYTES // each)))
        result += [tuple(several[k : k + size]) for k in range(0, len(several), size)]
    return result


def _even(count: int, most: int) -> int:
    """A group size of at most `most` that leaves no group of another size, if one above half of it does."""
    if count <= most:
        return count
    return next((size for size in range(most, most // 2, -1) if count % size == 0), most)


def accounted(launches: Iterable[tuple[tuple[Group, ...], Program]], alive: Alive) -> list[Batch]:
    """Batches in the order of least peak, with the bytes alive at their worst moment.

    Args:
        launches: groups that travel together, and what moves them.
        alive: bytes per device of all leaves that are there.
    """
    result = []
    for groups, program in sorted(launches, key=lambda launch: order([item for group in launch[0] for item in group])):
        result.append(Batch(groups, program, alive.most(groups[0][0].devices) + program.added_bytes))
        for group in groups:
            _settle(group, alive)
    return result


def _settle(group: Sequence[Item], alive: Alive) -> None:
    for item in group:
        alive.add(item.devices, item.target_bytes - (item.source_bytes if item.donated else 0))


def order(items: Sequence[Item], scratch: int | None = None) -> tuple[int, int]:
    """The order of least peak for independent jobs: first what frees memory, the least demanding first; then what takes
    memory, the one that leaves most to spare afterwards first. A job is of leaves that travel together."""
    needs = sum(item.target_bytes for item in items)
    net = needs - sum(item.source_bytes for item in items if item.donated)
    needs += sum(map(_scratch, items)) if scratch is None else scratch
    return (0, needs) if net <= 0 else (1, net - needs)


def limited(
    items: Sequence[Item],
    alive: Alive,
    memory_limit: int,
    together: Callable[[Group], Program],
    within: Callable[[Item, int], Program],
    least: Callable[[Item], int],
) -> list[Batch]:
    """Batches that keep every device within `memory_limit` bytes.

    Args:
        items: the leaves to move.
        alive: bytes per device of all leaves that are there.
        memory_limit: bytes per device for all leaves, before and after, and scratch.
        together: the program of a group, whatever it takes.
        within: the fastest program of one leaf that adds at most so many bytes; raises `MemoryLimitError`.
        least: the least bytes that any program of a leaf adds.

    Raises:
        MemoryLimitError: if no order and no program keeps within the limit; with the least limit that one keeps.
    """
    attempt = _Attempt(memory_limit, together, within)
    try:
        return attempt.batches(_ordered(items, {item.kind: _scratch(item) for item in items}), alive.copy())
    except MemoryLimitError:
        pass
    frugal = {item.kind: least(item) for item in items}
    queue = _ordered(items, {item.kind: frugal[item.kind] - item.target_bytes for item in items})
    needed = _least_limit(queue, alive.copy(), frugal)
    if needed > memory_limit:
        raise MemoryLimitError(memory_limit, needed)
    return attempt.batches(queue, alive.copy())


@dataclass(frozen=True)
class _Attempt:
    """One way through the leaves, in a given order."""

    memory_limit: int
    together: Callable[[Group], Program]
    within: Callable[[Item, int], Program]

    def batches(self, queue: list[Item], alive: Alive) -> list[Batch]:
        result: list[Batch] = []
        if alive.most() > self.memory_limit:
            raise MemoryLimitError(self.memory_limit, alive.most())
        while queue:
            first = queue[0]
            room = self.memory_limit - alive.most(first.devices)
            group = grouped([item for item in queue if (item.kind, item.donated) == (first.kind, first.donated)])[0]
            made = None
            if len(group) > 1 and len(group) * first.target_bytes <= room:
                made = self.together(group)
            if made is None or made.added_bytes > room:
                group, made = (first,), self.within(first, room)
            result.append(Batch((group,), made, alive.most(first.devices) + made.added_bytes))
            _settle(group, alive)
            taken = {item.index for item in group}
            queue = [item for item in queue if item.index not in taken]
        return result


def _scratch(item: Item) -> int:
    return item.plan.peak_bytes - item.source_bytes - item.target_bytes


def _ordered(items: Sequence[Item], scratch: dict[Kind, int]) -> list[Item]:
    """Leaves in the order of least peak, those of one kind next to one another."""
    number: dict[tuple[Kind, bool], int] = {}
    for item in items:
        number.setdefault((item.kind, item.donated), len(number))
    return sorted(items, key=lambda item: (*order([item], scratch[item.kind]), number[item.kind, item.donated]))


def _least_limit(queue: Sequence[Item], alive: Alive, added: dict[Kind, int]) -> int:
    """The least bytes per device that moving the leaves one by one, each in its most frugal way, takes."""
    worst = alive.most()
    for item in queue:
        worst = max(worst, alive.most(item.devices) + added[item.kind])
        _settle((item,), alive)
    return worst
