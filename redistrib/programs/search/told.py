"""Schedules that were found, as text: of several processes one searches, and tells the others.

A search that a limit of time stops finds another schedule on a busy processor than on an idle one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redistrib.backends.jax.meetings import Meeting
from redistrib.digests import digest_of_parts
from redistrib.programs.ir.graph import Graph
from redistrib.programs.schedule.schedule import Schedule
from redistrib.programs.search.evaluation import Evaluation
from redistrib.programs.search.found import FeasibleResult, Improvement, SearchResult
from redistrib.programs.search.problem import SearchProblem

_FIGURES = ("price", "complete", "bound", "axis", "by_class", "stopped")  # of a search result


def call_digest(graph: Graph, *options: object) -> str:
    """A digest of a search for a function, equal in processes that call it alike."""
    operations = [(op.name, op.ins, [(out.name, out.shape, out.dtype) for out in op.outs]) for op in graph.operations]
    return digest_of_parts([*operations, graph.outputs, *options])


def searched_by_the_first(
    meeting: Meeting,
    call: str,
    search: Callable[[], list[FeasibleResult | None]],
    problems: Iterable[SearchProblem],
    name: str,
) -> Sequence[FeasibleResult | None]:
    """The results of a search in the first of several processes, in all of them.

    Args:
        meeting: of the processes.
        call: the digest of the call.
        search: solves the problems; those at the end may be left out.
        problems: these.
        name: of the program.

    Raises:
        RedistribError: in all processes, the error of the first that has one.
    """
    if meeting.leads:
        results, _ = meeting.agreed(search, to_json, call)
        return results
    every, notes = meeting.agreed(lambda: list(problems), digest=call)
    return from_json(notes[0], every, name)


def to_json(results: Sequence[FeasibleResult | None]) -> str:
    """The results for several problems as JSON text; None where nothing was found."""
    return json.dumps([None if result is None else _data(result) for result in results])


def from_json(text: str, problems: Sequence[SearchProblem], name: str) -> list[FeasibleResult | None]:
    """The results for these problems, of a program of this name."""
    every = zip(json.loads(text), problems, strict=False)
    return [None if data is None else _result(data, problem, name) for data, problem in every]


def _data(found: FeasibleResult) -> dict[str, Any]:
    return {
        "schedule": found.schedule.to_json(),
        "result": {figure: getattr(found.result, figure) for figure in _FIGURES},
        "evaluation": found.evaluation[:-1],  # the overlap is that of the schedule
        "improvements": found.improvements,
    }


def _result(data: dict[str, Any], problem: SearchProblem, name: str) -> FeasibleResult:
    schedule = Schedule.from_json(data["schedule"])
    decisions = problem.undecided()
    schedule.decide(decisions)
    result = SearchResult(decisions, **data["result"])
    evaluation = Evaluation._make([*data["evaluation"], schedule.overlap])
    improvements = tuple(Improvement(*improvement) for improvement in data["improvements"])
    return FeasibleResult(problem, result, name, evaluation, improvements)
