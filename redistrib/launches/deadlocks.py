"""Deadlocks: whether ranks that wait for each other have made different calls, so that no call can end.

Where calls leave no record in the store, ranks report there what they do once one of them has waited for long. All
functions take these reports.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from redistrib.errors import CommunicatorError, RedistribError
from redistrib.launches.agreement import of_rank
from redistrib.launches.call_errors import CallsEnd, another_call, described, error_of, not_made
from redistrib.launches.call_order import NumberedCall, Wait, circle_of

Members: TypeAlias = tuple[int, ...]


class RecentCall(NamedTuple):
    """A call of a rank: its number among the calls of the same members, its digest, and its description."""

    number: int
    digest: int
    words: str


class CallsState(NamedTuple):
    """The report of a rank on its calls together with certain ranks.

    Attributes:
        members: those ranks, itself included.
        generation: how many errors these ranks have had.
        recent: its last calls, ascending.
        waits: whether the last call is under way.
        compares: whether the last call compares calls, and so finds by itself other calls of ranks that compare.
    """

    members: Members
    generation: int
    recent: tuple[RecentCall, ...]
    waits: bool
    compares: bool

    @property
    def turn(self) -> NumberedCall:
        """These calls up to their next error, by the number of the errors before."""
        return NumberedCall(self.members, self.generation)

    @property
    def reached(self) -> int:
        """The number of its last call."""
        return self.recent[-1].number if self.recent else 0


class RankState(NamedTuple):
    """The report of a rank on all its calls.

    Attributes:
        beat: counts its reports.
        calls: its calls.
        problems: the errors, described, that it raised since its last call, where it could not know whose calls those
            were.
    """

    beat: int
    calls: tuple[CallsState, ...]
    problems: tuple[Mapping[str, Any], ...] = ()

    def to_text(self) -> str:
        return json.dumps(self)

    @classmethod
    def of_text(cls, text: str) -> RankState:
        beat, calls, problems = json.loads(text)
        states = (
            CallsState(tuple(members), generation, tuple(RecentCall(*call) for call in recent), waits, compares)
            for members, generation, recent, waits, compares in calls
        )
        return cls(beat, tuple(states), tuple(problems))

    def among(self, members: Members) -> CallsState | None:
        """Its calls together with these ranks."""
        return next((state for state in self.calls if state.members == members), None)


def ended(several: Iterable[CallsState], error: RedistribError) -> CallsEnd:
    """The end, with an error, of all these calls, each with the number of errors before it as its turn."""
    return CallsEnd(tuple(sorted({calls.turn for calls in several})), described(error, -1))


def other_call(states: Mapping[int, RankState]) -> CallsEnd | None:
    """The end of the first call that differs between ranks, where a rank waits; None if there is none."""
    waited = {calls.members for state in states.values() for calls in state.calls if calls.waits}
    for members in sorted(waited):
        reports = {rank: calls for rank in members if rank in states and (calls := states[rank].among(members))}
        newest = max(report.generation for report in reports.values())
        recent = {
            rank: {call.number: call for call in report.recent}
            for rank, report in reports.items()
            if report.generation == newest
        }
        for number in sorted({number for calls in recent.values() for number in calls}):
            calls_of_rank = {rank: calls[number] for rank, calls in recent.items() if number in calls}
            if len({call.digest for call in calls_of_rank.values()}) == 1:
                continue
            if all(reports[r].waits and reports[r].compares and reports[r].reached == number for r in calls_of_rank):
                continue  # their comparison finds it
            usual = Counter(call.digest for call in calls_of_rank.values()).most_common(1)[0][0]
            first = min(rank for rank, call in calls_of_rank.items() if call.digest == usual)
            other = min(rank for rank, call in calls_of_rank.items() if call.digest != usual)
            error = another_call(other, calls_of_rank[other].words, first, calls_of_rank[first].words)
            return ended([report for report in reports.values() if report.generation == newest], error)
    return None


def told(states: Mapping[int, RankState]) -> CallsEnd | None:
    """The end of calls that wait for a rank which has raised an error instead; None if there is none."""
    for rank, state in sorted(states.items()):
        if state.problems:
            waited = [
                calls
                for other in states.values()
                for calls in other.calls
                if calls.waits and rank in late(states, calls.members, calls.reached, calls.generation)
            ]
            if waited:
                return ended(waited, of_rank(error_of(state.problems[0]), rank))
    return None


def circle_of_ranks(states: Mapping[int, RankState]) -> tuple[Wait, ...]:
    """Ranks each of which waits in a call that the next has not reached, since that waits elsewhere; empty for none."""
    waiting: dict[NumberedCall, list[int]] = {}
    lacking: dict[NumberedCall, list[int]] = {}
    for rank, calls in ((rank, calls) for rank, state in sorted(states.items()) for calls in state.calls):
        if calls.waits:
            last = NumberedCall(calls.members, calls.reached)
            waiting.setdefault(last, []).append(rank)
            lacking[last] = late(states, calls.members, calls.reached, calls.generation)
    starts = sorted((rank, call) for call, ranks in waiting.items() for rank in ranks)
    return next(filter(None, (circle_of(waiting, lacking, start) for start in starts)), ())


def in_a_circle(states: Mapping[int, RankState], circle: tuple[Wait, ...]) -> CallsEnd:
    """The end of the calls in which ranks wait in a circle."""
    reports = [calls for rank, call in circle if (calls := states[rank].among(call.processes)) is not None]
    first, other = (calls.recent[-1].words for calls in reports[:2])
    return ended(reports, another_call(circle[1][0], other, circle[0][0], first))


def late(states: Mapping[int, RankState], members: Members, number: int, generation: int) -> list[int]:
    """The ranks that have not reported that they reached a call."""
    late_ranks = []
    for rank in members:
        report = states[rank].among(members) if rank in states else None
        if report is None or (report.generation, report.reached) < (generation, number):
            late_ranks.append(rank)
    return late_ranks


def not_reached(states: Mapping[int, RankState], calls: CallsState, why: str) -> CommunicatorError | None:
    """The error of the last of some calls, if a rank has not reached it; `why` it will not."""
    absent = late(states, calls.members, calls.reached, calls.generation)
    words = f"not called {calls.recent[-1].words} {why}"
    return not_made(absent, words, calls.members, "rank") if absent else None
