"""A thread that finds out why a call does not end, so that every rank gets an error and none waits for ever.

Calls cost nothing for it while they end in time. Where one takes longer than `PATIENCE`, the rank says in the store of
the default process group what it has called, and `deadlocks` judges what all such ranks say. A rank that is only late
is waited for, until the process group's time-out. The first verdict in the store holds for all ranks.
"""

from __future__ import annotations

import atexit
import threading
import time
from typing import Any, Protocol

import torch.distributed as dist

from redistrib.backends.torch.agreement import RAISED
from redistrib.backends.torch.deadlocks import (
    CallsState,
    Members,
    RankState,
    Verdict,
    circles,
    in_a_circle,
    late,
    other_call,
)
from redistrib.backends.torch.private import default_store, timeout_of
from redistrib.errors import RedistribError, TilesError

PATIENCE = 1.0  # seconds in a call before a rank asks what the others do
TICK = 0.2  # seconds between two looks at the store


class Watched(Protocol):
    """Calls of this rank with certain ranks; their names are those of `CallsState`."""

    members: Members
    since: float

    def state(self) -> CallsState: ...

    def refuse(self, verdict: Verdict) -> None: ...


class Watch:
    """The thread of this process; one for each default process group."""

    def __init__(self) -> None:
        self.world: Any = dist.group.WORLD
        self.rank = dist.get_rank()
        self.timeout = timeout_of(self.world)
        self.store = default_store()
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

    def key(self, *names: object) -> str:
        """A name in the store."""
        return "/".join(["redistrib", *map(str, names)])

    def decide(self, verdict: Verdict, asks: Watched) -> None:
        """Let this verdict hold, unless there is one already on the calls that ask for it."""
        with self.lock:
            self.catch_up()
            while self.watched.get(asks.members) is asks:
                self._offer(verdict)

    def _offer(self, verdict: Verdict) -> None:
        self.store.compare_set(self.key("verdict", self._episode), "", verdict.to_text())
        self.catch_up()

    def catch_up(self) -> None:
        """Apply the verdicts in the store; with the lock."""
        while self.store.check([self.key("verdict", self._episode)]):
            verdict = Verdict.of_text(self.store.get(self.key("verdict", self._episode)).decode())
            self._episode += 1
            self._suspected.clear()
            for members in verdict.members:
                self.generations[members] = self.generations.get(members, 0) + 1
                watched = self.watched.pop(members, None)
                if watched is not None:
                    watched.refuse(verdict)

    def late(self, members: Members, number: int, generation: int) -> list[int]:
        """The ranks that do not say that they have come to a call; for errors."""
        time.sleep(PATIENCE)
        try:
            return late(self._states(members), members, number, generation)
        except RuntimeError:
            return []

    def _look(self) -> None:
        while not self._ended.wait(TICK):
            if not dist.is_initialized() or dist.group.WORLD is not self.world:
                return
            now = time.monotonic()
            if not any(one.since and now - one.since > PATIENCE for one in list(self.watched.values())):
                continue
            try:
                self._tick()
            except RuntimeError:  # the store has ended with the process that serves it
                return

    def _tick(self) -> None:
        with self.lock:
            self.catch_up()
            episode = self._episode
        self._beat += 1
        state = RankState(self._beat, tuple(one.state() for one in list(self.watched.values())))
        self.store.set(self.key("state", episode, self.rank), state.to_text())
        verdict = self._judged()
        if verdict is not None:
            with self.lock:
                if self._episode == episode:  # what the ranks said is of this one
                    self._offer(verdict)

    def _states(self, ranks: Any) -> dict[int, RankState]:
        states = {}
        for rank in ranks:
            key = self.key("state", self._episode, rank)
            if self.store.check([key]):
                states[rank] = RankState.of_text(self.store.get(key).decode())
        return states

    def _judged(self) -> Verdict | None:
        states = self._states(range(dist.get_world_size()))
        verdict = other_call(states)
        if verdict is not None:  # once all of them have said theirs it names the right one
            first_beat = self._suspected.setdefault(verdict.members, (self._beat,))[0]
            everyone = all(rank in states for members in verdict.members for rank in members)
            return verdict if everyone or self._beat - first_beat > PATIENCE / TICK else None
        for circle in circles(states):
            # What ranks say is not of one moment; a circle that all of them have said anew since is one.
            beats = tuple(states[rank].beat for rank, _, _ in circle)
            first = self._suspected.setdefault(circle, beats)
            if all(now > then + 1 for now, then in zip(beats, first, strict=True)):
                return in_a_circle(states, circle)
        return None


def error_of(verdict: Verdict) -> RedistribError:
    """The error that all ranks raise."""
    return RAISED.get(verdict.kind, TilesError)(verdict.text)


def verdict_on(members: Members, rank: int, problem: RedistribError) -> Verdict:
    """What is wrong on one rank, for all."""
    kind = type(problem).__name__
    return Verdict((members,), kind, str(problem) if kind in RAISED else f"rank {rank}: {problem}")


_WATCHES: list[Watch] = []


def watch() -> Watch:
    """The thread of the default process group."""
    if not _WATCHES or _WATCHES[0].world is not dist.group.WORLD:
        for one in _WATCHES:
            one.end()
        _WATCHES[:] = [Watch()]
    return _WATCHES[0]
