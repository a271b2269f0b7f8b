"""Checks of untrusted JSON values; an error names the path of the field at fault."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import numpy as np

from redistrib.digests import digest_of_parts
from redistrib.errors import PlanJsonError, RedistribError
from redistrib.errors.base import cut, shown
from redistrib.theory.placement import Int64

_T = TypeVar("_T")

DEPTH = 6  # lists and objects of a plan within one another
_MOST_OBJECTS = 4096  # sides, placements and steps, of which a plan has some twenty


def sealed(form: dict[str, Any]) -> str:
    """The text of a form with its digest."""
    return _canonical({**form, "digest": digest_of_form(form)})


def digest_of_form(form: dict[str, Any]) -> str:
    """SHA-256 of the text of a form, as hexadecimal digits."""
    return digest_of_parts([_canonical(form)], 64)


def _canonical(form: dict[str, Any]) -> str:
    return json.dumps(form, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parsed(text: str) -> Any:
    """The value of a JSON text, read in time linear in its length: few objects, no duplicate field, finite numbers.

    Raises:
        PlanJsonError: if it is not JSON, or has a value that no plan has.
        RecursionError: if it is nested too deep.
    """
    objects = itertools.count(1)

    def counted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if next(objects) > _MOST_OBJECTS:
            raise PlanJsonError(f"the text is not a plan: it has more than {_MOST_OBJECTS} objects")
        return _without_repeats(pairs)

    try:
        return json.loads(text, object_pairs_hook=counted, parse_float=_finite, parse_constant=_finite)
    except (PlanJsonError, RecursionError):
        raise
    except (ValueError, TypeError) as error:
        raise PlanJsonError(f"the text is not JSON: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    form = dict(pairs)
    if len(form) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                refuse(cut(name), "is given twice")
            seen.add(name)
    return form


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise PlanJsonError(f"the text is not a plan: {cut(literal)} is not a finite number")
    return number


def object_of(value: Any, where: str, fields: Iterable[str] | None, version: int = 1) -> dict[str, Any]:
    """An object, with exactly these fields unless None is given."""
    if not isinstance(value, dict):
        refuse(where, f"is {shown(value)}, where an object is expected")
    if fields is not None:
        expected = set(fields)
        for name in sorted(expected - value.keys()):
            refuse(where, f"lacks the field {name!r}")
        for name in sorted(value.keys() - expected):
            refuse(where, f"has the field {shown(name)}, which version {version} does not know")
    return value


def list_of(value: Any, where: str) -> list[Any]:
    """A list of anything."""
    if not isinstance(value, list):
        refuse(where, f"is {shown(value)}, where a list is expected")
    return value


def text_of(value: Any, where: str) -> str:
    """A string."""
    if not isinstance(value, str):
        refuse(where, f"is {shown(value)}, where a text is expected")
    return value


def row_of(value: Any, where: str) -> list[int]:
    """A list of integers."""
    row = list_of(value, where)
    for k, number in enumerate(row):
        if type(number) is not int:  # a bool is no number here
            refuse(f"{where}[{k}]", f"is {shown(number)}, where an integer is expected")
    return row


def numbers_of(value: Any, where: str) -> Int64:
    """A list of 64-bit integers."""
    return table_of([[number] for number in row_of(value, where)], where, 1)[:, 0]


def table_of(value: Any, where: str, columns: int | None) -> Int64:
    """A list of equally long lists of 64-bit integers."""
    rows = list_of(value, where)
    for k, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != (len(rows[0]) if columns is None else columns):
            length = "as long as the first" if columns is None else f"of {columns} integers"
            refuse(f"{where}[{k}]", f"is {shown(row)}, where a list {length} is expected")
    if not set(map(type, itertools.chain.from_iterable(rows))) <= {int}:
        for k, row in enumerate(rows):
            row_of(row, f"{where}[{k}]")
    try:
        table = np.array(rows, dtype=np.int64)
    except OverflowError:
        refuse(where, "has a number that does not fit 64 bits")
    return table.reshape(len(rows), columns if columns is not None else table.size // max(1, len(rows)))


def placed_at(where: str, build: Callable[[], _T]) -> _T:
    """The result of `build`; its errors get the path of the field."""
    try:
        return build()
    except PlanJsonError:
        raise
    except RedistribError as error:
        raise PlanJsonError(f"{where}: {error}", where) from error


def refuse(where: str, why: str) -> NoReturn:
    """Raise a PlanJsonError about a field."""
    raise PlanJsonError(f"{where} {why}", where)
