"""What a search says where nothing fits: a proof that nothing can, or that nothing was found."""

from __future__ import annotations

from redistrib.errors import MemoryLimitError, ProgramError
from redistrib.programs.search.held_bounds import least_held
from redistrib.programs.search.problem import SearchProblem


def none_found(what: str, most: int, least: int, until: str = "", *, why: str = "") -> str:
    """What is said where nothing fits in so many bytes: that none was found, or, with `why`, that there is none."""
    limit = f"fits in {most:,} bytes on a device"
    outcome = f"{limit}: {why}" if why else f"that {limit} was found{until}"
    return f"no {what} {outcome}; the smallest of those found takes {least:,} bytes"


def held_at_least(problem: SearchProblem) -> tuple[int, int]:
    """Bytes that a device holds under every schedule of a whole problem, and the operation where it does."""
    facts, types = problem.facts, problem.given.types
    return least_held(
        facts.graph, facts.moves.mesh.size, types, problem.donated, facts.machine.bytes_of, facts.unstored
    )


def refused(
    problem: SearchProblem, name: str, most: int | None, smallest: int | None, *, stopped: bool = False
) -> MemoryLimitError | ProgramError:
    """The error of a search that found nothing.

    Args:
        problem: the whole search problem.
        name: of the program.
        most: bytes that a device may hold; None for no limit.
        smallest: bytes of the schedule that holds least of those found; None for none.
        stopped: whether the time was up.
    """
    if most is None:
        return ProgramError("", "", "Schedule", f"no schedule of {name} was found; loosen the pins")
    floor, moment = held_at_least(problem)
    operations, least = problem.graph.operations, smallest or 0
    if floor <= most:
        until = " before the time was up" if stopped else ""
        return MemoryLimitError(most, least, none_found(f"schedule of {name}", most, least, until))
    where = operations[moment].name if operations else "the arguments"
    why = f"{floor:,} bytes are held at {where} by every one"
    return MemoryLimitError(most, least, none_found(f"schedule of {name}", most, least, why=why), proved=True)
