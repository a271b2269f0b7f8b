"""What all errors have in common."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


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


class RuleBroken(RedistribError):
    """One of several rules is broken: what most errors are, since callers rarely act on the rule itself.

    Attributes:
        wordings: of a class, the message of a rule by its name, with the offending values in braces: `{x!v}` as `shown`
            has it, `{x!l}` as `listed`, `{x!c}` cut. A rule that has none is given its message.
        rule: the rule, by name.
        values: the offending values by name. Each is an attribute of the error as well.
    """

    wordings: ClassVar[Mapping[str, str]] = {}

    def __init__(self, rule: str, message: str = "", /, **values: object) -> None:
        super().__init__(message or _Wording().vformat(self.wordings[rule], (), values))
        self.rule, self.values = rule, values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}") from None


class _Wording(string.Formatter):
    def convert_field(self, value: Any, conversion: Any) -> Any:
        ways = {"v": shown, "l": listed, "c": lambda text: cut(text, 200)}
        return ways[conversion](value) if conversion in ways else super().convert_field(value, conversion)


def _restore(kind: type[RedistribError], args: tuple[Any, ...], values: dict[str, Any]) -> RedistribError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(values)
    return error


def listed(names: Sequence[str], most: int = 16) -> str:
    """Names, quoted, for a message; the first ones of many."""
    if len(names) > most:
        return f"{listed(names[:most])} and {len(names) - most} more"
    return ", ".join(shown(name) for name in names) if names else "none"


def shown(value: object, most: int = 80) -> str:
    """What `repr` says, cut to so many characters; for values that may be of any size, or have no `repr`."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python writes, or lists too deep for it
        return f"a value of type {type(value).__name__} that is too large to print"
    return cut(text, most)


def cut(text: str, most: int = 80) -> str:
    """A text, its end left out if it has more than so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


RedistribError.__module__ = str(__package__)
