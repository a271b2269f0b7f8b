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
from collections.abc import Mapping
from typing import Any, Protocol

import torch.distributed as dist

from redistrib.backends.torch.private import timeout_of
from redistrib.backends.torch.store import GroupStore
from redistrib.backends.torch.world import OfWorld, drop_ended
from redistrib.errors import CommunicatorError, RedistribError
from redistrib.launches import times
from redistrib.launches.call_errors import CallsEnd, described
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

    def state(self) -> CallsState: ...

    def refuse(self, verdict: CallsEnd) -> None: ...


class Watch:
    """The thread of this process; one for each default process group.

    Attributes:
        problem: the error, described, that this rank has raised since its last call, if it could not know whose call
            that was.
        timeout: seconds of the default process group for messages under way.
    """

    def __init__(self) -> None:
        self.rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._world = weakref.ref(dist.group.WORLD)
        self.problem: Mapping[str, Any] | None = None
        self.timeout = timeout_of(dist.group.WORLD)
        self.store = GroupStore()
        self.watched: dict[Members, Watched] = {}
        self.generations: dict[Members, int] = {}
        self._episode, self._beat = 0, 0
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
            while self.watched.get(asks.members) is asks:
                self._offer(verdict)

    def _offer(self, verdict: CallsEnd) -> None:
        self.store.put(f"verdict/{self._episode}", verdict.to_json())
        self.catch_up()

    def catch_up(self) -> list[CallsEnd]:
        """Apply the new verdicts in the store, and return them; the caller holds the lock."""
        verdicts = []
        while (text := self.store.get(f"verdict/{self._episode}", 0.0)) is not None:
            verdict = CallsEnd.from_json(text)
            self._episode += 1
            self._suspected.clear()
            for members in (call.processes for call in verdict.calls):
                self.generations[members] = self.generations.get(members, 0) + 1
                watched = self.watched.pop(members, None)
                if watched is not None:
                    watched.refuse(verdict)
            verdicts.append(verdict)
        return verdicts

    def announce(self, problem: RedistribError) -> RedistribError:
        """Tell a problem of this rank to all ranks; returns the error to raise.

        It waits a moment for ranks that wait for this one, so that all raise the same error.
        """
        self.problem = described(problem, self.rank)
        self._report()
        end = time.monotonic() + 2 * times.LOOK_SECONDS
        while time.monotonic() < end:
            states = self._states(range(self._ranks))
            if len(states) == self._ranks and all(state.problem for state in states.values()):
                break  # nobody waits
            time.sleep(TICK / 10)
            with self.lock:
                verdicts = self.catch_up()
            for verdict in verdicts:
                if verdict.teller == self.rank:
                    return verdict.problem
            if verdicts:
                self._report()
        return problem

    def settle(self) -> None:
        """Withdraw the problem of this rank, whose calls go on."""
        with self.lock:
            self.catch_up()
            self.problem = None
            self._report()

    def _report(self) -> int:
        """Write the report of this rank into the store; returns its episode."""
        with self.lock:
            self.catch_up()
            episode = self._episode
        self._beat += 1
        state = RankState(self._beat, tuple(calls.state() for calls in list(self.watched.values())), self.problem)
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
            if not any(calls.since and now - calls.since > times.LOOK_SECONDS for calls in list(self.watched.values())):
                continue
            try:
                self._tick()
            except CommunicatorError:  # the store has ended with the process that serves it
                return

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
        for calls in [calls.state() for calls in list(self.watched.values()) if 0 < calls.since < begun]:
            error = not_reached(states, calls, f"within {times.WAIT_SECONDS:g} s")
            if error is not None:
                return ended([calls.members], error)
        return None


WATCH: OfWorld[Watch] = OfWorld(Watch, Watch.end)  # of the default process group
