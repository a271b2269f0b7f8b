"""Calls that are to be refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redistrib as rd


def told(call: Callable[[], Any]) -> str:
    """The error of a call: class and message."""
    try:
        call()
    except rd.RedistribError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def errors_of(calls: Sequence[Callable[[], object]]) -> list[str]:
    """Class and message of the error that each call ends with."""
    messages = [told(call) for call in calls]
    assert "no error" not in messages, messages
    return messages
