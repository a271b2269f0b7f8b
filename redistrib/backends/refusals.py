"""The refusals of a backend as one line of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redistrib.errors import RedistribError

_Runnable = TypeVar("_Runnable")


def refusal(require: Callable[[_Runnable], None], runnable: _Runnable) -> str | None:
    """The message of the error that `require` raises for a plan or a program; None if it raises none."""
    try:
        require(runnable)
    except RedistribError as error:
        return " ".join(str(error).split())
    return None
