"""Repeated layers of a search problem, which are decided once, and the schedule of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from redistrib.lang.types import DistType
from redistrib.programs.schedule.given import Given
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.candidates import Option
from redistrib.programs.search.classes import marks_of
from redistrib.programs.search.facts import Facts
from redistrib.programs.search.folding import Folded, folded
from redistrib.programs.search.isomorphism import IsomorphismClasses
from redistrib.programs.search.problem import SearchProblem


def fold(problem: SearchProblem) -> SearchProblem:
    """The problem with its repeated layers decided once; the problem itself where none repeats."""
    given = problem.given
    folding = folded(problem.graph, marks_of(problem), given.tied)
    if len(folding.graph.operations) == len(problem.graph.operations):
        return problem
    return replace(
        problem,
        facts=Facts(folding.graph, problem.machine, problem.moves, folding, problem.facts),
        whole=problem,
        given=Given(
            {folding.end(end): form for end, form in given.types.items()},
            {folding.end(end): dims for end, dims in given.pins.items()},
            {folding.operations[number]: cuts for number, cuts in given.work.items()},
            {folding.outputs[number]: folding.inputs[name] for number, name in given.tied.items()},
        ),
        donated=tuple(dict.fromkeys(folding.inputs[name] for name in problem.donated)),
    )


def unfold(problem: SearchProblem, decisions: Propagation) -> tuple[SearchProblem, Propagation]:
    """The whole problem, and the schedule of all its layers."""
    folding, whole = problem.folded, problem.whole
    if folding is None or whole is None:
        return problem, decisions
    every = whole.undecided()
    every.cuts = [{**decisions.cuts[number]} for number in folding.operations]
    every.carries = [{**decisions.carries[number]} for number in folding.operations]
    every.ends = {end: dict(decisions.ends[folding.end(end)]) for end in every.ends}
    every.keep = decisions.keep
    by_value: dict[str, list[tuple[DistType, DistType]]] = {}
    for (name, form), source in (decisions.sources or {}).items():
        by_value.setdefault(name, []).append((form, source))
    values = _values(folding, whole, problem) if by_value else ()
    every.sources = {(name, form): source for name, other in values for form, source in by_value.get(other, ())}
    return whole, every


def options_of(problem: SearchProblem, decisions: Propagation) -> Sequence[Option]:
    """Every operation of the whole problem as it is cut: as the one that stands for it.

    Raises:
        ProgramError: if one cannot be cut so.
    """
    options = [problem.facts.decided(decisions, number) for number in range(len(problem.graph.operations))]
    return options if problem.folded is None else [options[number] for number in problem.folded.operations]


def _values(folding: Folded, whole: SearchProblem, problem: SearchProblem) -> Iterator[tuple[str, str]]:
    """Every value of the whole graph with the one that stands for it."""
    yield from folding.inputs.items()
    for operation, number in zip(whole.graph.operations, folding.operations, strict=True):
        for array, other in zip(operation.outs, problem.graph.operations[number].outs, strict=True):
            yield array.name, other.name


def harmonized(problem: SearchProblem, decisions: Propagation, classes: IsomorphismClasses) -> Propagation:
    """The decisions with one cut for each class of layers: that of the layer that stands for most."""
    if problem.folded is None:
        return decisions
    harmonised = decisions.copy()
    standing: dict[object, int] = {}
    for k, cell in enumerate(problem.folded.cells):
        if cell is not None and (cell not in standing or problem.facts.times[k] > problem.facts.times[standing[cell]]):
            standing[cell] = k
    first: dict[int, str] = {}
    times = problem.folded.input_times
    for array, number in zip(problem.graph.inputs, classes.inputs, strict=True):
        if number not in first or times[array.name] > times[first[number]]:
            first[number] = array.name
    for k, cell in enumerate(problem.folded.cells):
        if cell is not None:
            harmonised.cuts[k] = dict(decisions.cuts[standing[cell]])
            harmonised.carries[k] = dict(decisions.carries[standing[cell]])
    for array, number in zip(problem.graph.inputs, classes.inputs, strict=True):
        harmonised.ends[array.name] = dict(decisions.ends[first[number]])
    ends: dict[object, int] = {}
    for number, name in enumerate(problem.graph.outputs):
        if number in problem.given.tied:
            harmonised.ends[number] = dict(harmonised.ends[problem.given.tied[number]])
        elif name in problem.graph.makers:
            k, write = problem.graph.makers[name]
            cell = problem.folded.cells[k]
            if cell is not None:
                standing_end = ends.setdefault((cell, write), number)
                harmonised.ends[number] = dict(harmonised.ends[standing_end])
    return harmonised
