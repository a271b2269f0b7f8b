"""Parsing of memory sizes such as `2GiB`."""

from __future__ import annotations

import re
from fractions import Fraction

from redistrib.arith import as_integer
from redistrib.errors import ChoiceError
from redistrib.errors.synthesis import MOST_BYTES

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_DIGITS = 32  # an integer with more digits is above MOST_BYTES


def parse_size(value: int | str) -> int:
    """A size in bytes, from an integer of Python or NumPy, or from a text with a unit; fractions of a byte are dropped.

    Raises:
        ChoiceError: the value is neither, not positive, or above 2**63 - 1 bytes.

    >>> parse_size("2GiB"), parse_size("1.5 kB"), parse_size(64)
    (2147483648, 1500, 64)
    """
    size = as_integer(value)
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*+([A-Za-z]*)", value.strip())
        if match and match[2].upper() in _UNITS:
            # Fraction is exact, unlike floats; more digits would not change the result, but take time
            integer, _, fraction = match[1].lstrip("0").partition(".")
            size = int(Fraction(f"0{integer[:_DIGITS]}.{fraction[:_DIGITS]}0") * _UNITS[match[2].upper()])
    if size is None or size < 1:
        raise ChoiceError("memory size", value=value)
    if size > MOST_BYTES:
        raise ChoiceError("memory size above most", value=value, most=MOST_BYTES)
    return size
