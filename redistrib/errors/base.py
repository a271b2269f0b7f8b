"""What all errors have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RedistribError(ValueError):
    """Base class of every error that the library raises on purpose.

    Errors survive pickling with all their attributes, so they may cross process boundaries.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith(f"{__package__}."):
            cls.__module__ = str(__package__)  # where users find it, and what tracebacks show

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, dict(self.__dict__))


def _restore(kind: type[RedistribError], args: tuple[Any, ...], values: dict[str, Any]) -> RedistribError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(values)
    return error


def listed(names: Sequence[str]) -> str:
    """Names, quoted, for a message."""
    return ", ".join(repr(name) for name in names) if names else "none"


RedistribError.__module__ = str(__package__)
