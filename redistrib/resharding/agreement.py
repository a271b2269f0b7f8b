"""Do all processes move the same tree? Asked before anything moves: collectives that do not match hang."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import jax

from redistrib.backends.jax import private
from redistrib.errors import CommunicatorError

WAIT_SECONDS = 300  # for a process that takes longer to plan and compile, or never calls

_CALLS: Counter[tuple[int, ...]] = Counter()  # by the processes that take part


def digest_of(parts: Iterable[object]) -> str:
    """A digest of what a process is about to do."""
    total = hashlib.sha256()
    for part in parts:
        total.update(f"{part}\n".encode())
    return total.hexdigest()[:16]


def agree(processes: Sequence[int], digest: str) -> None:
    """Wait until all processes that take part have told what they are about to do; this process is one of them.

    Raises:
        CommunicatorError: if they are about to do different things, with one message in every process; or if one has
            not told within `WAIT_SECONDS`.
    """
    store = private.notes_of_processes()
    if store is None:
        return
    group = tuple(processes)
    own, turn = jax.process_index(), _CALLS[group]
    _CALLS[group] += 1
    name = f"redistrib/reshard/{'-'.join(map(str, group))}"
    store.key_value_set(f"{name}/{turn}/{own}", digest)
    if turn > 1:  # all have read it: they have told of the call after it
        store.key_value_delete(f"{name}/{turn - 2}/{own}")
    told = {}
    for process in group:
        try:
            told[process] = store.blocking_key_value_get(f"{name}/{turn}/{process}", 1000 * WAIT_SECONDS)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE" not in str(error):
                raise
            raise CommunicatorError(
                f"process {process} has not called reshard within {WAIT_SECONDS} s; every process that owns a device "
                f"of the source or of the target must call it with the same tree, here the processes {list(group)}"
            ) from None
    if len(set(told.values())) > 1:
        calls = ", ".join(f"{digest} in process {process}" for process, digest in told.items())
        raise CommunicatorError(
            f"the processes {list(group)} call reshard with different trees, shardings or options: the digests of "
            f"their plans are {calls}; nothing has moved, call it with the same everywhere"
        )
