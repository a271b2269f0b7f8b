"""Layout versions of arrays while operations are bound, the moves between them, and the bytes that these receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from redistrib.lang.types import DistType
from redistrib.plans.dtypes import packed_bytes, packed_total
from redistrib.plans.plan import Plan
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Move, Place, Value, pulled
from redistrib.programs.lower.layouts import BuiltVersions
from redistrib.programs.lower.versions import distance, has_plan
from redistrib.programs.schedule.options import PartitionOptions
from redistrib.theory.bounds import least_received

ABSENT = -1  # the versions of an array that nothing has written or read yet


class Need(NamedTuple):
    """One operation's use of one array.

    Attributes:
        written: the array as the operation writes it; None if it only reads it.
        reads: the layouts in which the operation reads it.
        last: whether no later operation uses it.
    """

    written: Value | None
    reads: tuple[Value, ...]
    last: bool


class After(NamedTuple):
    """The effect of an operation on an array: the number of its versions afterwards, and the numbers of the moves."""

    versions: int
    moves: tuple[int, ...]


class Arrays:
    """Sets of layout versions, moves between versions, and needs of operations, each with a number.

    Args:
        place: all devices.
        options: how arrays begin and end.
        ends: the outputs, each with its type, or None where any type will do.
        plan: plans the move of a value.
    """

    def __init__(
        self,
        place: Place,
        options: PartitionOptions,
        ends: Mapping[str, DistType | None],
        plan: Callable[[Value, Value], Plan | None],
    ) -> None:
        self.place, self.options, self.ends, self.plan = place, options, ends, plan
        self.bytes: list[int] = []  # that all devices receive in each move; a lower bound until it is planned
        self._moves: list[tuple[Value, Value]] = []
        self._number_of_move: dict[tuple[Value, Value], int] = {}
        self._versions: list[tuple[Value, ...]] = []
        self._number_of_versions: dict[tuple[Value, ...], int] = {}
        self._needs: list[Need] = []
        self._number_of_need: dict[Need, int] = {}
        self._after: dict[tuple[int, int], After | None] = {}

    def need(self, need: Need) -> int:
        """The number of a need."""
        return _numbered(need, self._needs, self._number_of_need)

    def latest(self, versions: int) -> tuple[Place, DistType]:
        """Where the latest of the versions of an array is, and its type."""
        value = self._versions[versions][-1]
        return value.place, value.type

    def distance(self, versions: int, need: int) -> int:
        """Lower bound on the elements that devices receive so that an operation can read an array."""
        total = 0
        for target in self._needs[need].reads:
            if versions == ABSENT:
                start = self.options.start(target, self.place)
                total += 0 if start is target else distance(start, target)
            else:
                total += min(distance(value, target) for value in self._versions[versions])
        return total

    def after(self, versions: int, need: int) -> After | None:
        """The effect of a need on a set of versions; None where the need cannot be met."""
        key = versions, need
        if key not in self._after:
            self._after[key] = self._meet(versions, self._needs[need])
        return self._after[key]

    def _meet(self, versions: int, need: Need) -> After | None:
        if need.written is not None:
            values = [need.written]
        elif versions == ABSENT:
            values = [self.options.start(need.reads[0], self.place)]
        else:
            values = [*self._versions[versions]]
        first, layouts = values[0], [*need.reads]
        if first.windows and not all(map(first.means, layouts)):
            return None
        if need.last and first.name in self.ends:
            layouts.append(self.options.end(first, self.ends[first.name], self.place))
        trial = BuiltVersions(Builder(reserved=[value.name for value in values]))
        trial.versions[first.name] = values
        for layout in layouts:
            trial.needed(first.name, layout)
        by_name = {value.name: value for value in trial.versions[first.name]}
        moves = [self._move(by_name[op.value], op.out) for op in trial.builder.ops if isinstance(op, Move)]
        return After(_numbered(tuple(by_name.values()), self._versions, self._number_of_versions), tuple(moves))

    def _move(self, value: Value, out: Value) -> int:
        number = _numbered((value, out), self._moves, self._number_of_move)
        if number == len(self.bytes):
            self.bytes.append(
                packed_bytes(least_received(value.placement, out.placement), out.dtype)
                if has_plan(value, out)
                else packed_total(pulled(value, out).values(), out.dtype)
            )
        return number

    def planned(self, move: int) -> int:
        """Bytes that all devices receive in a move, by its plan, which also replaces the bound in `bytes`."""
        value, out = self._moves[move]
        plan = self.plan(value, out)
        if plan is not None:
            self.bytes[move] = packed_total(plan.received, plan.dtype)
        return self.bytes[move]


def _numbered(item: Any, items: list[Any], numbers: dict[Any, int]) -> int:
    number = numbers.setdefault(item, len(items))
    if number == len(items):
        items.append(item)
    return number
