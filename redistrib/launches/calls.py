"""Numbered calls of processes: either all of them make a call, or all of them raise the same error.

A process that comes to a call leaves a record of it in the key-value store of the job. The last one to come compares
all records and writes the end of the call, for which the others wait. An error ends a call at once: the process that
has it need not wait. The first end that is written counts, so all processes draw the same conclusion, also those that
come later.

Calls of one set of processes are numbered, so that an error in one of them never mixes two calls. Processes with
different sets of processes in mind wait in different calls. They find that out by a circle: process a has come to a
call that b has not come to, and b to a call that a has not come to, perhaps with more processes between them. Where all
make the same calls in one order there is no circle. All calls of a circle end with the same error.

A call on which its processes have agreed before takes one message: they meet at a barrier that has the call in its
name. If it fails, because a process is late or makes another call, they go on as above.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from redistrib.errors import CommunicatorError, RedistribError
from redistrib.launches import liveness, times
from redistrib.launches.call_errors import (
    CallsEnd,
    described,
    difference,
    error_of,
    function_of,
    not_made,
    wrong_order,
)
from redistrib.launches.call_order import NumberedCall, circle_of
from redistrib.launches.store import JobStore
from redistrib.report import in_ranges

_MOST_AGREED = 4096  # calls that are remembered for one set of processes


class Calls:
    """The calls of this process, one after the other.

    Args:
        store: the store of the job.
        process: the number of this process.
        channel: of the calls. Those of different channels are made by different threads, in any order.
    """

    def __init__(self, store: JobStore, process: int, channel: str = "calls") -> None:
        self._store, self._process, self._channel = store, process, channel
        self._turns: dict[tuple[int, ...], int] = {}  # of the next call
        self._deleted: dict[tuple[int, ...], int] = {}  # number of turns whose records are deleted
        self._agreed: dict[tuple[int, ...], set[str]] = {}
        self._broken: dict[tuple[int, ...], str] = {}
        self._identities: dict[int, str] = {}
        self._lock = threading.RLock()
        self._store.put(f"alive/{process}", liveness.identity(), replace=True)

    def meet(self, processes: tuple[int, ...], record: str, differing: tuple[str, str]) -> None:
        """Return when all processes are about to make the same call.

        Args:
            processes: those that take part, ascending; this process is one of them.
            record: of the call, equal in processes that make the same call; its first word names the function.
            differing: the arguments that may differ, and a hint, for the message.

        Raises:
            RedistribError: in all of them, if their calls differ, one has an error, or one does not come.
        """
        agreed = self._agreed.setdefault(processes, set())
        with self._lock:
            if record in agreed and processes not in self._broken and self._met_again(processes, record):
                return
            self._exchange(processes, record, differing)
            if len(agreed) == _MOST_AGREED:
                agreed.clear()
            agreed.add(record)

    def gather(
        self, processes: tuple[int, ...], record: str, differing: tuple[str, str], note: str, seconds: float = 0.0
    ) -> list[str]:
        """As `meet`, and the notes of all processes, in the order of their numbers; of any length.

        They may come so many seconds later.
        """
        with self._lock:
            notes = self._exchange(processes, record, differing, note, seconds)
        return [notes[process] for process in processes]

    def fail(self, processes: tuple[int, ...], record: str, error: Exception) -> RedistribError:
        """Tell the other processes, when they come to the call, that this one has an error; do not wait for them.

        Returns:
            The error that all of them raise, which is that of the first process that has one.
        """
        told = described(error, self._process)
        with self._lock:
            while True:
                call = self._next(processes)
                end = self._ended(call, CallsEnd((call,), told))  # before the record, which others would compare
                self._store.put(f"calls/{self._channel}/{call.name}/{self._process}", record)
                if not self._was_over(call, end):
                    self._pass_over(end)
                    return error_of(end.error or told)

    def break_off(self, processes: tuple[int, ...], error: BaseException) -> CommunicatorError:
        """Tell the other processes that a move which they have begun does not end; the error for all of them.

        The links between them are of no use from then on, since the others wait for data in them.
        """
        text = str(error).partition("\n")[0] or type(error).__name__
        why = (
            f"the processes {list(processes)} did not finish a move between them: process {self._process}: {text}; end "
            "the job, and start it again"
        )
        self._store.put(f"broken/{in_ranges(processes)}", why)
        self._broken[processes] = self._store.get(f"broken/{in_ranges(processes)}", 1.0) or why
        return CommunicatorError(self._broken[processes])

    def require_whole(self, processes: tuple[int, ...]) -> None:
        """Refuse processes one of which has broken a move off.

        Raises:
            CommunicatorError: the same in all of them.
        """
        why = self._store.get(f"broken/{in_ranges(processes)}", 0.001)
        if why is not None:
            self._broken[processes] = why
            raise CommunicatorError(why)

    def end(self) -> None:
        """Tell the other processes that this one ends, and comes to no more calls."""
        with suppress(CommunicatorError):
            self._store.put(f"ended/{self._process}", "")

    # ------------------------------------------------------------------------------------------- one call

    def _exchange(
        self,
        processes: tuple[int, ...],
        record: str,
        differing: tuple[str, str],
        note: str | None = None,
        seconds: float = 0.0,
    ) -> dict[int, str]:
        """Make the next call; the notes of all."""
        while True:
            call = self._next(processes)
            if note is not None:
                for k, part in enumerate(_chunks(note)):
                    self._store.put(f"notes/{self._channel}/{call.name}/{self._process}/{k:06d}", part)
            self._store.put(f"calls/{self._channel}/{call.name}/{self._process}", record)
            end = self._wait(call, record, differing, times.WAIT_SECONDS + seconds)
            if self._was_over(call, end):
                continue
            if end.error is not None:
                self._pass_over(end)
                raise end.problem
            notes = self._notes(call) if note is not None else {}
            self._delete_before(call)
            return notes

    def _next(self, processes: tuple[int, ...]) -> NumberedCall:
        if processes in self._broken:
            raise CommunicatorError(self._broken[processes])
        call = NumberedCall(processes, self._turns.get(processes, 0))
        self._turns[processes] = call.turn + 1
        return call

    def _was_over(self, call: NumberedCall, end: CallsEnd) -> bool:
        """Whether a call ended by the error of another one that this process has made: it has raised that error."""
        return any(other != call and other.turn < self._turns.get(other.processes, 0) for other in end.calls)

    def _pass_over(self, end: CallsEnd) -> None:
        """Count the other calls that an error has ended as made."""
        for call in end.calls:
            if self._process in call.processes and call.turn >= self._turns.get(call.processes, 0):
                self._turns[call.processes] = call.turn + 1
                self._store.put(f"calls/{self._channel}/{call.name}/{self._process}", "an error of another call")

    def _wait(self, call: NumberedCall, record: str, differing: tuple[str, str], most: float) -> CallsEnd:
        """The end of a call to which this process has come."""
        came = self._came(call)
        if len(came) == len(call.processes):
            return self._ended(call, CallsEnd((call,), difference(came, differing)))
        longest = times.LOOK_SECONDS * max(1.0, len(call.processes) / 64)
        for pause in times.pauses(most, times.LOOK_SECONDS / 20, longest):
            end = self._store.get(f"ends/{self._channel}/{call.name}", pause)
            end_here = CallsEnd.from_json(end) if end is not None else self._stuck(call, record)
            if end_here is not None:
                return end_here
        absent = sorted(set(call.processes) - self._came(call).keys())
        why = f"not called {function_of(record)}" if absent else "not answered"
        return self._ended_here(call, not_made(absent, f"{why} within {most:g} s", call.processes))

    def _stuck(self, call: NumberedCall, record: str) -> CallsEnd | None:
        """The end of a call that cannot be made; None if it can."""
        records: dict[NumberedCall, dict[int, str]] = {}
        for key, value in self._store.under(f"calls/{self._channel}/"):
            *_, ranges, turn, process = key.split("/")
            records.setdefault(NumberedCall.parse(f"{ranges}/{turn}"), {})[int(process)] = value
        self.require_whole(call.processes)
        lacking = {each: set(each.processes) - came.keys() for each, came in records.items()}
        circle = sorted({each for _, each in circle_of(records, lacking, (self._process, call))})
        if circle:
            return self._all_ended(circle, wrong_order(circle, records))
        absent = sorted(set(call.processes) - records.get(call, {}).keys())
        gone = [process for process in absent if self._has_ended(process)]
        if not gone:
            return None
        return self._ended_here(call, not_made(gone, f"ended, and not called {function_of(record)}", call.processes))

    def _ended_here(self, call: NumberedCall, error: CommunicatorError) -> CallsEnd:
        return self._ended(call, CallsEnd((call,), described(error, self._process)))

    def _has_ended(self, process: int) -> bool:
        """Whether a process comes to no more calls: it has said so, or has died on this host."""
        if self._store.get(f"ended/{process}", 0.001) is not None:
            return True
        if process not in self._identities and (other := self._store.get(f"alive/{process}", 0.001)):
            self._identities[process] = other
        return liveness.has_died(self._identities.get(process, ""))

    def _all_ended(self, circle: Sequence[NumberedCall], error: CommunicatorError) -> CallsEnd:
        """End all calls of a circle with one error; with that of the first that has ended already."""
        ends = [self._store.get(f"ends/{self._channel}/{call.name}", 0.001) for call in circle]
        found = next((CallsEnd.from_json(end).error for end in ends if end is not None), None)
        end = CallsEnd(tuple(circle), found or described(error, self._process))
        for call in circle:
            first = self._ended(call, end)
            end = CallsEnd(end.calls, first.error or end.error)
        return end

    def _ended(self, call: NumberedCall, end: CallsEnd) -> CallsEnd:
        """Write the end of a call, and read the one that was written first."""
        key = f"ends/{self._channel}/{call.name}"
        if self._store.put(key, end.to_json()):
            return end
        return CallsEnd.from_json(self._store.get(key, 10.0) or end.to_json())

    def _met_again(self, processes: tuple[int, ...], record: str) -> bool:
        """Whether all processes have come to the barrier of a call on which they have agreed before."""
        turn = self._turns.get(processes, 0)
        barrier = f"{self._channel}/{NumberedCall(processes, turn).name}/{record}"
        return self._store.meet(barrier, processes, min(times.REPEATED_SECONDS, times.WAIT_SECONDS))

    # ------------------------------------------------------------------------------------------- the store

    def _came(self, call: NumberedCall) -> dict[int, str]:
        """The records of the processes that have come to a call."""
        pairs = self._store.under(f"calls/{self._channel}/{call.name}/")
        return {int(key.rpartition("/")[2]): value for key, value in pairs}

    def _notes(self, call: NumberedCall) -> dict[int, str]:
        parts: dict[int, dict[str, str]] = {}
        for key, value in self._store.under(f"notes/{self._channel}/{call.name}/"):
            process, part = key.split("/")[-2:]
            parts.setdefault(int(process), {})[part] = value
        return {process: "".join(by_part[k] for k in sorted(by_part)) for process, by_part in parts.items()}

    def _delete_before(self, call: NumberedCall) -> None:
        """Delete the earlier turns of a call: all have come to this one, so all have read the ends of those before."""
        first, self._deleted[call.processes] = self._deleted.get(call.processes, 0), call.turn
        if call.processes[0] == self._process:
            for turn in range(first, call.turn):
                name = NumberedCall(call.processes, turn).name
                for kind, slash in (("calls", "/"), ("notes", "/"), ("ends", "")):
                    self._store.delete(f"{kind}/{self._channel}/{name}{slash}")


def _chunks(text: str) -> Iterator[str]:
    """A text in parts of at most 2**20 characters; at least one."""
    for k in range(0, max(1, len(text)), 2**20):
        yield text[k : k + 2**20]
