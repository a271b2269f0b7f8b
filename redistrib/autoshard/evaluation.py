"""Time and memory of a schedule without a program: one walk over the graph, in which moves have closed prices.

The rules are those of a simulated program. An operation takes the time of its roofline. An array that is needed in
another type is moved once for all its readers in that type, from its maker. It is live until its last reader.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from redistrib.autoshard.candidates import Option
from redistrib.autoshard.moves import Objective, Price
from redistrib.autoshard.overlap import clamped, variants
from redistrib.autoshard.problem import Decisions, SearchProblem
from redistrib.autoshard.walk_tasks import Overlap, WalkTask, leaving
from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.partitioning.halos import Shared, shared_halos
from redistrib.programs.windows import Held, held_shape


class Evaluation(NamedTuple):
    """Time and memory of a schedule.

    Attributes:
        seconds: of a call.
        received: bytes that all devices together receive.
        memory: bytes that a device holds at the worst moment.
        moment: the operation that runs then, by number.
        moving: the seconds in which values are moved, of all seconds.
        computing: those in which operations are computed.
        overlap: how far the two run beside each other; None where nothing does.
    """

    seconds: float
    received: int
    memory: int
    moment: int
    moving: float = 0.0
    computing: float = 0.0
    overlap: Overlap | None = None

    def price(self, objective: Objective) -> float:
        """Seconds, or bytes that all devices receive."""
        return self.seconds if objective == "seconds" else float(self.received)


@dataclass
class _Version:
    """An array in one type.

    Attributes:
        form: the type.
        born: number of the operation that makes it, or for which it is moved; -1 for an input.
        used: of the last until which a reader keeps it.
        tested: whether it was moved for the condition of a loop, so that no step has it.
        windows: the halos beside its tiles.
        works: of the walk, that make it.
        entries: of the entry of an array: its name, bytes and element type of the array's tile; None for all else.
    """

    form: DistType
    born: int
    used: int
    tested: bool = False
    windows: tuple[Held, ...] = ()
    works: tuple[int, ...] = ()
    entries: tuple[str, int, str] | None = None

    @property
    def size(self) -> int:
        """Elements that a device holds."""
        return math.prod(held_shape(self.form.local_shape, self.windows)) if self.windows else self.form.local_size


def evaluated(
    problem: SearchProblem,
    decisions: Decisions,
    sources: Mapping[tuple[str, DistType], DistType] = {},
    keep: int | None = None,
    most: int | None = None,
) -> Evaluation:
    """Time and memory of a schedule; infinite seconds where a value cannot be moved.

    Where moves run beside computations, as far as that fits and is fastest.

    Args:
        problem: the search problem.
        decisions: how everything is cut.
        sources: for values and needed types, the type to move from, where that is not the type they were made in.
        keep: for how many operations a value that was moved is kept; None: to the end.
        most: bytes that a device may hold; None for no limit.
    """
    return _Walk(problem, decisions, sources, keep, most).result()


@dataclass
class _Walk:
    problem: SearchProblem
    decisions: Decisions
    sources: Mapping[tuple[str, DistType], DistType]
    keep: int | None
    most: int | None = None
    works: list[WalkTask] = field(default_factory=list)
    sources_of: dict[int, tuple[str, _Version]] = field(default_factory=dict)
    versions: dict[str, list[_Version]] = field(default_factory=dict)
    seconds: float = 0.0
    moving: float = 0.0
    received: int = 0
    moves: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))  # bytes made, scratch

    @cached_property
    def halos(self) -> Shared:
        """The halos that operations share."""
        return shared_halos(self.decisions.propagation)

    def result(self) -> Evaluation:
        problem, propagation, graph = self.problem, self.decisions.propagation, self.problem.graph
        for array in graph.inputs:
            form = problem.starts.get(array.name, propagation.type_of(array.shape, self.decisions.ins[array.name]))
            self.versions[array.name] = [_Version(form, -1, -1)]
        ends: dict[str, list[DistType]] = defaultdict(list)
        for number, name in enumerate(graph.outputs):
            at = self.decisions.outs[number]
            ends[name].append(problem.ends.get(number) or propagation.type_of(propagation.arrays[name].shape, at))
        for k, operation in enumerate(graph.operations):
            try:
                option = problem.decided(propagation, k)
            except ProgramError:
                return Evaluation(float("inf"), 0, 0, k)
            read = self.reads(k, option)
            self.seconds += problem.times[k] * option.seconds
            makes = self.computes(k, option, read)
            if (kernel := problem.kernel(k)) is not None and kernel.runs:
                for name, *_ in kernel.reads:
                    self.versions[name][0].used = max(self.versions[name][0].used, k)
            for array, form in zip(operation.outs, option.outs, strict=True):
                born = graph.made_at(array.name)
                self.versions[array.name] = [_Version(form, born, born, works=makes)]
                if operation.role == "entry" and read:
                    source = propagation.arrays[operation.ins[0]]
                    size = problem.machine.bytes_of(read[0].form.local_size, source.dtype)
                    self.versions[array.name][0].entries = (array.name, size, source.dtype)
                for end in ends.pop(array.name, ()):
                    self.read(array.name, end, k, len(graph.operations))
            for number in graph.closing.get(k, ()):
                carry = graph.operations[number]
                handed_on = self.read(carry.ins[1], self.versions[carry.outs[0].name][0].form, k, k)
                self._keep_in_step(handed_on.works, graph.scopes[number])
        for name, forms in ends.items():
            for end in forms:
                self.read(name, end, len(graph.operations), len(graph.operations))
        memory, moment = self._peak()
        computing = self.seconds - self.moving
        total = Evaluation(self.seconds, self.received, memory, moment, self.moving, computing)
        if not problem.overlap or not math.isfinite(self.seconds):
            return total
        best, works = total, self._freed()
        for is_short in (False, True):
            for beside in variants(problem, works, is_short):
                memory, moment = self._peak(beside.held)
                seconds = clamped(beside.seconds, computing, self.moving)
                fits = self.most is None or memory <= self.most
                if fits and seconds < best.seconds:
                    best = total._replace(seconds=seconds, memory=memory, moment=moment, overlap=beside.overlap)
            if best is not total or self.most is None:
                break
        return best

    def computes(self, number: int, option: Option, read: list[_Version]) -> tuple[int, ...]:
        """The works that make the results of an operation, of which one is new where it is computed by itself."""
        if not self.problem.overlap:
            return ()
        graph, before = self.problem.graph, tuple(dict.fromkeys(k for version in read for k in version.works))
        scope = graph.scopes[number]
        match graph.operations[number].role:
            case "carry" | "entry":  # there in each step, once the loop has begun
                self.works.append(WalkTask(number, 1, scope, 0.0, before))
                return ()
            case "stack" if scope is not None:
                return (leaving(scope), *before)
            case "leave" if scope is not None:
                return (leaving(scope),)
        self._keep_in_step(before, scope)
        if not option.seconds:
            return before
        self.works.append(WalkTask(number, 1, scope, option.seconds, before))
        return (len(self.works) - 1,)

    def reads(self, number: int, option: Option) -> list[_Version]:
        """The operands of an operation, moved if they must be. Results of a loop have its carried types."""
        graph, operation = self.problem.graph, self.problem.graph.operations[number]
        if operation.role == "leave":
            return []
        reads = 1 if operation.role == "carry" else len(operation.ins)
        operands: list[_Version] = []
        for read, (name, form) in enumerate(zip(operation.ins[:reads], option.ins, strict=False)):
            begins, until = graph.begins_at(name, number), graph.held_until(number, read)
            if option.windows and option.windows[read]:
                operands.append(self.halo(name, form, option.windows[read], begins, until, number))
            else:
                operands.append(self.read(name, form, begins, until, number))
        return operands

    def read(self, name: str, form: DistType, at: int, until: int, reader: int = -1) -> _Version:
        """The array in a type, moved there where no version of it is.

        Args:
            name: of the array.
            form: the type.
            at: number of the operation before which it is moved.
            until: of the one until which it is kept.
            reader: of the one that reads it; -1 for one that stands in no condition of a loop.
        """
        versions = self.versions[name]
        tested = reader >= 0 and self.problem.graph.tests_with(name, reader)
        for version in versions:
            is_kept = self.keep is None or at - version.used <= self.keep
            if (
                version.form == form
                and not version.windows
                and (version is versions[0] or (is_kept and version.tested == tested))
            ):
                version.used = max(version.used, until)
                return version
        source_form = self.sources.get((name, form))
        source = (
            versions[0] if source_form is None or source_form == form else self.read(name, source_form, at, at, reader)
        )
        price = self.problem.moves.price(source.form, form, self.decisions.propagation.arrays[name].dtype)
        source.used = max(source.used, at)
        if price is None:
            self.seconds = float("inf")
            return source
        self._pay(price, self.problem.moves_of(name, (reader if reader >= 0 else at,)))
        moved = _Version(form, at, until, tested)
        dtype = self.decisions.propagation.arrays[name].dtype
        overlaps = self.problem.overlap  # then its moment is another one
        scratch = price.scratch if overlaps else self.problem.moves.scratch(source.form, form, dtype)
        self.moves[at].append((self.problem.machine.bytes_of(moved.size, dtype), scratch))
        self._work(name, source, moved, price, at, reader)
        versions.append(moved)
        return moved

    def halo(self, name: str, form: DistType, windows: tuple[Held, ...], at: int, until: int, reader: int) -> _Version:
        """The array in a type with halos, which are received where no version of it has them; see `read`."""
        for version in self.versions[name]:
            is_kept = self.keep is None or at - version.used <= self.keep
            if (version.form, version.windows) == (form, windows) and is_kept:
                version.used = max(version.used, until)
                return version
        shared = self.halos.get((name, form), windows)
        if shared != windows:  # they are cut out of those that operations share
            source, price = self.halo(name, form, shared, at, at, reader), Price(0.0, True, 0)
        else:
            source = self.read(name, form, at, at, reader)
            price = self.problem.moves.halo(form, windows, self.decisions.propagation.arrays[name].dtype)
        self._pay(price, self.problem.moves_of(name, (reader,)))
        moved = _Version(form, at, until, source.tested, windows)
        self._work(name, source, moved, price, at, reader)
        self.versions[name].append(moved)
        return moved

    def _bytes(self, name: str, elements: int) -> int:
        """Bytes of so many elements of a value."""
        return self.problem.machine.bytes_of(elements, self.decisions.propagation.arrays[name].dtype)

    def _pay(self, price: Price, times: int) -> None:
        seconds = times * (price.cost if self.problem.moves.objective == "seconds" else 0.0)
        self.seconds += seconds
        self.moving += seconds
        self.received += times * price.received

    def _work(self, name: str, source: _Version, moved: _Version, price: Price, at: int, reader: int) -> None:
        """Note a move as a work. Of an entry only the first move is made ahead."""
        if not self.problem.overlap:
            return
        if not price.cost:
            moved.works = source.works
            return
        size = self._bytes(name, moved.size) + price.scratch
        entry = source.entries if price.received and not moved.windows else None
        source.entries = None if entry else source.entries
        phase = 0 if reader >= 0 or at >= len(self.problem.graph.operations) else 2
        scope = self.problem.graph.scope_of(name)
        moved.works = (len(self.works),)
        self.sources_of[len(self.works)] = (name, source)
        result = None
        is_stacked = reader >= 0 and self.problem.graph.operations[reader].role == "stack" and source.works
        if is_stacked and price.received and source is self.versions[name][0] and not moved.windows:
            dtype = self.decisions.propagation.arrays[name].dtype
            result = name, self._bytes(name, source.size), self._bytes(name, moved.size), dtype
        self._keep_in_step(source.works, scope)
        self.works.append(WalkTask(at, phase, scope, price.cost, source.works, True, size, entry=entry, result=result))

    def _keep_in_step(self, works: tuple[int, ...], scope: int | None) -> None:
        """Note that a step reads results of works again, so that no later step may make them."""
        for k in works:
            if k >= 0 and self.works[k].result is not None and self.works[k].scope == scope:
                self.works[k] = self.works[k]._replace(result=None)

    def _freed(self) -> list[WalkTask]:
        """The works, and for each move the bytes of the operands whose last reader it is."""
        works = [*self.works]
        for k, (name, source) in self.sources_of.items():
            if source.born >= 0 and source.used <= works[k].number:
                size = self._bytes(name, source.size)
                works[k] = works[k]._replace(freed=size)
        return works

    def _peak(self, more: Sequence[tuple[int, int, int]] = ()) -> tuple[int, int]:
        """The most bytes that are live at once, and the operation that runs then.

        An array that one run of layers makes and another reads is live for all layers. A layer that stands for several
        counts twice: as the first of them, when all its operands are live, and as the last, when all its results are.
        """
        problem, count = self.problem, len(self.problem.graph.operations)
        first, last = (np.zeros(count + 2, dtype=object) for _ in range(2))

        def add(levels: Any, start: int, stop: int, size: int) -> None:
            if start <= stop:
                levels[max(0, start)] += size
                levels[stop + 1] -= size

        inputs, spans = {array.name for array in problem.graph.inputs}, self._spans()
        for name, versions in self.versions.items():
            if name in problem.unstored and len(versions) == 1:
                continue
            for number, version in enumerate(versions):
                stays = number == 0 and name in inputs and name not in problem.donated
                end, size = count if stays else min(version.used, count), self._bytes(name, version.size)
                times = self._copies(name, version, end)
                for levels in (first, last):
                    add(levels, version.born, end, times * size)
                added = (times - 1) * size
                if added and (span := spans.get(version.born)) is not None:
                    add(first, version.born, span[1], -added)
                    add(last, span[0], version.born - 1, added)
                if added and (read := spans.get(end)) is not None:
                    add(first, end + 1, read[1], added)
                    add(last, read[0], end, -added)
        for start, stop, size in more:
            for levels in (first, last):
                add(levels, start, min(stop, count), size)
        live = np.maximum(np.cumsum(first), np.cumsum(last))[: count + 1]
        for at, moves in self.moves.items():  # while a move runs, the results of later operations do not exist
            later, extra = self._made(at), 0
            for size, scratch in reversed(moves):
                extra = max(extra, scratch if problem.overlap else scratch - later)
                later += size
            live[at] += extra
        moment = int(np.argmax(live))
        return int(live[moment]), min(moment, max(0, count - 1))

    def _made(self, number: int) -> int:
        """Bytes of the results of an operation; none for the end of the program."""
        graph = self.problem.graph
        outs = graph.operations[number].outs if number < len(graph.operations) else ()
        results = [(array.name, self.versions[array.name][0]) for array in outs]
        return sum(self._bytes(name, first.size) for name, first in results if first.born == number)

    def _spans(self) -> dict[int, tuple[int, int]]:
        """For operations of layers that stand for several the first and the last operation of the layer."""
        folded = self.problem.folded
        if folded is None:
            return {}
        of_run: dict[int, list[int]] = defaultdict(list)
        for k, cell in enumerate(folded.cells):
            if cell is not None and folded.times[k] > 1:
                of_run[cell[0]].append(k)
        return {k: (numbers[0], numbers[-1]) for numbers in of_run.values() for k in numbers}

    def _copies(self, name: str, version: _Version, last: int) -> int:
        """For how many layers a version is held at once: those of arrays that outlive the layer that makes them."""
        folded = self.problem.folded
        if folded is None:
            return 1
        if version.born < 0:
            return folded.input_times[name]
        if version.born >= len(folded.cells):
            return 1
        cell = folded.cells[version.born]
        other = folded.cells[last] if last < len(folded.cells) else None
        is_inside = cell is not None and other is not None and cell[0] == other[0]
        return 1 if is_inside else folded.times[version.born]
