"""Mesh axes for the grids of a program, chosen for all its operations together, so that fewest bytes are received.

The moves of an array depend on the operations that write and read it and on no others. So a sweep over the operations
in order is a dynamic program: its state is the layout versions of the arrays that are read later, its price the bytes
received. Without a limit on the number of states it finds the best choice.

A move is priced by its lower bound until its plan is synthesized. If the plans of the best choice cost no more than the
bounds, the choice is optimal; otherwise the prices of these plans replace the bounds, and the sweep is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from redistrib.errors import CutError
from redistrib.lang.types import DistType
from redistrib.programs.ir.cuts import mesh_of
from redistrib.programs.ir.program import Place, Value
from redistrib.programs.lower.arrays import ABSENT, Arrays, Need
from redistrib.programs.schedule.grids import BoundKernel, GriddedKernel, bind_axes, bindings

MOST_CHOICES = 4096  # choices for a whole program up to which the best is found
_NEAREST = 128  # ways to bind one operation, of which the one with the shortest moves is taken
# larger programs:
_EACH = 24  # ways to bind one operation that a sweep tries
_TRIED = 1000  # ways to go on from a choice that a sweep tries, all operations together
_SWEEPS = 2


@dataclass(frozen=True)
class BindingProblem:
    """Kernels to bind.

    Attributes:
        kernels: in order.
        outs: for every kernel the arrays that it writes and that are read later, or are outputs.
        stands_for: the array, for each second name that a kernel reads an array under.
        arrays: the layout versions, and the moves between them.
    """

    kernels: Sequence[GriddedKernel]
    outs: Sequence[Sequence[str]]
    stands_for: Mapping[str, str]
    arrays: Arrays


def bind(problem: BindingProblem) -> list[BoundKernel]:
    """Axes for every kernel.

    Where a program has at most `MOST_CHOICES` choices of axes, those with which it receives fewest bytes; of equal ones
    those chosen one by one, or else the first. In larger programs no more bytes than with those chosen one by one.

    Raises:
        CutError: if no mesh makes the grids of a kernel.
        InconsistentGroupError: if no choice of axes makes the nests of a kernel agree.
    """
    search = _Search(problem)
    places = [_place_of(kernel, problem.arrays.place) for kernel in problem.kernels]
    best, layouts = search.one_by_one(places)
    choices = _choices(problem.kernels, places)
    least = search.planned(best) if choices > 1 else 0
    if least == 0:
        return [way.bound for way in best]
    small = choices <= MOST_CHOICES
    ways = [
        search.ways(k, bind_axes(kernel, place, types, None if small else _EACH))
        for k, (kernel, place, types) in enumerate(zip(problem.kernels, places, layouts, strict=True))
    ]
    width = MOST_CHOICES if small else max(1, _TRIED // sum(map(len, ways)))
    sweeps = 0
    while small or sweeps < _SWEEPS:
        result = search.sweep(ways, least, width)
        if result is None:
            break
        bound, path = result
        received = search.planned(path)
        if received < least:
            best, least = path, received
        if received == bound:
            break
        sweeps += 1
    return [way.bound for way in best]


def _place_of(kernel: GriddedKernel, place: Place) -> Place:
    """The place if its axes make the grids of a kernel; else another mesh, on as many devices as the grids take."""
    largest = max(kernel.grids, key=math.prod)
    for candidate in (place, Place(mesh_of(largest, kernel.ranks), place.devices[: kernel.ranks])):
        nests = zip(kernel.nests, kernel.grids, strict=True)
        if all(next(bindings(nest, grid, candidate.mesh), None) for nest, grid in nests):
            return candidate
    grids = ", ".join(map(str, kernel.grids))
    raise CutError(kernel.name, "", "Schedule", f"no one mesh makes the grids {grids} of its nests")


def _choices(kernels: Sequence[GriddedKernel], places: Sequence[Place]) -> int:
    """The number of ways to bind all nests, with and without agreement; counted up to about `MOST_CHOICES`."""
    count = 1
    for kernel, place in zip(kernels, places, strict=True):
        for nest, grid in zip(kernel.nests, kernel.grids, strict=True):
            if count <= MOST_CHOICES:
                count *= sum(1 for _ in islice(bindings(nest, grid, place.mesh), MOST_CHOICES + 1))
    return count


class _Way(NamedTuple):
    """A kernel whose axes are bound, and for each array that it touches the number of its need."""

    bound: BoundKernel
    needs: tuple[int, ...]


class _Path(NamedTuple):
    """A way to bind a kernel, and the path of the kernels before it."""

    way: _Way
    before: _Path | None


class _Search:
    """The kernels of a problem, and which arrays they touch."""

    def __init__(self, problem: BindingProblem) -> None:
        self.problem, self.arrays = problem, problem.arrays
        self.touched = [self._touched(k) for k in range(len(problem.kernels))]
        self.last = {array: k for k, names in enumerate(self.touched) for array in names}
        self.live: list[list[str]] = [[]]  # arrays that a later kernel touches, before each kernel and at the end
        for k, names in enumerate(self.touched):
            seen = dict.fromkeys((*self.live[-1], *names))
            self.live.append([array for array in seen if self.last[array] > k])

    def _touched(self, k: int) -> list[str]:
        stands_for, nests = self.problem.stands_for, self.problem.kernels[k].nests
        inside = {access.array for nest in nests for access in nest.writes}
        read = [access.array for nest in nests for access in nest.reads if access.array not in inside]
        return list(dict.fromkeys((*(stands_for.get(formal, formal) for formal in read), *self.problem.outs[k])))

    # ------------------------------------------------------------------------------------- one kernel

    def ways(self, k: int, bounds: Iterable[BoundKernel]) -> list[_Way]:
        """Ways to bind a kernel, one for each set of needs."""
        ways: dict[tuple[int, ...], _Way] = {}
        for bound in bounds:
            way = self._way(k, bound)
            ways.setdefault(way.needs, way)
        return list(ways.values())

    def _way(self, k: int, bound: BoundKernel) -> _Way:
        group, value_of = bound.group, self.arrays.options.value
        read_values: dict[str, tuple[Value, ...]] = {}
        for formal, form in group.reads.items():
            array = self.problem.stands_for.get(formal, formal)
            value = value_of(array, form, bound.place, group.windows[formal])
            read_values[array] = (*read_values.get(array, ()), value)
        written_values = {array: value_of(array, group.writes[array], bound.place) for array in self.problem.outs[k]}
        needs = (
            Need(written_values.get(array), read_values.get(array, ()), self.last[array] == k)
            for array in self.touched[k]
        )
        return _Way(bound, tuple(map(self.arrays.need, needs)))

    # ------------------------------------------------------------------------------------- all kernels

    def one_by_one(self, places: Sequence[Place]) -> tuple[list[_Way], list[dict[str, DistType]]]:
        """Bind the kernels in order, each in the first way whose layouts are nearest to those of the arrays by then.

        Returns:
            The ways, and before each kernel the types of the arrays on the common mesh.
        """
        common = self.arrays.place
        current: dict[str, int] = {}
        chosen, layouts = [], []
        for k, (kernel, place) in enumerate(zip(self.problem.kernels, places, strict=True)):
            latest = {array: self.arrays.latest(versions) for array, versions in current.items()}
            types = {array: form for array, (at, form) in latest.items() if at == place == common}
            before = [current.get(array, ABSENT) for array in self.touched[k]]
            nearest: tuple[int, _Way] | None = None
            for bound in bind_axes(kernel, place, types, _NEAREST):
                way = self._way(k, bound)
                distance = sum(map(self.arrays.distance, before, way.needs)) if place == common else 0
                if nearest is None or distance < nearest[0]:
                    nearest = distance, way
                if distance == 0:
                    break
            assert nearest is not None  # the axes of the place make the grids
            chosen.append(nearest[1])
            layouts.append(types)
            for array, versions, need in zip(self.touched[k], before, nearest[1].needs, strict=True):
                after = self.arrays.after(versions, need)
                if after is not None:
                    current[array] = after.versions
        return chosen, layouts

    def planned(self, ways: Sequence[_Way]) -> float:
        """Bytes that all moves of a program receive, by their plans; infinite if a move is impossible."""
        current: dict[str, int] = {}
        total = 0
        for k, way in enumerate(ways):
            for array, need in zip(self.touched[k], way.needs, strict=True):
                after = self.arrays.after(current.get(array, ABSENT), need)
                if after is None:
                    return math.inf
                current[array] = after.versions
                total += sum(map(self.arrays.planned, after.moves))
        return total

    def sweep(self, ways: Sequence[Sequence[_Way]], limit: float, width: int) -> tuple[int, list[_Way]] | None:
        """The cheapest choice of one way for each kernel, the first of equal ones; None if none is below a limit.

        Choices that leave equal versions of the arrays that are read later are equal for the rest of the program: the
        cheapest of them goes on. At most `width` choices go on. `bytes` prices the moves.
        """
        frontier: dict[tuple[int, ...], tuple[int, _Path | None]] = {(): (0, None)}
        for k, choices in enumerate(ways):
            reached: dict[tuple[int, ...], tuple[int, _Path | None]] = {}
            slots = [self.live[k].index(array) if array in self.live[k] else None for array in self.touched[k]]
            everything = [*self.live[k], *self.touched[k]]
            kept_slots = [len(everything) - 1 - everything[::-1].index(array) for array in self.live[k + 1]]
            for live, (cost, path) in frontier.items():
                before = [ABSENT if slot is None else live[slot] for slot in slots]
                for way in choices:
                    total, versions = self._total(cost, limit, before, way.needs)
                    if versions is None:
                        continue
                    states = live + versions
                    key = tuple([states[slot] for slot in kept_slots])
                    if key not in reached or total < reached[key][0]:
                        reached[key] = total, _Path(way, path)
            cheapest = sorted(reached.items(), key=lambda item: item[1][0])  # stable: equal ones stay in order
            frontier = dict(cheapest[:width])
        if not frontier:
            return None
        ((total, last),) = frontier.values()
        chosen = []
        while last is not None:
            chosen.append(last.way)
            last = last.before
        return total, chosen[::-1]

    def _total(
        self, total: int, limit: float, before: Sequence[int], needs: Sequence[int]
    ) -> tuple[int, tuple[int, ...] | None]:
        """Bytes received with the needs of one more kernel, and the versions after it; None beyond a limit."""
        versions = []
        for number, need in zip(before, needs, strict=True):
            after = self.arrays.after(number, need)
            if after is None:
                return total, None
            for move in after.moves:
                total += self.arrays.bytes[move]
            if total >= limit:
                return total, None
            versions.append(after.versions)
        return total, tuple(versions)
