"""Search at real size: a valid schedule at once, better ones while there is time.

Repeated layers are decided once, and moves have closed prices, so that neither the number of layers nor that of devices
counts. The search begins with the schedules that people write. Then it decides one axis after another anew, given the
others, from the best schedules so far: with values that were moved kept and given up, and with bytes free and priced.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import NamedTuple

from redistrib.errors import MemoryLimitError
from redistrib.lang.types import DistType
from redistrib.programs.run.collection import uncollected
from redistrib.programs.run.entry import KEPT
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.choices import ChoiceGraph
from redistrib.programs.search.classes import classes_of, marks_of
from redistrib.programs.search.deadline import NEVER, Deadline, OutOfTime
from redistrib.programs.search.descent import SearchResult, bounded
from redistrib.programs.search.elimination import Elimination
from redistrib.programs.search.evaluation import Evaluation, walked
from redistrib.programs.search.exact import runner_up, solved
from redistrib.programs.search.folding import Folded, folded
from redistrib.programs.search.isomorphism import IsomorphismClasses
from redistrib.programs.search.memory import least_held
from redistrib.programs.search.problem import Decisions, ProblemFacts, SearchProblem
from redistrib.programs.search.starting import is_spread, starting
from redistrib.report import seconds_text

OPERATIONS = 2_000  # operations of a graph above which its repeated layers are decided once on every mesh
DECIDING = 0.85  # of the time that there is; the rest is for the bound
DERIVING = 0.5  # of it at most, for the schedules that people write
MULTIPLIERS = (0.0, 0.03, 0.3, 3.0)  # of a byte, times the seconds of the best schedule over the limit
TOGETHER = 1_500  # options of all operations that two axes may have where they are decided together
HIDDEN = ((1.0, 1.0), (0.1, 1.0), (0.1, 0.3), (4.0, 4.0))  # times the seconds of moves, where they may be hidden:
# of those that wait for nothing, and of others
TURNED = 300  # decisions turned to another option, at most, where moves run beside operations
CONVERSIONS = 10_000  # of the values of two axes that are decided together, up to which the relaxation is solved
BETTER = 1e-6  # of the price, by which a schedule must be better to be taken


class Improvement(NamedTuple):
    """A schedule that was better than all before it.

    Attributes:
        elapsed: seconds since the search began.
        price: seconds of a call, or bytes that all devices receive.
        memory: bytes on a device.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> args = jnp.ones((64, 8)), jnp.ones((8, 8))
    >>> found = rd.search(lambda x, w: x @ w, args, {"d": 4}, machine="v5e", progress=False)
    >>> first, *_, last = found[0].improvements
    >>> last.price <= first.price
    True
    """

    elapsed: float
    price: float
    memory: int


class Start(NamedTuple):
    """A schedule to begin with: decisions, sources and for how many operations a moved value is kept."""

    decisions: Decisions
    sources: dict[tuple[str, DistType], DistType]
    keep: int | None


class AnytimeResult(NamedTuple):
    """The result of an anytime search.

    Attributes:
        problem: as it was searched, folded.
        result: the schedule, of the folded graph.
        evaluation: the seconds and bytes of the schedule.
        improvements: in order.
    """

    problem: SearchProblem
    result: SearchResult
    evaluation: Evaluation
    improvements: tuple[Improvement, ...]


def is_large(problem: SearchProblem) -> bool:
    """Whether repeated layers are decided once: on more devices than moves are planned for one by one, with many
    operations, or on a machine whose kernels are counted."""
    return problem.machine.fuses or problem.moves.by_axes is not None or len(problem.graph.operations) > OPERATIONS


def fold(problem: SearchProblem) -> SearchProblem:
    """The problem with its repeated layers decided once."""
    folding = folded(problem.graph, marks_of(problem), problem.tied)
    work = {folding.operations[number]: cuts for number, cuts in problem.work.items()}
    return replace(
        problem,
        graph=folding.graph,
        folded=folding,
        whole=problem,
        starts={folding.inputs[name]: form for name, form in problem.starts.items()},
        ends={folding.outputs[number]: form for number, form in problem.ends.items()},
        pins={
            folding.inputs[name] if isinstance(name, str) else folding.outputs[name]: dims
            for name, dims in problem.pins.items()
        },
        work=work,
        tied={folding.outputs[number]: folding.inputs[name] for number, name in problem.tied.items()},
        donated=tuple(dict.fromkeys(folding.inputs[name] for name in problem.donated)),
        option_cache={},
        plans={},
        facts=ProblemFacts(),
    )


def unfold(problem: SearchProblem, result: SearchResult) -> tuple[SearchProblem, SearchResult]:
    """The whole problem, and the schedule of all its layers."""
    folding, whole = problem.folded, problem.whole
    if folding is None or whole is None:
        return problem, result
    decisions, every = result.decisions, Decisions.none(whole)
    for k, number in enumerate(folding.operations):
        every.propagation.cuts[k] = dict(decisions.propagation.cuts[number])
        every.propagation.carries[k] = dict(decisions.propagation.carries[number])
    every.ins = {name: dict(decisions.ins[other]) for name, other in folding.inputs.items()}
    every.outs = [dict(decisions.outs[number]) for number in folding.outputs]
    sources: dict[tuple[str, DistType], DistType] = {}
    by_value: dict[str, list[tuple[DistType, DistType]]] = {}
    for (name, form), source in result.sources.items():
        by_value.setdefault(name, []).append((form, source))
    for name, other in _values(folding, whole, problem):
        for form, source in by_value.get(other, ()):
            sources[name, form] = source
    with_keep = replace(whole, keep=problem.keep)
    return with_keep, replace(result, decisions=every, sources=sources)


def _values(folding: Folded, whole: SearchProblem, problem: SearchProblem) -> Iterator[tuple[str, str]]:
    """Every value of the whole graph with the one that stands for it."""
    yield from folding.inputs.items()
    for operation, number in zip(whole.graph.operations, folding.operations, strict=True):
        for array, other in zip(operation.outs, problem.graph.operations[number].outs, strict=True):
            yield array.name, other.name


def searched_anytime(
    problem: SearchProblem,
    name: str,
    most: int | None,
    deadline: Deadline = NEVER,
    report_progress: Callable[[str], None] = lambda line: None,
    start: Start | None = None,
) -> AnytimeResult:
    """The best schedule found within the time limit.

    Args:
        problem: the whole search problem.
        name: of the program.
        most: bytes that a device may hold; None for no limit.
        deadline: after which the best so far is taken; at least one schedule is looked at.
        report_progress: called with a line about every improvement.
        start: a schedule of the folded problem to begin with.

    Raises:
        MemoryLimitError: if nothing that was found fits, with the least bytes of a schedule that was found.
    """
    with uncollected():
        folded = fold(problem) if is_large(problem) or not problem.overlap else problem
        search = _Anytime(folded, name, most, deadline, report_progress, start)
        deciding = deadline.part(DECIDING)
        search.begin(deciding.part(DERIVING))
    return search.result(deciding)


@dataclass
class _Anytime:
    problem: SearchProblem
    name: str
    most: int | None
    deadline: Deadline
    report_progress: Callable[[str], None]
    start: Start | None = None
    began: float = field(default_factory=time.monotonic)
    best: tuple[float, SearchProblem, SearchResult, Evaluation] | None = None
    improvements: list[Improvement] = field(default_factory=list)
    smallest: tuple[int, float, SearchProblem, SearchResult] | None = None
    complete: bool = True

    @cached_property
    def classes(self) -> IsomorphismClasses:
        """Operations and inputs that share a decision."""
        return classes_of(self.problem)

    def result(self, deciding: Deadline) -> AnytimeResult:
        """The best schedule, after better ones than the first were looked for until a time."""
        axes = [axis.name for axis in self.problem.moves.mesh.axes if axis.size > 1]
        with contextlib.suppress(OutOfTime):
            self._descend(axes, deciding)
        stopped = deciding.passed
        if self.best is None:
            raise self._refused(stopped)
        _, problem, result, evaluation = self.best
        self.report_progress("bound")
        free = replace(problem, memory_multipliers={}, keep=None)
        priced = replace(result, price=evaluation.price(problem.moves.objective))
        result = replace(bounded(free, priced, self.deadline), stopped=stopped)
        result = replace(result, complete=self.complete and not stopped)
        return AnytimeResult(problem, result, evaluation, tuple(self.improvements))

    # ------------------------------------------------------------------------------------------ candidates

    def _consider(self, decisions: Decisions, sources: dict[tuple[str, DistType], DistType], keep: int | None) -> bool:
        """Take a schedule where it is better than all before; whether it was."""
        problem = replace(self.problem, keep=keep)
        walk = walked(problem, decisions, sources, keep)
        if self.best is not None and walk.least_price >= self.best[0] * (1 - BETTER):
            return False
        evaluation = walk.evaluation(self.most)
        price = evaluation.price(problem.moves.objective)
        if not math.isfinite(evaluation.seconds) or not is_spread(problem, decisions):
            return False
        schedule = SearchResult(decisions, sources, price, False)
        if self.smallest is None or evaluation.memory < self.smallest[0]:
            self.smallest = (evaluation.memory, price, problem, schedule)
        if self.most is not None and evaluation.memory > self.most:
            return False
        if self.best is not None and price >= self.best[0] * (1 - BETTER):
            return False
        self.best = (price, problem, schedule, evaluation)
        self.improvements.append(Improvement(time.monotonic() - self.began, price, evaluation.memory))
        unit = seconds_text(price) if problem.moves.objective == "seconds" else f"{price:,.0f} bytes received"
        self.report_progress(f"{unit}, {evaluation.memory:,} bytes on a device")
        return True

    def begin(self, deadline: Deadline) -> None:
        """The schedules that people write: all that there is time for, and further ones until one fits."""
        if self.start is not None:
            self._consider(*self.start)
        listed = starting(self.problem)
        first = next(listed)  # the pins, and everything else replicated: rarely good, so it comes last
        for decisions in chain(listed, [first]):
            harmonised = harmonized(self.problem, decisions, self.classes)
            for keep in (None, KEPT):
                self._consider(harmonised, {}, keep)
                if self.best is not None and deadline.passed:
                    return

    # ------------------------------------------------------------------------------------------ better ones

    def _descend(self, axes: Sequence[str], deadline: Deadline) -> None:
        """Decide axes anew until no way of doing so is better, or the time is up."""
        if not axes:
            axes = [self.problem.moves.mesh.axes[0].name] if self.problem.moves.mesh.axes else []
        unchanged, ways = 0, list(self._ways(axes))
        while unchanged < len(ways):
            for way in ways:
                deadline.check()
                unchanged = 0 if self._decide(*way, deadline) else unchanged + 1
                if unchanged >= len(ways):
                    break
            if unchanged >= len(ways) and self.problem.overlap and self._turn(axes, deadline):
                unchanged = 0

    def _turn(self, axes: Sequence[str], deadline: Deadline) -> bool:
        """Turn one decision after another to another option, those around it decided anew; whether that was better.

        Sums of prices do not say which moves are hidden, so that the best by them may be another than the best.
        """
        tried, better = 0, False
        for axis in axes:
            if self.best is None:
                break
            _, problem, result, _ = self.best
            axes_problem = AxesProblem(problem, result.decisions, (axis,), self.classes, deadline)
            tables, choice = Elimination(axes_problem.choices, deadline), axes_problem.choice_of(result.decisions)

            def moved(node: int, tables: Elimination = tables, choice: Sequence[int] = choice) -> float:
                return -sum(tables.edge(k, choice) for k in tables.touching[node])

            for node in sorted(range(len(choice)), key=moved):
                for option in range(tables.sizes[node]):
                    deadline.check()
                    other = None if option == choice[node] else runner_up(tables, choice, node, [option])
                    if other is None or self._is_hopeless(axes_problem.choices, other):
                        continue
                    if self._consider(axes_problem.chosen(other), axes_problem.sources(other), problem.keep):
                        choice, better = other, True
                    tried += 1
                if tried >= TURNED:
                    return better
        return better

    def _ways(self, axes: Sequence[str]) -> Iterator[tuple[tuple[str, ...], int | None, float, tuple[float, float]]]:
        """Axes decided together, lifetimes of values, the price of a byte, and the prices of moves."""
        turns = [(axis,) for axis in axes] + list(combinations(axes, 2))
        for multiplier in MULTIPLIERS if self.most is not None else MULTIPLIERS[:1]:
            for keep in (None, KEPT) if self.most is not None else (None,):
                for weights in HIDDEN if self.problem.overlap else HIDDEN[:1]:
                    for turn in turns:
                        yield turn, keep, multiplier, weights

    def _decide(
        self,
        turn: tuple[str, ...],
        keep: int | None,
        multiplier: float,
        weights: tuple[float, float],
        deadline: Deadline,
    ) -> bool:
        if self.best is not None:
            price, _, result, _ = self.best
        elif self.smallest is not None:
            _, price, _, result = self.smallest
        else:
            return False
        problem = replace(self.problem, keep=keep, weights=weights)
        if multiplier and self.most:
            moment = walked(problem, result.decisions, result.sources, keep).evaluation().moment
            problem = replace(problem, memory_multipliers={moment: multiplier * price / self.most})
        if len(turn) > 1 and not _is_small(problem, turn):
            return False
        self.report_progress(f"axis {' and '.join(turn)}")
        axes_problem = AxesProblem(problem, result.decisions, turn, self.classes, deadline)
        most = CONVERSIONS if len(turn) > 1 else math.inf
        solution = solved(axes_problem.choices, deadline, axes_problem.choice_of(result.decisions), most)
        self.complete = self.complete and solution.optimal
        if solution.choice is None:
            return False
        return self._consider(axes_problem.chosen(solution.choice), axes_problem.sources(solution.choice), keep)

    def _is_hopeless(self, choices: ChoiceGraph, choice: Sequence[int]) -> bool:
        """Whether operations, or moves, alone take as long as the best schedule."""
        computing = sum(node.prices[taken] for node, taken in zip(choices.nodes, choice, strict=True))
        longer = max(computing * (1 - self.problem.ties), choices.price(choice) - computing)
        return self.best is not None and longer * (1 - BETTER) >= self.best[0]

    def _refused(self, stopped: bool) -> MemoryLimitError:
        """The error where nothing fits: a proof that nothing can, or that nothing was found."""
        whole, most = self.problem.whole or self.problem, self.most or 0
        limit = f"{most:,} bytes on a device"
        least = self.smallest[0] if self.smallest is not None else 0
        floor, moment = least_held(
            whole.graph, whole.moves.mesh.size, whole.starts, whole.donated, whole.machine.bytes_of, whole.unstored
        )
        if floor > most:
            where = whole.graph.operations[moment].name if whole.graph.operations else "the arguments"
            text = f"no schedule of {self.name} fits in {limit}: {floor:,} bytes are held at {where} by every one"
        else:
            until = " before the time was up" if stopped else ""
            text = f"no schedule of {self.name} that fits in {limit} was found{until}"
        text += f"; the smallest of those found takes {least:,} bytes"
        return MemoryLimitError(most, least, text, proved=floor > most)


def harmonized(problem: SearchProblem, decisions: Decisions, classes: IsomorphismClasses) -> Decisions:
    """The decisions with one cut for each class of layers: that of the layer that stands for most."""
    if problem.folded is None:
        return decisions
    harmonised = decisions.copy()
    standing: dict[object, int] = {}
    for k, cell in enumerate(problem.folded.cells):
        if cell is not None and (cell not in standing or problem.times[k] > problem.times[standing[cell]]):
            standing[cell] = k
    first: dict[int, str] = {}
    times = problem.folded.input_times
    for array, number in zip(problem.graph.inputs, classes.inputs, strict=True):
        if number not in first or times[array.name] > times[first[number]]:
            first[number] = array.name
    for k, cell in enumerate(problem.folded.cells):
        if cell is not None:
            harmonised.propagation.cuts[k] = dict(decisions.propagation.cuts[standing[cell]])
            harmonised.propagation.carries[k] = dict(decisions.propagation.carries[standing[cell]])
    for array, number in zip(problem.graph.inputs, classes.inputs, strict=True):
        harmonised.ins[array.name] = dict(decisions.ins[first[number]])
    ends: dict[object, int] = {}
    for number, name in enumerate(problem.graph.outputs):
        if number in problem.tied:
            harmonised.outs[number] = dict(harmonised.ins[problem.tied[number]])
        elif name in problem.graph.makers:
            k, write = problem.graph.makers[name]
            cell = problem.folded.cells[k]
            if cell is not None:
                standing_end = ends.setdefault((cell, write), number)
                harmonised.outs[number] = dict(harmonised.outs[standing_end])
    return harmonised


def _is_small(problem: SearchProblem, turn: Sequence[str]) -> bool:
    """Whether two axes have few enough options in all to be decided together."""
    options = (int((1 + len(operation.nest.ranges)) ** len(turn)) for operation in problem.graph.operations)
    return sum(options) <= TOGETHER
