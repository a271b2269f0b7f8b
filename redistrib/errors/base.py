"""The base classes of all errors, and the shortening of values in messages."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class RedistribError(ValueError):
    """Base class of every error that the library raises on purpose.

    Errors survive pickling with all their attributes, so they may cross process boundaries.

    >>> import redistrib as rd
    >>> try:
    ...     rd.synthesize("[4{x}8]", "[4{y}8]", "x=2")
    ... except RedistribError as error:
    ...     print(type(error).__name__, error)
    UnknownAxisError mesh {x:2} has no axis 'y'; its axes are 'x'
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith(f"{__package__}."):
            cls.__module__ = str(__package__)  # tracebacks then show the module that users import

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, dict(self.__dict__))


class RuleBroken(RedistribError):
    """An error class for several rules, because callers rarely act on the single rule.

    Attributes:
        wordings: the messages of a class by the name of the rule. Offending values stand in braces: `shown` formats
            `{x!v}`, `listed` formats `{x!l}`, `cut` formats `{x!c}`. If a rule has no wording, the caller passes a
            message.
        rule: the name of the broken rule.
        values: the offending values by name. Every value is an attribute of the error as well.

    >>> import redistrib as rd
    >>> try:
    ...     rd.Mesh.of("x=0")
    ... except RuleBroken as error:
    ...     print(error.rule, error.name, error.size)
    axis size x 0
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
        formats = {"v": shown, "l": listed, "c": lambda text: cut(text, 200)}
        return formats[conversion](value) if conversion in formats else super().convert_field(value, conversion)


def _restore(kind: type[RedistribError], args: tuple[Any, ...], values: dict[str, Any]) -> RedistribError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(values)
    return error


def listed(names: Sequence[str], most: int = 16) -> str:
    """Names for a message, quoted and separated by commas; only the first `most` of a longer list."""
    if len(names) > most:
        return f"{listed(names[:most])} and {len(names) - most} more"
    return ", ".join(shown(name) for name in names) if names else "none"


GONE = "the array has been donated or deleted; pass one that is alive"
MASKED = "give .filled(), and .mask beside it"  # what else would lose the mask


def shown(value: object, most: int = 80) -> str:
    """The `repr` of a value, cut to `most` characters; the value may be of any size, and its `repr` may fail."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer with too many digits for Python, or lists nested too deeply
        return f"a value of type {type(value).__name__} that is too large to print"
    return cut(text, most)


def shown_leaf(value: object) -> str:
    """As `shown`, but of an array only the class and the shape."""
    shape = getattr(value, "shape", None)
    return shown(value) if shape is None else f"{type(value).__name__} of shape {shape}"


def cut(text: str, most: int = 80) -> str:
    """A text, with its end replaced by dots if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


RedistribError.__module__ = str(__package__)
