"""One case under guard: its processor time is limited, and an exception that no caller should see is a `Failure`."""

from __future__ import annotations

import re
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from redistrib.errors import RedistribError

LIMIT = 5.0  # seconds of processor time
PACKAGE = "redistrib"

_T = TypeVar("_T")


class Failure(Exception):
    """Something that must not be.

    Attributes:
        kind: "wrong", "exception", "refused" or "slow".
        detail: what happened.
        place: where in the package, for exceptions.
        case: the case, in words or as a call.
    """

    def __init__(self, kind: str, detail: str, place: str = "", case: str = "") -> None:
        self.kind, self.detail, self.place, self.case = kind, detail, place, case
        super().__init__(f"{kind}: {detail}{f' at {place}' if place else ''}{f' in {case}' if case else ''}")

    @property
    def signature(self) -> str:
        """Equal for failures that are likely one: the detail without its numbers and quotations."""
        detail = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", self.detail)
        detail = re.sub(r"[0-9]+", "#", detail)
        return f"{self.kind}: {re.sub(r'#(?:[:,] ?#)+', '#', detail)[:80]} {self.place}".strip()


class _OutOfTime(BaseException):
    """Not an `Exception`, so that nothing on the way takes it for its own."""


@dataclass
class Clock:
    """Processor seconds of what ran under guard."""

    seconds: float = 0.0


@contextmanager
def _alarm(limit: float) -> Generator[None]:
    """`_OutOfTime` in the block after so many processor seconds, and none behind it: not while an error is told.

    `SIGPROF` would not do: libtpu, where it is loaded, sends it to itself all the time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGVTALRM, _ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)


@contextmanager
def guarded(limit: float = LIMIT) -> Generator[Clock]:
    """Run a case: a `Failure` for foreign exceptions, warnings, and for taking longer than `limit` processor seconds.

    The case ends at the limit where Python code runs, else as soon as it does.
    """
    clock, start = Clock(), time.process_time()
    try:
        with _alarm(limit), warnings.catch_warnings():
            warnings.simplefilter("error")
            yield clock
    except _OutOfTime as error:
        raise Failure("slow", f"not done after {limit:g} s", place(error)) from None
    except (RedistribError, Failure):
        raise
    except Exception as error:
        raise Failure("exception", f"{type(error).__name__}: {str(error)[:300]}", place(error)) from error
    finally:
        clock.seconds = time.process_time() - start
    if clock.seconds > limit:
        raise Failure("slow", f"took {clock.seconds:.1f} s")


def attempted(call: Callable[[], Any]) -> Any:
    """What the call returns, or the `RedistribError` that it raises, whose text must be sayable."""
    try:
        return call()
    except RedistribError as error:
        text = str(error)
        if not text or len(text) > 20_000:
            raise Failure("wrong", f"{type(error).__name__} with a text of {len(text)} characters") from error
        return error


def place(error: BaseException) -> str:
    """The innermost line of the package on the way to an exception."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f"/{PACKAGE}/" in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _ring(*_: object) -> None:
    raise _OutOfTime


def attempt(call: Callable[[], _T], case: str) -> _T | None:
    """The result of a call, or None if an error of the library refuses it.

    Raises:
        Failure: if that error has no text, or another exception comes out.
    """
    try:
        return call()
    except RedistribError as error:
        if not str(error):
            raise Failure("wrong", f"{type(error).__name__} without a text", case=case) from error
        return None
    except Exception as error:
        raise Failure("exception", f"{type(error).__name__}: {str(error)[:200]}", place(error), case) from error
