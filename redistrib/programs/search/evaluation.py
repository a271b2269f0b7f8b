"""Time and memory of a schedule without a program: one walk over the graph, in which moves have closed prices.

The rules are those of a simulated program. An operation takes the time of its roofline. An array that is needed in
another type is moved once for all its readers in that type, from its maker. It is live until its last reader.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.programs.ir.windows import Held
from redistrib.programs.lower.halos import Shared, shared_halos
from redistrib.programs.search.candidates import Option
from redistrib.programs.search.moves import Objective, Price
from redistrib.programs.search.overlap import apart, clamped, variants
from redistrib.programs.search.problem import Decisions, SearchProblem
from redistrib.programs.search.recording import Recorder, Version
from redistrib.programs.search.walk_tasks import Overlap


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
    return walked(problem, decisions, sources, keep).evaluation(most)


def walked(
    problem: SearchProblem,
    decisions: Decisions,
    sources: Mapping[tuple[str, DistType], DistType] = {},
    keep: int | None = None,
) -> Walk:
    """A schedule of which bytes are not counted yet, nor seconds where moves run beside computations.

    Args:
        problem, decisions, sources, keep: as in `evaluated`.
    """
    walk = Walk(problem, decisions, sources, keep)
    walk.run()
    return walk


@dataclass
class Walk:
    """A walk over the graph, which adds up the seconds of operations and moves.

    Attributes:
        problem, decisions, sources, keep: as in `evaluated`.
        versions: of every array, the first as it is made.
        seconds: of operations and moves, one after the other.
        moving: those of moves.
        received: bytes that all devices together receive.
        refused: the operation, by number, that cannot be cut as it is decided; None where all can.
    """

    problem: SearchProblem
    decisions: Decisions
    sources: Mapping[tuple[str, DistType], DistType]
    keep: int | None
    versions: dict[str, list[Version]] = field(default_factory=dict)
    seconds: float = 0.0
    moving: float = 0.0
    received: int = 0
    refused: int | None = None

    @cached_property
    def recorder(self) -> Recorder:
        """The record of works and buffers."""
        return Recorder(self.problem, self.decisions.propagation.arrays, self.versions)

    @cached_property
    def halos(self) -> Shared:
        """The halos that operations share."""
        return shared_halos(self.decisions.propagation)

    @property
    def least_price(self) -> float:
        """The price of the schedule is no less; without overlap it is this."""
        if self.problem.moves.objective == "bytes":
            return float(self.received) if self.refused is None else 0.0
        if not self.problem.overlap or not math.isfinite(self.seconds):
            return self.seconds
        return max(self.seconds - self.moving, self.moving)

    def run(self) -> None:
        """Walk over all operations."""
        problem, propagation, graph = self.problem, self.decisions.propagation, self.problem.graph
        for array in graph.inputs:
            form = problem.starts.get(array.name, propagation.type_of(array.shape, self.decisions.ins[array.name]))
            self.versions[array.name] = [Version(form, -1, -1)]
        ends: dict[str, list[DistType]] = defaultdict(list)
        for number, name in enumerate(graph.outputs):
            at = self.decisions.outs[number]
            ends[name].append(problem.ends.get(number) or propagation.type_of(propagation.arrays[name].shape, at))
        for k, operation in enumerate(graph.operations):
            try:
                option = problem.decided(propagation, k)
            except ProgramError:
                self.seconds, self.received, self.refused = math.inf, 0, k
                return
            read = self.reads(k, option)
            self.seconds += problem.times[k] * option.seconds
            makes, is_inside = self.recorder.computes(k, option.seconds, read), self.recorder.is_inside(k)
            if (kernel := problem.kernel(k)) is not None and kernel.runs:
                for name, *_ in kernel.reads:
                    self.versions[name][0].used = max(self.versions[name][0].used, k)
                    for work in makes:
                        self.versions[name][0].read_by(work)
            for array, form in zip(operation.outs, option.outs, strict=True):
                born = graph.made_at(array.name)
                within = read if is_inside and not operation.role else ()
                self.versions[array.name] = [Version(form, born, born, works=makes, within=within)]
                if operation.role == "entry" and read:
                    source = propagation.arrays[operation.ins[0]]
                    size = problem.machine.bytes_of(read[0].form.local_size, source.dtype)
                    self.versions[array.name][0].entries = (array.name, size, source.dtype)
                for end in ends.pop(array.name, ()):
                    self.read(array.name, end, k, len(graph.operations)).kept()
            for number in graph.closing.get(k, ()):
                carry = graph.operations[number]
                handed_on = self.read(carry.ins[1], self.versions[carry.outs[0].name][0].form, k, k)
                handed_on.kept()
                self.recorder.keep_in_step(handed_on.works, graph.scopes[number])
        for name, forms in ends.items():
            for end in forms:
                self.read(name, end, len(graph.operations), len(graph.operations)).kept()

    def evaluation(self, most: int | None = None) -> Evaluation:
        """Time and memory, see `evaluated`."""
        problem = self.problem
        if self.refused is not None:
            return Evaluation(self.seconds, self.received, 0, self.refused)
        works, buffers = self.recorder.freed(), self.recorder.buffers()
        computing = self.seconds - self.moving
        best = Evaluation(self.seconds, self.received, 0, 0, self.moving, computing)
        for is_short in (False, True) if problem.overlap and math.isfinite(self.seconds) else ():
            for beside in variants(problem, works, buffers, is_short):
                seconds = clamped(beside.seconds, computing, self.moving)
                if seconds >= best.seconds:
                    continue
                memory, moment = beside.peak()
                if most is None or memory <= most:
                    best = best._replace(seconds=seconds, memory=memory, moment=moment, overlap=beside.overlap)
            if best.overlap is not None or most is None:
                break
        if best.overlap is None:
            memory, moment = apart(problem, works, buffers)
            best = best._replace(memory=memory, moment=moment)
        return best

    def reads(self, number: int, option: Option) -> list[Version]:
        """The operands of an operation, moved if they must be. Results of a loop have its carried types."""
        graph, operation = self.problem.graph, self.problem.graph.operations[number]
        if operation.role == "leave":
            return []
        reads = 1 if operation.role == "carry" else len(operation.ins)
        operands: list[Version] = []
        for read, (name, form) in enumerate(zip(operation.ins[:reads], option.ins, strict=False)):
            begins, until = graph.begins_at(name, number), graph.held_until(number, read)
            if option.windows and option.windows[read]:
                operands.append(self.halo(name, form, option.windows[read], begins, until, number))
            else:
                operands.append(self.read(name, form, begins, until, number))
        return operands

    def read(self, name: str, form: DistType, at: int, until: int, reader: int = -1) -> Version:
        """The array in a type, moved there where no version of it is.

        Args:
            name: of the array.
            form: the type.
            at: number of the operation before which it is moved.
            until: of the one until which it is kept.
            reader: of the one that reads it; -1 for one that stands in no condition of a loop.
        """
        versions = self.versions[name]
        first = versions[0]
        if first.form == form and not first.windows:
            if first.used < until:
                first.used = until
            return first
        tested = reader >= 0 and self.problem.graph.tests_with(name, reader)
        for version in versions[1:]:
            is_kept = self.keep is None or at - version.used <= self.keep
            if version.form == form and not version.windows and is_kept and version.tested == tested:
                version.used = max(version.used, until)
                return version
        source_form = self.sources.get((name, form))
        source = first if source_form is None or source_form == form else self.read(name, source_form, at, at, reader)
        price = self.problem.moves.price(source.form, form, self.decisions.propagation.arrays[name].dtype)
        source.used = max(source.used, at)
        if price is None:
            self.seconds = float("inf")
            return source
        self._pay(price, self.problem.moves_of(name, (reader if reader >= 0 else at,)))
        moved = Version(form, at, until, tested)
        dtype = self.decisions.propagation.arrays[name].dtype
        scratch = self.problem.moves.scratch(source.form, form, dtype)
        self.recorder.move(name, source, moved, price._replace(scratch=scratch), at, reader)
        versions.append(moved)
        return moved

    def halo(self, name: str, form: DistType, windows: tuple[Held, ...], at: int, until: int, reader: int) -> Version:
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
        moved = Version(form, at, until, source.tested, windows)
        self.recorder.move(name, source, moved, price, at, reader)
        self.versions[name].append(moved)
        return moved

    def _pay(self, price: Price, times: int) -> None:
        seconds = times * (price.cost if self.problem.moves.objective == "seconds" else 0.0)
        self.seconds += seconds
        self.moving += seconds
        self.received += times * price.received
