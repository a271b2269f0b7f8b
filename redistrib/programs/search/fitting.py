"""A schedule that fits with all its layers, and one whose moves run beside operations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from redistrib.collection import uncollected
from redistrib.errors import MemoryLimitError
from redistrib.programs.search.constants import APART, FREE, PLANNED
from redistrib.programs.search.deadline import NEVER, Deadline
from redistrib.programs.search.descent import searched
from redistrib.programs.search.evaluation import evaluated, held_at_most
from redistrib.programs.search.found import FeasibleResult
from redistrib.programs.search.held_bounds import most_held
from redistrib.programs.search.layers import options_of
from redistrib.programs.search.problem import SearchProblem


def feasible_result(
    problem: SearchProblem,
    name: str,
    most: int | None,
    deadline: Deadline = NEVER,
    report_progress: Callable[[str], None] = lambda line: None,
) -> FeasibleResult:
    """The fastest schedule found whose program holds at most so many bytes on a device.

    A search prices moves by formulas, and layers that stand for all may hold less. Where the program does not fit, the
    search begins again with a limit that is lower by as much.

    Args:
        problem: the search problem.
        name: of the program.
        most: bytes; None for no limit.
        deadline: after which the best so far is taken.
        report_progress: called with a line about each phase.

    Raises:
        MemoryLimitError: if nothing that was found fits, with the least bytes of a schedule that was found.
    """

    def search(limit: int | None) -> FeasibleResult:
        best = _beside if problem.overlap else searched
        found = best(problem, name, limit, deadline, report_progress)
        return found if most is None else _with_all(found, most)

    found = search(most)
    if most is None:
        return found
    limit, least = most, 0
    while not _surely_fits(found, most) and (memory := found.figures.memory) > most:
        limit, least = min(limit - 1, limit * most // memory), min(least or memory, memory)
        report_progress(f"its program holds {memory:,} bytes, above the limit")
        try:
            found = search(limit)
        except MemoryLimitError:
            raise MemoryLimitError(most, least) from None
    return found


def _surely_fits(found: FeasibleResult, most: int) -> bool:
    """Whether a program fits, however its moves are planned; on many devices that spares making it."""
    if found.problem.moves.mesh.size <= PLANNED or found.overlap is not None:
        return False
    with uncollected():
        options = options_of(found.problem, found.result.decisions)
        return most_held(*found.whole, options) <= most or held_at_most(*found.whole) <= most


def _with_all(found: FeasibleResult, most: int) -> FeasibleResult:
    """The result with the figures of all layers, where no program has them."""
    if found.is_simulated or found.problem.folded is None:
        return found
    return replace(found, evaluation=evaluated(*found.whole, most))


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
        if free.evaluation.memory <= most:
            return free
    with contextlib.suppress(MemoryLimitError):
        without_overlap = replace(problem, overlap=False)
        start = feasible_result(without_overlap, name, most, deadline.part(APART), report_progress)
    report_progress("moves beside operations")
    return searched(problem, name, most, deadline, report_progress, start)
