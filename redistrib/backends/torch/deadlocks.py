"""What ranks that wait for each other have called, and whether they can wait for ever.

Everything here is a function of what the ranks say about themselves; `watch` gathers it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

Members = tuple[int, ...]


@dataclass(frozen=True)
class RecentCall:
    """A call of a rank: its number among those with the same members, what it is, and its digest."""

    number: int
    digest: int
    words: str


@dataclass(frozen=True)
class CallsState:
    """What a rank has called together with certain ranks.

    Attributes:
        members: those ranks, itself included.
        generation: how often these ranks have begun anew after an error.
        recent: its last calls, ascending; the last one may be under way.
        waits: whether the last one is under way.
        compares: whether that one compares calls, which finds other calls of ranks that compare too.
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
    """What a rank says about itself; `beat` grows each time that it says so."""

    beat: int
    calls: tuple[CallsState, ...]

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> RankState:
        said = json.loads(text)
        calls = tuple(
            CallsState(
                tuple(one["members"]), one["generation"], tuple(RecentCall(**call) for call in one["recent"]),
                one["waits"], one["compares"],
            )
            for one in said["calls"]
        )  # fmt: skip
        return cls(said["beat"], calls)

    def among(self, members: Members) -> CallsState | None:
        """Its calls with these ranks."""
        return next((one for one in self.calls if one.members == members), None)


@dataclass(frozen=True)
class Verdict:
    """Why calls cannot end.

    Attributes:
        members: the sets of ranks whose calls end with the error.
        kind: name of the error's class.
        text: its message.
    """

    members: tuple[Members, ...]
    kind: str
    text: str

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Verdict:
        said = json.loads(text)
        return cls(tuple(tuple(one) for one in said["members"]), said["kind"], said["text"])


def other_call(states: Mapping[int, RankState]) -> Verdict | None:
    """The first call that one rank has made otherwise than another, among ranks of whom one waits."""
    waited = {one.members for state in states.values() for one in state.calls if one.waits}
    for members in sorted(waited):
        said = {rank: one for rank in members if rank in states and (one := states[rank].among(members)) is not None}
        newest = max(one.generation for one in said.values())
        calls = {
            rank: {call.number: call for call in one.recent} for rank, one in said.items() if one.generation == newest
        }
        for number in sorted({number for one in calls.values() for number in one}):
            made = {rank: one[number] for rank, one in calls.items() if number in one}
            if len({call.digest for call in made.values()}) == 1:
                continue
            if all(said[rank].waits and said[rank].compares and said[rank].reached == number for rank in made):
                continue  # they find out by themselves
            usual = Counter(call.digest for call in made.values()).most_common(1)[0][0]
            first = min(rank for rank, call in made.items() if call.digest == usual)
            other = min(rank for rank, call in made.items() if call.digest != usual)
            return Verdict(
                (members,), "CommunicatorError", difference(other, made[other].words, first, made[first].words)
            )
    return None


def difference(other: int, others: str, first: int, firsts: str) -> str:
    """The message where two ranks make different calls."""
    return (
        f"rank {other} makes another call than rank {first}: {others}, and rank {first}: {firsts}; make the same calls "
        "in the same order on all ranks"
    )


Wait = tuple[int, Members, int]  # a rank waits in a call, by members and number


def circles(states: Mapping[int, RankState]) -> Iterator[tuple[Wait, ...]]:
    """Ranks that wait for each other in a circle, each in a call that the next has not come to, and waits elsewhere."""
    waits: dict[int, CallsState] = {rank: one for rank, state in states.items() for one in state.calls if one.waits}

    def next_of(rank: int) -> list[int]:
        one = waits[rank]
        late = []
        for other in one.members:
            if other != rank and other in waits and waits[other].members != one.members:
                there = states[other].among(one.members)
                if there is None or (there.generation, there.reached) < (one.generation, one.reached):
                    late.append(other)
        return late

    for start in sorted(waits):
        paths: list[tuple[int, ...]] = [(start,)]
        seen = {start}
        while paths:
            path = paths.pop(0)
            for rank in next_of(path[-1]):
                if rank == start:
                    yield tuple((r, waits[r].members, waits[r].reached) for r in path)
                    return
                if rank not in seen:
                    seen.add(rank)
                    paths.append((*path, rank))


def in_a_circle(states: Mapping[int, RankState], circle: tuple[Wait, ...]) -> Verdict:
    """What to say about ranks that wait in a circle."""
    words = {}
    for rank, members, _ in circle:
        one = states[rank].among(members)
        assert one is not None
        words[rank] = one.recent[-1].words
    first, other = circle[0][0], circle[1][0]
    among = tuple(sorted({members for _, members, _ in circle}))
    return Verdict(among, "CommunicatorError", difference(other, words[other], first, words[first]))


def late(states: Mapping[int, RankState], members: Members, number: int, generation: int) -> list[int]:
    """The ranks that do not say that they have come to a call."""
    found = []
    for rank in members:
        one = states[rank].among(members) if rank in states else None
        if one is None or (one.generation, one.reached) < (generation, number):
            found.append(rank)
    return found
