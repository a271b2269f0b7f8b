"""Calls that are to be refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import redistrib as rd


def errors_of(calls: Sequence[Callable[[], object]]) -> list[str]:
    """Class and message of the error that each call ends with."""
    messages = []
    for call in calls:
        try:
            call()
        except rd.RedistribError as error:
            messages.append(f"{type(error).__name__}: {error}")
        else:
            raise AssertionError("no error")
    return messages
