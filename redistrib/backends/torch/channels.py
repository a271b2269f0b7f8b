"""Channels: the sequence of calls of the same ranks, on a process group of their own.

The tag of every message is a digest of all calls so far, so messages of different calls never match. Ranks that make
different calls then wait; `watch` notices, and ends the process group, which wakes all ranks that wait in it. The
default group goes on, and the next call creates a new group. This costs calls no message.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import torch.distributed as dist

from redistrib.backends.torch.agreement import GroupCall, require_equal
from redistrib.backends.torch.links import Links, is_gloo
from redistrib.backends.torch.tagged_links import COMPARING, TaggedLinks
from redistrib.backends.torch.watch import TICK, WATCH, Watch
from redistrib.backends.torch.world import OfWorld
from redistrib.digests import digest_of_parts
from redistrib.errors import CommunicatorError, RedistribError
from redistrib.launches import times
from redistrib.launches.agreement import of_rank
from redistrib.launches.call_errors import CallsEnd
from redistrib.launches.call_order import NumberedCall
from redistrib.launches.deadlocks import CallsState, Members, RecentCall, ended
from redistrib.report import in_ranges

_REMEMBERED = 32  # recent calls of a rank, in which the first difference is sought
_TAGS = COMPARING - 1


class Channel:
    """The sequence of calls that this rank makes together with certain ranks.

    Attributes:
        members: their global ranks, ascending; their places are the device numbers of plans.
        since: when the present call began, by `time.monotonic`; 0 if none is under way.
    """

    def __init__(self, members: Members, before: Channel | None = None) -> None:
        """`before` ends when all ranks have left it, since its messages may be under way."""
        self.members, self._before = members, before
        self.since = 0.0
        self._number, self._history, self._compares = 0, 0, False
        self._compared: set[int] = set()
        self._recent: deque[RecentCall] = deque(maxlen=_REMEMBERED)
        self._refused: CallsEnd | None = None
        self._links: Links | None = None
        self._watch: Watch | None = None
        self._generation = 0
        if len(members) == 1 or not is_gloo():  # calls return when enqueued, so no rank waits
            self._links = Links(None, members)
        else:
            self._watch = WATCH.get()
            with self._watch.lock:
                self._generation = self._watch.turns[members]
                self._refused = self._watch.ends.get(self.state().turn)
                self._watch.watched[members] = self

    @property
    def links(self) -> Links:
        """The processes, during a call."""
        assert self._links is not None
        return self._links

    def knows(self, call: GroupCall) -> bool:
        """Whether all ranks have agreed on an equal call before."""
        return call.digest in self._compared

    def is_open(self) -> bool:
        """Whether the next call may use it: False if it ended with an error that this rank has raised."""
        if self._watch is not None and self._watch.problems:
            self._watch.claim(self.state)
        return self._watch is None or self._generation == self._watch.turns[self.members]

    @property
    def has_met(self) -> bool:
        """Whether its processes have a process group."""
        return self._links is not None

    @property
    def is_refused(self) -> bool:
        """Whether the present call, or else the last one, ends with the error of a verdict."""
        return self._refused is not None and self._number > self._refused.after

    def call(self, call: GroupCall, compares: bool = False) -> OpenCall:
        """A call, from its beginning to its end; arguments and errors as those of `begin`.

        Raises:
            RedistribError: also if the call fails on a rank, in a message or in anything else.
        """
        return OpenCall(self, call, compares)

    def begin(self, call: GroupCall, compares: bool = False) -> None:
        """Begin a call.

        Args:
            call: the call.
            compares: whether all ranks first `agree` on it.

        Raises:
            RedistribError: on every rank, if a rank has made another call since the last one.
        """
        if self._watch is None:
            return
        self._compares = compares
        self._number += 1
        words = f"{call.words}, compared" if compares else call.words
        self._recent.append(RecentCall(self._number, call.digest + compares, words))
        if not compares:
            self._history = _after(self._history, call.digest)
        self.since = time.monotonic()
        if self.is_refused:
            raise self._error()
        if self._links is None:
            self._links = self._meet()
        self._tag(COMPARING if compares else 0)

    def agree(self, call: GroupCall, problem: RedistribError | None = None) -> None:
        """Compare the call that has begun with those of all ranks; collective.

        Raises:
            RedistribError: on every rank, if two make different calls, or a rank has a problem.
        """
        try:
            require_equal(self.links, call, problem)
        except RedistribError:  # the histories of the ranks differ here, and must be equal again
            self._recent.pop()
            self._history = _after(self._history, self._number)
            raise
        self._compared.add(call.digest)
        self._compares = False
        self._history = _after(self._history, call.digest)
        self._tag(0)

    def _tag(self, kind: int) -> None:
        if isinstance(self._links, TaggedLinks):
            self._links.begin(self._history & _TAGS | kind)

    def end(self) -> None:
        """End a call."""
        self.since = 0.0

    def refuse_here(self, problem: RedistribError) -> RedistribError:
        """Tell all ranks that this rank cannot make the call that has begun; returns the error of all ranks."""
        if self._watch is None:
            return problem
        self._watch.decide(ended([self.state()], of_rank(problem, dist.get_rank())), self)
        return self._error()

    def explain(self, error: Exception) -> RedistribError:
        """The error of a call that has failed on this rank, for all ranks."""
        failed = f"has failed: {type(error).__name__} {error}"
        if self._watch is None:
            return CommunicatorError(f"the call {failed}")
        verdict = self._awaited(times.LOOK_SECONDS)
        if verdict is not None:
            return verdict
        told = None
        if isinstance(error, RuntimeError):  # it may be a message that another rank has not answered
            why = "and its connection has ended: look there for the first error"
            told = self._watch.not_reached(self.state(), why)
        if told is None:
            told = CommunicatorError(f"on rank {self._watch.rank} {self._recent[-1].words} {failed}")
        try:
            self._watch.decide(ended([self.state()], told), self)
        except CommunicatorError:  # the store has ended, with the process that serves it
            return told
        return self._error()

    def state(self) -> CallsState:
        """The report on these calls for other ranks."""
        recent = tuple(self._recent.copy())
        return CallsState(
            self.members, self._generation, recent, self.since > 0 and not self.is_refused, self._compares
        )

    def refuse(self, verdict: CallsEnd) -> None:
        """End the present call, or the next one, with an error; called by the watch."""
        if self.is_refused or NumberedCall(self.members, self._generation) not in verdict.calls:
            return
        self._refused = verdict
        if isinstance(self._links, TaggedLinks) and (not verdict.after or (self.since and self.is_refused)):
            self._links.end()

    def _error(self) -> RedistribError:
        assert self._refused is not None
        assert self._watch is not None
        with self._watch.lock:
            self._watch.passed(self._refused)  # it is raised once, by the first of its channels
        return self._refused.problem

    def _awaited(self, longest: float) -> RedistribError | None:
        """The error of the verdict; None if there is none within `longest` seconds."""
        assert self._watch is not None
        end = time.monotonic() + longest
        while not self.is_refused and time.monotonic() < end:
            time.sleep(TICK / 10)
            try:
                with self._watch.lock:
                    self._watch.catch_up()
            except CommunicatorError:
                break
        return self._error() if self.is_refused else None

    def _meet(self) -> TaggedLinks:
        """Wait for all ranks, and create their process group.

        The store may remember ranks of an earlier default group. So each rank writes a name of its own, and they go on
        when all have seen the same names.
        """
        assert self._watch is not None
        store, rank, names = self._watch.store, self._watch.rank, ""
        key = f"meet/{in_ranges(self.members)}/{self._generation}"
        store.put(f"{key}/{rank}", uuid4().hex, replace=True)
        arrivals, seen = ([f"{key}/{end}{member}" for member in self.members] for end in ("", "seen/"))
        while not self.is_refused:
            came = self._values(arrivals)
            if came and digest_of_parts(came) != names:
                names = digest_of_parts(came)
                store.put(f"{key}/seen/{rank}", names, replace=True)
            if came and set(self._values(seen)) == {names}:
                timeout = times.WAIT_SECONDS + self._watch.timeout  # for ranks that come late, and then for the data
                self._before = None
                return TaggedLinks(store, f"{key}/{names}", self.members, rank, timeout)
            time.sleep(0.001)
        raise self._error()

    def _values(self, keys: Sequence[str]) -> list[str]:
        """The values of all keys; none if one is not set soon."""
        assert self._watch is not None
        values: list[str] = []
        for key in keys:
            value = self._watch.store.get(key, 0.1)
            if value is None:
                return []
            values.append(value)
        return values


class OpenCall:
    """A call on a channel, as a context; a generator would take as long as a small move."""

    __slots__ = ("_call", "_channel", "_compares")

    def __init__(self, channel: Channel, call: GroupCall, compares: bool) -> None:
        self._channel, self._call, self._compares = channel, call, compares

    def __enter__(self) -> Channel:
        try:
            self._channel.begin(self._call, self._compares)
        except BaseException as error:
            self.__exit__(type(error), error)
            raise
        return self._channel

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: Any) -> None:
        try:
            if isinstance(error, Exception) and not isinstance(error, RedistribError):
                raise self._channel.explain(error) from error
        finally:
            self._channel.end()


def _after(history: int, digest: int) -> int:
    """A history of calls, as one number, and one more call."""
    return history * 6364136223846793005 + digest & (1 << 63) - 1


_CHANNELS: OfWorld[dict[Members, Channel]] = OfWorld(dict)


def channel_of(members: Members) -> Channel:
    """The channel of these ranks, this rank among them."""
    channels = _CHANNELS.get()
    channel = channels.get(members)
    if channel is None:
        channel = channels[members] = Channel(members)
    if not channel.is_open():
        channel = channels[members] = Channel(members, channel if channel.has_met else channel._before)
    return channel


def compare(members: Members, call: GroupCall, problem: RedistribError | None = None) -> None:
    """Compare the calls of these ranks, or tell them the problem of this rank.

    Raises:
        RedistribError: on every rank, if the calls differ, or a rank has a problem.
    """
    with channel_of(members).call(call, compares=True) as channel:
        channel.agree(call, problem)


def announce(problem: RedistribError) -> RedistribError:
    """Tell a problem of this rank where it is unknown which ranks wait for it; returns the error to raise.

    It ends a call that waits for this rank now, or the one before this rank's next call: each error counts as a call.
    """
    return problem if dist.get_world_size() == 1 or not is_gloo() else WATCH.get().announce(problem)
