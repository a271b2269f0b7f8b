"""Agreement of processes on one call, before anything moves: collectives that do not match hang, or mix arrays.

Processes meet at barriers of `jax.distributed`. A barrier either lets all its processes pass or fails for all of them,
including those that come later. So all processes draw the same conclusion, and later calls match after an error.

Processes exchange a new digest, in four messages. A digest on which they agreed before needs one message: the name of
the barrier contains the digest, so only processes with the same call meet there. If it fails, because another process
is late or makes another call, they exchange digests.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import jax

from redistrib.backends.jax import private
from redistrib.errors import CommunicatorError

WAIT_SECONDS = 300  # for a process that takes longer to plan and compile, or never calls
REPEATED_SECONDS = 2  # for a process at the barrier of a digest on which all have agreed before
_MOST_DIGESTS = 4096  # that are remembered for one set of processes


def digest_of(parts: Iterable[object]) -> str:
    """A digest of the call of a process."""
    total = hashlib.sha256()
    for part in parts:
        total.update(f"{part}\n".encode())
    return total.hexdigest()[:16]


class _Group:
    """The calls of some processes, as seen by this process.

    Attributes:
        processes: those that take part, ascending; this process is one of them.
        exchanges: number of exchanges of digests that this process has begun; equal in all processes.
        agreed: digests on which all of them have agreed.
        lock: held during a call, so that threads call one after the other.
    """

    def __init__(self, processes: tuple[int, ...]) -> None:
        self.processes = processes
        self.exchanges = 0
        self.agreed: set[str] = set()
        self.lock = threading.Lock()
        self._name = f"redistrib/reshard/{'-'.join(map(str, processes))}"

    def meets_again(self, store: Any, digest: str) -> bool:
        """Whether all processes repeat a call on which they have agreed before."""
        seconds = min(REPEATED_SECONDS, WAIT_SECONDS)
        return digest in self.agreed and self._meet(store, f"{self._name}/{self.exchanges}/{digest}", seconds)

    def exchange(self, store: Any, digest: str) -> None:
        """Send a digest to the other processes, wait for theirs, and compare.

        Raises:
            CommunicatorError: if they differ, or a process does not come; see `agree`.
        """
        turn, me = self.exchanges, jax.process_index()
        self.exchanges += 1
        digests = f"{self._name}/digests/{turn}/"
        store.key_value_set(f"{digests}{me}", digest)
        complete = self._meet(store, f"{self._name}/{turn}", WAIT_SECONDS)
        by_process = {int(key.rpartition("/")[2]): value for key, value in store.key_value_dir_get(digests)}
        if not complete:
            absent = sorted(set(self.processes) - set(by_process))
            raise CommunicatorError(self._same_everywhere(store, f"{self._name}/absent/{turn}", self._absent(absent)))
        if turn > 0:  # all are in this exchange, so all have read the digests of the one before
            store.key_value_delete(f"{self._name}/digests/{turn - 1}/{me}")
        if len(set(by_process.values())) > 1:
            calls = ", ".join(f"{value} in process {process}" for process, value in sorted(by_process.items()))
            raise CommunicatorError(
                f"the processes {list(self.processes)} call reshard with different trees, shardings or options: the "
                f"digests of their plans are {calls}; nothing has moved, call it with the same everywhere"
            )
        if len(self.agreed) == _MOST_DIGESTS:
            self.agreed.clear()
        self.agreed.add(digest)

    def _meet(self, store: Any, barrier: str, seconds: float) -> bool:
        """Wait for all processes at a barrier; whether they came in time."""
        try:
            store.wait_at_barrier(barrier, round(1000 * seconds), process_ids=list(self.processes))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE" not in str(error):
                raise
            return False
        return True

    def _absent(self, absent: Sequence[int]) -> str:
        match absent:
            case []:
                who = "some process has"
            case [process]:
                who = f"process {process} has"
            case _:
                who = f"the processes {list(absent)} have"
        return (
            f"{who} not called reshard within {WAIT_SECONDS} s; every process that owns a device of the source or of "
            f"the target must call it with the same tree, here the processes {list(self.processes)}"
        )

    def _same_everywhere(self, store: Any, key: str, message: str) -> str:
        """The message of the process that was the first to have one."""
        try:
            store.key_value_set(key, message)
        except jax.errors.JaxRuntimeError as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
            message = store.blocking_key_value_get(key, 1000)
        return message


_GROUPS: dict[tuple[int, ...], _Group] = {}


def agree(processes: Sequence[int], digest: str) -> None:
    """Wait until all processes that take part, this one included, are about to make the same call.

    Raises:
        CommunicatorError: if their calls differ, or if one has not come within `WAIT_SECONDS`; the same message in
            every process, including those that come later.
    """
    store = private.notes_of_processes()
    if store is None:
        return
    group = _GROUPS.setdefault(tuple(processes), _Group(tuple(processes)))
    with group.lock:
        if not group.meets_again(store, digest):
            group.exchange(store, digest)
