"""Meetings of the processes that load or save together: an error of one process is raised in all of them."""

from __future__ import annotations

import json
import pickle
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax

from redistrib.backends.jax import private
from redistrib.errors import CommunicatorError, RedistribError, WeightsFileError

WAIT_SECONDS = 300  # for a process that is slow, or makes no call
_CHUNK = 2**20  # characters of one note

Value = TypeVar("Value")

_TURNS: dict[tuple[int, ...], int] = {}  # number of meetings of these processes so far


class Meeting:
    """Processes that make the same call.

    Args:
        processes: their numbers; this process is one of them.
    """

    def __init__(self, processes: Sequence[int]) -> None:
        self.processes = tuple(sorted(processes))
        self._store: Any = private.notes_of_processes() if len(self.processes) > 1 else None
        if len(self.processes) > 1 and self._store is None:
            raise CommunicatorError("several processes load together under jax.distributed.initialize alone; call it")

    @property
    def leads(self) -> bool:
        """Whether this process is the first of them."""
        return self.processes[0] == jax.process_index()

    def gathered(self, note: str) -> list[str]:
        """The notes of all processes, in the order of their numbers.

        Raises:
            CommunicatorError: if a process does not come within `WAIT_SECONDS`.
        """
        if self._store is None:
            return [note]
        turn = _TURNS.get(self.processes, 0)
        _TURNS[self.processes] = turn + 1
        prefix = f"redistrib/weights/{'-'.join(map(str, self.processes))}"
        parts = [note[k : k + _CHUNK] for k in range(0, len(note), _CHUNK)] or [""]
        directory = f"{prefix}/{turn}/{jax.process_index()}"
        for k, part in enumerate(parts):
            self._store.key_value_set(f"{directory}/{k:06d}", part)
        try:
            self._store.wait_at_barrier(f"{prefix}/meet/{turn}", WAIT_SECONDS * 1000, process_ids=list(self.processes))
        except jax.errors.JaxRuntimeError as error:
            raise CommunicatorError(
                f"the processes {list(self.processes)} load or save together, and not all of them have come within "
                f"{WAIT_SECONDS} s: {str(error).splitlines()[0]}"
            ) from None
        notes: dict[int, dict[str, str]] = {process: {} for process in self.processes}
        for key, value in self._store.key_value_dir_get(f"{prefix}/{turn}/"):
            process, part = key.split("/")[-2:]
            notes[int(process)][part] = value
        if turn > 0:  # all are in this meeting, so all have read the notes of the last one
            self._store.key_value_delete(f"{prefix}/{turn - 1}/{jax.process_index()}/")
        return ["".join(parts[k] for k in sorted(parts)) for parts in notes.values()]

    def agreed(self, act: Callable[[], Value], note: Callable[[Value], str] | None = None) -> tuple[Value, list[str]]:
        """Call `act` in every process, and meet: the result of this process, and the notes of all.

        Raises:
            RedistribError: in all processes, the error of the first that has one.
        """
        failed: Exception | None = None
        try:
            value = act()
            text = json.dumps({"note": "" if note is None else note(value)})
        except Exception as error:
            if self._store is None:
                raise
            failed, text = error, json.dumps({"error": _described(error)})
        entries = [json.loads(entry) for entry in self.gathered(text)]
        for process, entry in zip(self.processes, entries, strict=True):
            if "error" in entry:
                raise _error_of(process, entry["error"]) from failed
        return value, [entry["note"] for entry in entries]


def packed(text: str) -> str:
    """A long text, compressed for a note."""
    return b64encode(zlib.compress(text.encode(), 1)).decode()


def unpacked(text: str) -> str:
    """The text of `packed`."""
    return zlib.decompress(b64decode(text)).decode()


def _described(error: Exception) -> dict[str, str]:
    if isinstance(error, WeightsFileError):
        return {"path": error.path, "tensor": error.tensor, "reason": error.reason}
    if isinstance(error, RedistribError):
        return {"pickled": b64encode(pickle.dumps(error)).decode()}
    return {"message": str(error), "kind": type(error).__name__}


def _error_of(process: int, note: dict[str, str]) -> RedistribError:
    """The error of a process, with the same message in all processes."""
    if "reason" in note:
        return WeightsFileError(note["path"], note["tensor"], f"{note['reason']} (in process {process})")
    if "pickled" in note:  # by a process of this job
        error: RedistribError = pickle.loads(b64decode(note["pickled"]))
        return error
    return CommunicatorError(f"process {process}: {note['kind']}: {note['message']}")
