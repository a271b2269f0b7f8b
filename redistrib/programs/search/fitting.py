"""Schedules that fit a memory limit: the multiplier of bytes held at the worst moments rises until one fits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from redistrib.errors import MemoryLimitError
from redistrib.programs.ir.data import Compute, Loop, ProgramData
from redistrib.programs.ir.live import moments, steps_of
from redistrib.programs.ir.program import Program
from redistrib.programs.lower.ahead import gathered_ahead
from redistrib.programs.lower.behind import scattered_behind
from redistrib.programs.run.entry import KEPT
from redistrib.programs.search.anytime import AnytimeResult, Improvement, Start, is_large, searched_anytime, unfold
from redistrib.programs.search.deadline import NEVER, Deadline
from redistrib.programs.search.descent import SearchResult, bounded, program_of, searched
from redistrib.programs.search.evaluation import Evaluation, evaluated, walked
from redistrib.programs.search.memory import least_held
from redistrib.programs.search.moves import PLANNED
from redistrib.programs.search.problem import Decisions, SearchProblem
from redistrib.programs.search.starting import estimate, is_spread, starting
from redistrib.programs.search.works import Overlap
from redistrib.programs.time.entry import simulate
from redistrib.programs.time.result import Simulation

STEEP = 8.0  # how much dearer a byte becomes where too much is held
STEPS = 8  # in which it does
DERIVED = 0.1  # of the time that there is, for the schedules that people write
BUILT = 0.5  # of the remaining time, for their programs
APART = 0.4  # of the time that there is, for the search without overlap where moves run beside operations
STARTS = 3  # of which programs are built, where they fit
FREE = 0.5  # of the whole time, for the fastest schedule without regard to memory
NEAR_LIMIT = 0.8  # of the limit, above which all layers are counted; folded ones were seen to hold 0.846 of their bytes
HALVINGS = 4  # of the price of a byte, to come near the limit again


@dataclass(frozen=True)
class FeasibleResult:
    """A schedule, its time and its memory.

    Attributes:
        problem: as it was searched at last.
        result: the schedule.
        name: of the program.
        built: the program, where it was built.
        evaluation: time and memory, where they are known without a program.
        improvements: the schedules that the search came to one after the other, where it kept a list.
    """

    problem: SearchProblem
    result: SearchResult
    name: str
    built: Program | None = None
    evaluation: Evaluation | None = None
    improvements: tuple[Improvement, ...] = ()

    @cached_property
    def whole(self) -> tuple[SearchProblem, SearchResult]:
        """The problem and the schedule with all layers."""
        return unfold(self.problem, self.result)

    @cached_property
    def program(self) -> Program:
        """Of the whole schedule."""
        program = self.built or program_of(*self.whole, self.name)
        if self.overlap and self.overlap.ahead:
            program = gathered_ahead(program, self.overlap.ahead)
        return scattered_behind(program, self.overlap.behind) if self.overlap and self.overlap.behind else program

    @cached_property
    def simulation(self) -> Simulation:
        """The program on the machine of the search, its moves beside operations as far as was found."""
        window = None if self.overlap is None else self.overlap.window
        beside = self.overlap is not None
        return simulate(self.program, self.problem.machine, overlap=beside, window=window, record=False)

    @property
    def is_planned(self) -> bool:
        """Whether its figures are those of its program; on many devices planning takes long."""
        return self.problem.moves.mesh.size <= PLANNED

    @cached_property
    def figures(self) -> Evaluation | None:
        """Time and memory of the program, whose moves have plans, or those by which it was searched; None where they
        are to be read from the simulation."""
        if self.evaluation is None or not self.is_planned:
            return self.evaluation
        memory, busy = max(self.simulation.peak_bytes.values(), default=0), dict[str, float]()
        for (_, stream), seconds in self.simulation.run.busy.items():
            busy[stream] = max(busy.get(stream, 0.0), seconds)
        seconds, computing = self.simulation.seconds, self.evaluation.computing
        moving = seconds - computing if self.overlap is None else busy.get("moves", 0.0)
        received = self.program.received_bytes
        return self.evaluation._replace(seconds=seconds, moving=moving, received=received, memory=memory)

    @property
    def overlap(self) -> Overlap | None:
        """How far moves run beside operations; None where they do not."""
        return None if self.evaluation is None else self.evaluation.overlap

    @property
    def price(self) -> float:
        """Predicted seconds of a call, or bytes that all devices receive."""
        if self.evaluation is not None:
            return self.evaluation.price(self.problem.moves.objective)
        if self.problem.moves.objective == "bytes":
            return float(self.program.received_bytes)
        return self.simulation.seconds


def feasible_result(
    problem: SearchProblem,
    name: str,
    most: int | None,
    deadline: Deadline = NEVER,
    report_progress: Callable[[str], None] = lambda line: None,
) -> FeasibleResult:
    """The fastest schedule found whose program holds at most so many bytes on a device.

    Where there is a limit of bytes or of time, the schedules that people write come first, so that there is one to
    return whenever the time is up.

    Args:
        problem: the search problem.
        name: of the program.
        most: bytes; None for no limit.
        deadline: after which the best so far is taken.
        report_progress: called with a line about each phase.

    Raises:
        MemoryLimitError: if nothing that was found fits, with the least bytes of a schedule that was found.
    """
    if problem.overlap or is_large(problem):
        return _with_all_layers(problem, name, most, deadline, report_progress)
    starts: list[FeasibleResult] = []
    if most is not None or math.isfinite(deadline.at):
        report_progress("schedules to start from")
        starts = built(problem, name, most, deadline)
    starts = [start for start in starts if is_spread(problem, start.result.decisions)] or starts[:1]
    whole = sorted((start.result for start in starts if start.problem.keep is None), key=lambda result: result.price)
    free = searched(problem, deadline if most is None else deadline.part(FREE), report_progress, whole)
    program = next((start.program for start in starts if start.result.decisions is free.decisions), None)
    program = program or program_of(problem, free, name)
    if most is None or peak(program)[0] <= most:
        return FeasibleResult(problem, free, name, program)
    return _Fitting(problem, name, most, deadline, report_progress, free).run(program, starts)


def _anytime(outcome: AnytimeResult, name: str) -> FeasibleResult:
    return FeasibleResult(outcome.problem, outcome.result, name, None, outcome.evaluation, outcome.improvements)


def _with_all_layers(
    problem: SearchProblem, name: str, most: int | None, deadline: Deadline, report_progress: Callable[[str], None]
) -> FeasibleResult:
    """A schedule that fits with all its layers: those that stand for all may hold less, see `NEAR_LIMIT`.

    Where it does not, the search begins again with a limit that is lower by as much.
    """

    def search(limit: int | None) -> FeasibleResult:
        if problem.overlap:
            return _beside(problem, name, limit, deadline, report_progress)
        return _anytime(searched_anytime(problem, name, limit, deadline, report_progress), name)

    found = search(most)
    if most is None:
        return found
    limit, least = most, 0
    while (evaluation := _with_all(found, most)).memory > most:
        memory = evaluation.memory
        limit, least = min(limit - 1, limit * most // memory), min(least or memory, memory)
        report_progress(f"with all layers {memory:,} bytes, above the limit")
        try:
            found = search(limit)
        except MemoryLimitError:
            raise MemoryLimitError(most, least) from None
    return found if found.is_planned else replace(found, evaluation=evaluation)


def _with_all(found: FeasibleResult, most: int) -> Evaluation:
    """Time and memory of a schedule; of its program, or of all its layers, if they may come near the limit."""
    assert found.evaluation is not None
    if found.evaluation.memory < NEAR_LIMIT * most:
        return found.evaluation
    if found.is_planned and found.figures is not None:
        return found.figures
    if found.problem.folded is None:
        return found.evaluation
    problem, result = found.whole
    return evaluated(problem, result.decisions, result.sources, problem.keep, most)


def _beside(
    problem: SearchProblem, name: str, most: int | None, deadline: Deadline, report_progress: Callable[[str], None]
) -> FeasibleResult:
    """The schedule found where moves run beside operations; at the least that which is found where they do not.

    If the one found without a limit fits, it is that one: a search within a limit may not come to it, where those on
    the way to it hold more.
    """
    start = None
    if most is not None and not (freely := deadline.part(FREE)).passed:
        free = _beside(problem, name, None, freely, report_progress)
        if free.evaluation is not None and free.evaluation.memory <= most:
            return free
    with contextlib.suppress(MemoryLimitError):
        without_overlap = replace(problem, overlap=False)
        alone = feasible_result(without_overlap, name, most, deadline.part(APART), report_progress)
        start = Start(alone.result.decisions, alone.result.sources, alone.problem.keep)
    report_progress("moves beside operations")
    return _anytime(searched_anytime(problem, name, most, deadline, report_progress, start), name)


def built(problem: SearchProblem, name: str, most: int | None, deadline: Deadline) -> list[FeasibleResult]:
    """The best of the schedules that people write, by an estimate of seconds and bytes.

    There is at least one. There are more while there is time: a few, and further ones until one fits the limit. Their
    programs are built where there is a limit, or no time to search for better ones.
    """
    ranked: list[tuple[int, float, Decisions]] = []
    deriving, fits = deadline.part(DERIVED), False
    for decisions in starting(problem, deadline):
        guess = estimate(problem, decisions)
        misses = (most is not None and guess.peak > most) + 2 * (not is_spread(problem, decisions))
        ranked.append((misses, guess.price, decisions))
        fits = fits or (len(ranked) > 1 and not misses)
        if fits and deriving.passed:
            break
    starts: list[FeasibleResult] = []
    building, fits = deadline.part(BUILT), most is None
    for _, _, decisions in sorted(ranked, key=lambda entry: entry[:2]):
        if starts and (deadline.passed or (fits and (building.passed or len(starts) >= STARTS))):
            break
        result = SearchResult(decisions, {}, math.inf, False)
        if most is None and not deadline.passed:
            price = walked(problem, decisions).least_price
            starts.append(FeasibleResult(problem, replace(result, price=price), name))
            continue
        for keep in (None, KEPT):
            with_keep = replace(problem, keep=keep)
            start = FeasibleResult(with_keep, result, name, program_of(with_keep, result, name))
            starts.append(replace(start, result=replace(result, price=start.price)))
            if most is None or peak(start.program)[0] <= most:
                fits = True
                break
    return starts


def peak(program: ProgramData) -> tuple[int, str]:
    """The most bytes that a device holds, and the computation that runs then, or next; empty for the first.

    Programs of a search call no others, and every value lies on all devices alike, so that one device stands for
    all.
    """
    worst, computation, waits = sum(value.tile_bytes for value in program.inputs), "", True
    for moment in moments(program):
        live = moment.held[program.devices[0]] + moment.scratch
        if live > worst:
            worst, computation, waits = live, "", True
        if waits and isinstance(moment.op, Compute):
            computation, waits = moment.op.name, False
        elif waits and isinstance(moment.op, Loop):
            computation, waits = max(map(peak, steps_of(moment.op)))[1], False
    return worst, computation


@dataclass
class _Fitting:
    problem: SearchProblem
    name: str
    most: int
    deadline: Deadline
    report_progress: Callable[[str], None]
    free: SearchResult
    best: tuple[float, FeasibleResult] | None = None

    def run(self, program: Program, starts: Sequence[FeasibleResult]) -> FeasibleResult:
        self.problem = replace(self.problem, keep=KEPT)
        self.least, moment = peak(program)
        self.moments = {self.number(moment): None}
        self.stopped = self.free.stopped
        self._note(self.problem, self.free)
        multiplier = 0.01 * self.free.price / self.least
        for start in starts:
            self._take(start)
        dear = cheap = 0.0
        for _ in range(STEPS):
            if self._fits(multiplier):
                dear = multiplier
                break
            cheap, multiplier = multiplier, multiplier * STEEP
        for _ in range(HALVINGS if dear else 0):
            multiplier = math.sqrt(cheap * dear) if cheap else dear / STEEP
            cheap, dear = (cheap, multiplier) if self._fits(multiplier) else (multiplier, dear)
        if self.best is None:
            raise self._refused()
        self._refilled(self.best[1])
        best = self.best[1]
        stopped = self.stopped or self.deadline.passed
        return replace(best, result=replace(bounded(best.problem, best.result, self.deadline), stopped=stopped))

    def number(self, name: str) -> int:
        """The operation that a computation does; 0 for the first of all."""
        numbers = {operation.name: k for k, operation in enumerate(self.problem.graph.operations)}
        return numbers.get(name, 0)

    def _refused(self) -> MemoryLimitError:
        """The error where nothing fits: a proof that nothing can, or that nothing was found."""
        problem, limit = self.problem, f"{self.most:,} bytes on a device"
        floor, moment = least_held(
            problem.graph,
            problem.moves.mesh.size,
            problem.starts,
            problem.donated,
            problem.machine.bytes_of,
            problem.unstored,
        )
        smallest = f"the smallest of those found takes {self.least:,} bytes"
        if floor > self.most:
            name = problem.graph.operations[moment].name if problem.graph.operations else "the arguments"
            text = f"no schedule of {self.name} fits in {limit}: {floor:,} bytes are held at {name} by every one"
        elif self.stopped or self.deadline.passed:
            text = f"no schedule of {self.name} that fits in {limit} was found before the time was up"
        else:
            text = f"no schedule of {self.name} that fits in {limit} was found"
        return MemoryLimitError(self.most, self.least, f"{text}; {smallest}", proved=floor > self.most)

    def _refilled(self, candidate: FeasibleResult) -> None:
        """Lay arguments out again as they are without a limit, as many as there is room for.

        Arguments of isomorphic layers share a layout where only the price of a byte decides.
        """
        tight, free = candidate.result.decisions, self.free.decisions
        other = [name for name, at in tight.ins.items() if at != free.ins[name]]
        low, high = 0, len(other)
        while low < high and not self.deadline.passed:
            count = (low + high + 1) // 2
            decisions = tight.copy()
            for name in other[:count]:
                decisions.ins[name] = dict(free.ins[name])
            for number, name in self.problem.tied.items():
                decisions.outs[number] = dict(decisions.ins[name])
            fits = self._note(candidate.problem, replace(candidate.result, decisions=decisions, complete=False))
            low, high = (count, high) if fits else (low, count - 1)

    def _fits(self, multiplier: float) -> bool:
        if self.deadline.passed:
            return self.best is not None
        self.report_progress(f"memory, {multiplier:.3g} a byte")
        multipliers = dict.fromkeys(self.moments, multiplier / len(self.moments))
        problem = replace(self.problem, memory_multipliers=multipliers)
        result = searched(
            problem, self.deadline, self.report_progress, [] if self.best is None else [self.best[1].result]
        )
        self.stopped = self.stopped or result.stopped
        return self._note(problem, result)

    def _note(self, problem: SearchProblem, result: SearchResult) -> bool:
        """Whether the schedule fits; if not, bytes at its worst moment get a price."""
        candidate = FeasibleResult(problem, result, self.name, program_of(problem, result, self.name))
        self.moments[self.number(peak(candidate.program)[1])] = None
        return self._take(candidate)

    def _take(self, candidate: FeasibleResult) -> bool:
        """Whether a program fits; the fastest that does is kept."""
        size, _ = peak(candidate.program)
        self.least = min(self.least, size)
        if size > self.most:
            return False
        price = candidate.price
        if self.best is None or price < self.best[0]:
            self.best = (price, candidate)
        return True
