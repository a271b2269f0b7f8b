"""Time and memory of a schedule without a program: one walk over the graph, in which moves have closed prices.

The rules are those of a simulated program. An operation takes the time of its roofline. An array that is needed in
another type is moved once for all its readers in that type, from its maker. It is live until its last reader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.programs.ir.graph import Array
from redistrib.programs.ir.windows import Held
from redistrib.programs.lower.versions import ReadAt
from redistrib.programs.lower.walk import Lowering
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.candidates import Option
from redistrib.programs.search.moves import Objective, Price
from redistrib.programs.search.overlap import apart, clamped, variants
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.recording import PricedVersion, Recorder
from redistrib.programs.search.works import leaving


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


def evaluated(problem: SearchProblem, decisions: Propagation, most: int | None = None) -> Evaluation:
    """Time and memory of a schedule; infinite seconds where a value cannot be moved.

    Where moves run beside computations, as far as that fits and is fastest.

    Args:
        problem: the search problem.
        decisions: how everything is cut.
        most: bytes that a device may hold; None for no limit.
    """
    return walked(problem, decisions).evaluation(most)


def held_at_most(problem: SearchProblem, decisions: Propagation) -> float:
    """Bytes of a device above which no program of a schedule goes, however its moves are planned, where none run beside
    operations; infinite where that is not known."""
    walk = walked(replace(problem, overlap=False), decisions, at_most=True)
    return walk.evaluation().memory if math.isfinite(walk.seconds) else math.inf


def walked(problem: SearchProblem, decisions: Propagation, at_most: bool = False) -> Walk:
    """A schedule of which bytes are not counted yet, nor seconds where moves run beside computations."""
    walk = Walk(decisions, problem, at_most)
    walk.run()
    return walk


@dataclass
class Walk(Lowering[PricedVersion, Option]):
    """A walk over the graph, which adds up the seconds of operations and moves.

    Attributes:
        problem: as in `evaluated`.
        at_most: whether moves need as many bytes as any plan of them.
        seconds: of operations and moves, one after the other.
        moving: those of moves.
        received: bytes that all devices together receive.
        refused: the operation, by number, that cannot be cut as it is decided; None where all can.
    """

    problem: SearchProblem
    at_most: bool = False
    seconds: float = 0.0
    moving: float = 0.0
    received: int = 0
    refused: int | None = None

    @cached_property
    def recorder(self) -> Recorder:
        """The record of works and buffers."""
        return Recorder(self.problem, self.propagation.arrays, self.versions)

    @property
    def least_price(self) -> float:
        """The price of the schedule is no less; without overlap it is this."""
        if self.problem.moves.objective == "bytes":
            return float(self.received) if self.refused is None else 0.0
        if not self.problem.overlap or not math.isfinite(self.seconds):
            return self.seconds
        return max(self.seconds - self.moving, self.moving)

    def run(self) -> None:
        """Walk over all operations, up to one that cannot be cut as it is decided."""
        try:
            super().run()
        except ProgramError:
            self.seconds, self.received, self.refused = math.inf, 0, self.number

    def evaluation(self, most: int | None = None) -> Evaluation:
        """Time and memory, see `evaluated`."""
        problem = self.problem
        if self.refused is not None:
            return Evaluation(self.seconds, self.received, 0, self.refused)
        works, buffers = self.recorder.finished(), self.recorder.buffers()
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

    def cut(self, number: int) -> Option:
        return self.problem.facts.decided(self.propagation, number)

    def begin(self, array: Array) -> PricedVersion:
        return PricedVersion(self.problem.moves.shared(self.propagation.start_type(array.name)), -1, -1)

    def compute(self, number: int, cut: Option, read: Sequence[PricedVersion]) -> list[PricedVersion]:
        graph, operation = self.graph, self.graph.operations[number]
        self.seconds += self.problem.facts.times[number] * cut.seconds
        makes, is_inside = self.recorder.computes(number, cut.seconds, read), self.recorder.is_inside(number)
        if (kernel := self.problem.facts.kernel(number)) is not None and kernel.runs:
            for name, *_ in kernel.reads:
                self.versions[name][0].used = max(self.versions[name][0].used, number)
                for work in makes:
                    self.versions[name][0].read_by(work)
        within = read if is_inside and operation.edge.computes else ()
        made = []
        scope = graph.scopes[number]
        for write, (array, form) in enumerate(zip(operation.outs, cut.outs, strict=True)):
            born, works = graph.made_at(array.name), makes
            if scope is not None and operation.edge.makes_outside(write):
                works = (leaving(scope), *makes)
            made.append(PricedVersion(form, born, born, works=works, within=within))
        if operation.edge.slices:
            made[0].is_entry = True
        return made

    def hand_on(self, carry: int, version: PricedVersion) -> None:
        self.recorder.hand_on(version, self.graph.scopes[carry])

    def end(self, output: int, version: PricedVersion) -> None:
        version.kept()

    def move(
        self, key: str, source: PricedVersion, form: DistType, windows: tuple[Held, ...], reading: ReadAt
    ) -> PricedVersion:
        moves, dtype = self.problem.moves, self.graph.arrays[key].dtype
        price: Price | None = Price(0.0, True, 0)  # cut out of the halos that operations share
        if windows and not source.windows:
            price = moves.halo(form, windows, dtype)
        elif not windows:
            price = moves.price(source.form, form, dtype)
        if price is None:
            self.seconds = math.inf
            return source
        self._pay(price, self.problem.facts.moves_of(key, (reading.reader if reading.reader >= 0 else reading.at,)))
        if not windows:
            scratch = (moves.scratch_at_most if self.at_most else moves.scratch)(source.form, form, dtype)
            if scratch is None:
                self.seconds = math.inf
                return source
            price = price._replace(scratch=scratch)
        tested = self.is_tested(key, reading.reader)
        moved = PricedVersion(form, reading.at, reading.until, tested, windows)
        self.recorder.move(key, source, moved, price, reading.at, reading.reader)
        return moved

    def _pay(self, price: Price, times: int) -> None:
        seconds = times * (price.cost if self.problem.moves.objective == "seconds" else 0.0)
        self.seconds += seconds
        self.moving += seconds
        self.received += times * price.received
