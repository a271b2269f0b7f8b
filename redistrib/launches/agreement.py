"""Agreement by texts: what ranks tell one another of a call before data moves.

Each rank tells all others its problem and its call, by a collective of its library. All read the same texts, so all go
on, or all raise the same error. Processes that must not wait for each other in a collective agree by `calls`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy

from redistrib.errors import CommunicatorError, RedistribError
from redistrib.launches.call_errors import another_call, described, error_of


def agree(
    gather: Callable[[str], Sequence[str]],
    rank: int,
    problem: RedistribError | None,
    call: Mapping[str, str],
    *,
    words: str = "",
    way_out: str = "",
    beside: str = "",
) -> list[str]:
    """Return when all ranks are about to make the same call; collective.

    Args:
        gather: tells all ranks a text, and returns the texts of all, by rank.
        rank: the number of this rank.
        problem: the error in the arguments or arrays of this rank, or None.
        call: the parts of the call by name, which must be equal on all ranks.
        words: the call in a few words, for the error of ranks that make different ones.
        way_out: a hint for that of ranks that give different parts.
        beside: a text in which ranks may differ.

    Returns:
        What each rank tells beside the call.

    Raises:
        RedistribError: on every rank the same, if one has a problem.
        CommunicatorError: on every rank, if two ranks make different calls.
    """
    told = json.dumps([problem and described(problem, rank), words, call, beside])
    problems, every, calls, besides = zip(*map(json.loads, gather(told)), strict=True)
    refusal = of_ranks([problem and error_of(problem) for problem in problems])
    if refusal is not None:
        raise refusal
    for other, (others, parts) in enumerate(zip(every, calls, strict=True)):
        if others != every[0]:
            raise another_call(other, others, 0, every[0])
        name = next((name for name, part in calls[0].items() if parts.get(name) != part), None)
        if name is not None:
            about = f" for {words}" if words else ""
            raise CommunicatorError(
                f"rank {other} gives another {name} than rank 0{about}; give the same on all ranks{way_out}"
            )
    return list(besides)


def of_rank(problem: RedistribError, rank: int) -> RedistribError:
    """The error that all ranks raise for the problem of one: of the same class, with the rank in its message."""
    named = copy(problem)
    named.args = (f"rank {rank}: {problem}",)
    return named


def of_ranks(problems: Sequence[RedistribError | None]) -> RedistribError | None:
    """The error that all ranks raise, from the problems of each: that of all, or of the first that has one."""
    rank = next((rank for rank, problem in enumerate(problems) if problem is not None), None)
    if rank is None or (first := problems[rank]) is None:
        return None
    same = all(type(problem) is type(first) and str(problem) == str(first) for problem in problems)
    return first if same else of_rank(first, rank)
