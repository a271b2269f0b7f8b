"""A thread that finds calls that cannot end, so that every rank gets an error and none waits for ever.

A call that ends in time costs nothing. If a call takes longer than `times.LOOK_SECONDS`, its rank writes a report on
its calls to the store of the default process group, and `deadlocks` judges the reports of all ranks. For a rank that is
merely late the others wait `times.WAIT_SECONDS`. The first verdict in the store holds for all ranks.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch.distributed as dist

from redistrib.backends.torch.private import timeout_of
from redistrib.backends.torch.store import GroupStore
from redistrib.backends.torch.world import OfWorld, drop_ended
from redistrib.errors import CommunicatorError, RedistribError
from redistrib.launches import times
from redistrib.launches.agreement import of_rank
from redistrib.launches.call_errors import CallsEnd, described
from redistrib.launches.call_order import NumberedCall
from redistrib.launches.deadlocks import (
    CallsState,
    Members,
    RankState,
    circle_of_ranks,
    ended,
    in_a_circle,
    not_reached,
    other_call,
    told,
)

TICK = 0.2  # seconds between two looks at the store


class Watched(Protocol):
    """The calls of this rank together with certain ranks, as in `CallsState`."""

    members: Members
    since: float

    @property
    def is_refused(self) -> bool: ...

    def state(self) -> CallsState: ...

    def refuse(self, verdict: CallsEnd) -> None: ...


class Watch:
    """The thread of this process; one for each default process group.

    Attributes:
        problems: the errors that this rank has raised since its last call, if it could not know whose calls those were.
        ends: the ends, by calls and their turns, that this rank has yet to raise.
        turns: how many errors the calls of certain ranks have had, for this rank.
        timeout: seconds of the default process group for messages under way.
    """

    def __init__(self) -> None:
        self.rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._world = weakref.ref(dist.group.WORLD)
        self.problems: list[RedistribError] = []
        self._raised: CallsEnd | None = None  # the end of the call of the last problem that has left the list
        self.timeout = timeout_of(dist.group.WORLD)
        self.store = GroupStore()
        self.watched: dict[Members, Watched] = {}
        self.ends: dict[NumberedCall, CallsEnd] = {}
        self.turns: Counter[Members] = Counter()
        self._episode, self._reported, self._beat = 0, 0, 0
        self._suspected: dict[Any, tuple[int, ...]] = {}
        self._ended, self.lock = threading.Event(), threading.RLock()
        self._thread = threading.Thread(target=self._look, name="redistrib watch", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(2.0)
        atexit.unregister(self.end)

    def decide(self, verdict: CallsEnd, asks: Watched) -> None:
        """Apply a verdict to the calls that ask for it, unless another verdict came first."""
        with self.lock:
            self.catch_up()
            while not asks.is_refused:
                self._offer(verdict)

    def _offer(self, verdict: CallsEnd) -> None:
        self.store.put(f"verdict/{self._episode}", verdict.to_json())
        self.catch_up()

    def catch_up(self) -> None:
        """Apply the new verdicts in the store; the caller holds the lock."""
        while (text := self.store.get(f"verdict/{self._episode}", 0.0)) is not None:
            verdict = CallsEnd.from_json(text)
            self._episode += 1
            self._suspected.clear()
            for call in verdict.calls:
                if self.rank in call.processes and call.turn >= self.turns[call.processes]:
                    self.ends.setdefault(call, verdict)
            if self.problems and self._pending() is verdict:  # one call of this rank has had both errors
                self.passed(verdict)
                self.problems.pop(0)
                self._raised = verdict
            for watched in [self.watched.get(call.processes) for call in verdict.calls]:
                if watched is not None:
                    watched.refuse(verdict)

    def _pending(self) -> CallsEnd | None:
        """An end that this rank raises at its next call."""
        ends = self.ends.items()
        return next((end for call, end in ends if call.turn == self.turns[call.processes]), None)

    def passed(self, end: CallsEnd) -> None:
        """Count an error as raised, in all calls that it ends; the caller holds the lock."""
        for call in end.calls:
            if self.ends.pop(call, None) is not None:
                self.turns[call.processes] = call.turn + 1

    def announce(self, problem: RedistribError) -> RedistribError:
        """Tell a problem of this rank to all ranks; returns the error to raise.

        It counts as a call. It waits a moment for ranks that wait for this one, so that all raise the same error.
        """
        with self.lock:
            self.catch_up()
            end_here = self._pending()
            if end_here is not None:
                self.passed(end_here)
                return self._of_both(problem, end_here)
            self.problems.append(problem)
        self._report()
        end = time.monotonic() + 2 * times.LOOK_SECONDS
        while time.monotonic() < end:
            states = self._states(range(self._ranks))
            if len(states) == self._ranks and all(len(s.problems) >= len(self.problems) for s in states.values()):
                break  # nobody waits
            time.sleep(TICK / 10)
            with self.lock:
                self.catch_up()
                if not self.problems and self._raised is not None:
                    return self._of_both(problem, self._raised)
        return problem

    def _of_both(self, problem: RedistribError, end: CallsEnd) -> RedistribError:
        """The error of a call that has ended with that of another rank: its own if both are the same."""
        others = (of_rank(problem, rank) for rank in range(self._ranks) if rank != self.rank)
        return problem if str(end.problem) in map(str, others) else end.problem

    def claim(self, calls: Callable[[], CallsState]) -> None:
        """End a call of certain ranks with each of `problems`: this rank goes on with these calls.

        Ranks that come late raise these errors too, each in the call that had it here, and so do not mix two calls.
        """
        with self.lock:
            self.catch_up()
            while self.problems:
                state = calls()
                call = NumberedCall(state.members, self.turns[state.members])
                after = state.reached if call == state.turn else 0
                error = described(of_rank(self.problems[0], self.rank), self.rank)
                self._offer(CallsEnd((call,), error, after))

    def _report(self) -> int:
        """Write the report of this rank into the store; returns its episode."""
        with self.lock:
            self.catch_up()
            episode = self._reported = self._episode
            problems = tuple(described(problem, self.rank) for problem in self.problems)
        self._beat += 1
        state = RankState(self._beat, tuple(calls.state() for calls in list(self.watched.values())), problems)
        self.store.put(f"state/{episode}/{self.rank}", state.to_text(), replace=True)
        return episode

    def not_reached(self, calls: CallsState, why: str) -> CommunicatorError | None:
        """The error of the last of some calls, if a rank does not report that it has reached it; `why` it will not."""
        time.sleep(times.LOOK_SECONDS)
        try:
            return not_reached(self._states(calls.members), calls, why)
        except CommunicatorError:
            return None

    def _look(self) -> None:
        while not self._ended.wait(TICK):
            if not dist.is_initialized() or dist.group.WORLD is not self._world():
                drop_ended()  # the store ends with the last that holds it
                return
            now = time.monotonic()
            waits = any(now - calls.since > times.LOOK_SECONDS for calls in self._under_way())
            if not waits and not self.problems:
                continue
            try:
                if waits:
                    self._tick()
                else:
                    self._tell_again()
            except CommunicatorError:  # the store has ended with the process that serves it
                return

    def _under_way(self) -> list[Watched]:
        return [calls for calls in list(self.watched.values()) if calls.since and not calls.is_refused]

    def _tell_again(self) -> None:
        """Report the errors that later calls of others wait for, when earlier ones have ended."""
        with self.lock:
            self.catch_up()
            if self.problems and self._reported < self._episode:
                self._report()

    def _tick(self) -> None:
        episode = self._report()
        verdict = self._judged()
        if verdict is not None:
            with self.lock:
                if self._episode == episode:  # the reports are of this episode
                    self._offer(verdict)

    def _states(self, ranks: Any) -> dict[int, RankState]:
        states = {}
        for rank in ranks:
            text = self.store.get(f"state/{self._episode}/{rank}", 0.0)
            if text is not None:
                states[rank] = RankState.of_text(text)
        return states

    def _judged(self) -> CallsEnd | None:
        states = self._states(range(self._ranks))
        verdict = told(states)
        if verdict is not None:
            return verdict
        verdict = other_call(states)
        if verdict is not None:  # it names the right rank once all ranks have reported
            first_beat = self._suspected.setdefault(verdict.calls, (self._beat,))[0]
            everyone = all(rank in states for call in verdict.calls for rank in call.processes)
            return verdict if everyone or self._beat - first_beat > times.LOOK_SECONDS / TICK else None
        circle = circle_of_ranks(states)
        # Reports are of different moments: a circle counts once all its ranks have reported it again.
        beats = tuple(states[rank].beat for rank, _ in circle)
        first = self._suspected.setdefault(circle, beats)
        is_one = circle and all(now > then + 1 for now, then in zip(beats, first, strict=True))
        return in_a_circle(states, circle) if is_one else self._overdue(states)

    def _overdue(self, states: Mapping[int, RankState]) -> CallsEnd | None:
        """The end of a call of this rank for which another is too late: one that came in time has reported it."""
        begun = time.monotonic() - times.WAIT_SECONDS - 2 * times.LOOK_SECONDS
        for calls in [calls.state() for calls in self._under_way() if calls.since < begun]:
            error = not_reached(states, calls, f"within {times.WAIT_SECONDS:g} s")
            if error is not None:
                return ended([calls], error)
        return None


WATCH: OfWorld[Watch] = OfWorld(Watch, Watch.end)  # of the default process group
