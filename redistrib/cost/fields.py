"""Typed fields of the JSON of a profile; a ProfileError names a field of another type."""

from __future__ import annotations

from typing import Any, NoReturn

from redistrib.errors import ProfileError
from redistrib.errors.base import shown


def typed(data: dict[str, Any], field: str, *types: type) -> Any:
    """A field of one of these types; a boolean is no number, and an absent field is None."""
    value = data.get(field)
    return value if type(value) in types else _refuse(field, value)


def figures(value: object, subject: str, count: int = 2) -> list[float]:
    """A list of `count` numbers."""
    if not isinstance(value, list) or len(value) != count:
        _refuse(subject, value)
    return [figure(number, subject) for number in value]


def figure(value: Any, subject: str) -> float:
    """A number; a boolean is refused."""
    if type(value) not in (int, float):
        _refuse(subject, value)
    number: float = value
    return number


def _refuse(subject: str, value: object) -> NoReturn:
    raise ProfileError(f"the profile is malformed: {subject} is {shown(value)}; write one with `redistrib calibrate`")
