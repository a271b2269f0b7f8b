"""The errors of calls of several processes, and how one process describes them to the others."""

from __future__ import annotations

import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redistrib.errors import CommunicatorError, RedistribError, WeightsFileError
from redistrib.launches.call_order import NumberedCall


@dataclass(frozen=True)
class CallsEnd:
    """The end of calls for all their processes; the first that is written into the store counts.

    Attributes:
        calls: those that end with it; more than one for a circle.
        error: described; None if all processes make the same call.
        after: the error ends no call of a rank up to this number, where the turns of `calls` count errors.
    """

    calls: tuple[NumberedCall, ...]
    error: Mapping[str, Any] | None = None
    after: int = 0

    @property
    def problem(self) -> RedistribError:
        """The error that all of these processes raise."""
        assert self.error is not None
        return error_of(self.error)

    def to_json(self) -> str:
        return json.dumps([[call.name for call in self.calls], self.error, self.after])

    @classmethod
    def from_json(cls, text: str) -> CallsEnd:
        names, error, after = json.loads(text)
        return cls(tuple(map(NumberedCall.parse, names)), error, after)


def difference(records: Mapping[int, str], differing: tuple[str, str]) -> dict[str, Any] | None:
    """The described error of processes that have come to one call with different records; None if all are equal."""
    if len(set(records.values())) == 1:
        return None
    names = {function_of(record) for record in records.values()}
    calls = ", ".join(f"{record} in process {process}" for process, record in sorted(records.items()))
    arguments, hint = differing
    what = f"call {names.pop()} with different {arguments}" if len(names) == 1 else "make different calls"
    text = f"the processes {sorted(records)} {what}: {calls}; nothing has moved, make the same call everywhere"
    text += f" ({hint})" if hint else ""
    return described(CommunicatorError(text), min(records))


def wrong_order(circle: Sequence[NumberedCall], records: Mapping[NumberedCall, Mapping[int, str]]) -> CommunicatorError:
    """The error of calls that wait for each other."""
    calls = "; ".join(
        f"{function_of(record)} in process {process} with the processes {list(call.processes)}"
        for call in circle
        for process, record in sorted(records.get(call, {}).items())
    )
    return CommunicatorError(
        f"processes wait for each other in different calls: {calls}; nothing has moved, make the same calls in the "
        "same order, with the same shardings, in every process that owns one of their devices"
    )


def function_of(record: str) -> str:
    return record.partition(" ")[0]


def not_made(absent: Sequence[int], why: str, members: Sequence[int], one: str = "process") -> CommunicatorError:
    """The error of a call that some of its processes, or ranks, do not make."""
    several = {"process": "processes", "rank": "ranks"}[one]
    who = f"{one} {absent[0]} has" if len(absent) == 1 else f"the {several} {list(absent)} have"
    return CommunicatorError(
        f"{who if absent else f'some {one} has'} {why}; every {one} that owns a device of the call must make it, with "
        f"the same arguments, here the {several} {list(members)}"
    )


def another_call(other: int, others: str, first: int, firsts: str) -> CommunicatorError:
    """The error of two ranks that make different calls, from both in words."""
    return CommunicatorError(
        f"rank {other} makes another call than rank {first}: {others}, and rank {first}: {firsts}; make the same calls "
        "in the same order on all ranks"
    )


def described(error: Exception, process: int) -> dict[str, Any]:
    """An error as data for other processes."""
    if isinstance(error, WeightsFileError):
        return {"path": error.path, "tensor": error.tensor, "reason": f"{error.reason} (in process {process})"}
    if isinstance(error, RedistribError):
        with suppress(Exception):
            return {"pickled": b64encode(pickle.dumps(error)).decode()}
    return {"message": f"process {process}: {type(error).__name__}: {error}"}


def error_of(data: Mapping[str, Any]) -> RedistribError:
    """An error from its data."""
    if "reason" in data:
        return WeightsFileError(data["path"], data["tensor"], data["reason"])
    if "pickled" in data:  # by a process of this job
        error: RedistribError = pickle.loads(b64decode(data["pickled"]))
        return error
    return CommunicatorError(data["message"])
