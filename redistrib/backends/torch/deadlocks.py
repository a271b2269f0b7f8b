"""Deadlocks: whether ranks that wait for each other have made different calls, so that no call can end.

All functions take the reports of the ranks, which `watch` gathers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from redistrib.errors import RedistribError, TilesError
from redistrib.launches.call_errors import another_call, described, error_of
from redistrib.launches.call_order import circle_through

Members = tuple[int, ...]


@dataclass(frozen=True)
class RecentCall:
    """A call of a rank: its number among the calls of the same members, its digest, and its description."""

    number: int
    digest: int
    words: str


@dataclass(frozen=True)
class CallsState:
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
    def reached(self) -> int:
        """The number of its last call."""
        return self.recent[-1].number if self.recent else 0


@dataclass(frozen=True)
class RankState:
    """The report of a rank on all its calls.

    Attributes:
        beat: counts its reports.
        calls: its calls.
        problem: the error that it raised since its last call, where it could not know whose call that was; "" if none.
    """

    beat: int
    calls: tuple[CallsState, ...]
    problem: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> RankState:
        report = json.loads(text)
        calls = tuple(
            CallsState(
                tuple(state["members"]), state["generation"], tuple(RecentCall(**call) for call in state["recent"]),
                state["waits"], state["compares"],
            )
            for state in report["calls"]
        )  # fmt: skip
        return cls(report["beat"], calls, report["problem"])

    def among(self, members: Members) -> CallsState | None:
        """Its calls together with these ranks."""
        return next((state for state in self.calls if state.members == members), None)


@dataclass(frozen=True)
class Verdict:
    """The decision that calls cannot end, and their error.

    Attributes:
        members: the sets of ranks whose calls end with the error.
        told: the error, described.
        teller: the rank that has raised it already; -1 if none has.
    """

    members: tuple[Members, ...]
    told: Mapping[str, Any]
    teller: int = -1

    @classmethod
    def of(cls, members: tuple[Members, ...], error: RedistribError, teller: int = -1) -> Verdict:
        """The verdict with an error."""
        return cls(members, described(error, teller), teller)

    @property
    def error(self) -> RedistribError:
        """The error that all ranks raise."""
        return error_of(self.told)

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Verdict:
        verdict = json.loads(text)
        members = tuple(tuple(members) for members in verdict["members"])
        return cls(members, verdict["told"], verdict["teller"])


def other_call(states: Mapping[int, RankState]) -> Verdict | None:
    """The verdict on the first call that differs between ranks, where a rank waits; None if there is none."""
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
            return Verdict.of((members,), error)
    return None


def told(states: Mapping[int, RankState]) -> Verdict | None:
    """The verdict on calls that wait for a rank which has raised an error instead; None if there is none."""
    for rank, state in sorted(states.items()):
        if state.problem:
            waited = {
                calls.members
                for other in states.values()
                for calls in other.calls
                if calls.waits and rank in late(states, calls.members, calls.reached, calls.generation)
            }
            if waited:
                return Verdict.of(tuple(sorted(waited)), TilesError(f"rank {rank}: {state.problem}"), rank)
    return None


Wait = tuple[int, Members, int]  # a rank waits in a call, by members and number


def circle_of_ranks(states: Mapping[int, RankState]) -> tuple[Wait, ...]:
    """Ranks each of which waits in a call that the next has not reached, since that waits elsewhere; empty for none."""
    waits: dict[int, CallsState] = {
        rank: calls for rank, state in states.items() for calls in state.calls if calls.waits
    }

    def waits_for(rank: int) -> Iterator[int]:
        wait = waits[rank]
        for other in late(states, wait.members, wait.reached, wait.generation):
            if other != rank and other in waits and waits[other].members != wait.members:
                yield other

    found = next(filter(None, (circle_through(start, waits_for) for start in sorted(waits))), ())
    return tuple((rank, waits[rank].members, waits[rank].reached) for rank in found)


def in_a_circle(states: Mapping[int, RankState], circle: tuple[Wait, ...]) -> Verdict:
    """The verdict on ranks that wait in a circle."""
    words = {}
    for rank, members, _ in circle:
        report = states[rank].among(members)
        assert report is not None
        words[rank] = report.recent[-1].words
    first, other = circle[0][0], circle[1][0]
    among = tuple(sorted({members for _, members, _ in circle}))
    return Verdict.of(among, another_call(other, words[other], first, words[first]))


def late(states: Mapping[int, RankState], members: Members, number: int, generation: int) -> list[int]:
    """The ranks that have not reported that they reached a call."""
    late_ranks = []
    for rank in members:
        report = states[rank].among(members) if rank in states else None
        if report is None or (report.generation, report.reached) < (generation, number):
            late_ranks.append(rank)
    return late_ranks
