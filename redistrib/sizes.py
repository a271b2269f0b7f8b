"""Amounts of memory as people write them."""

from __future__ import annotations

import re
from fractions import Fraction

from redistrib.arith import as_integer
from redistrib.errors import ChoiceError
from redistrib.errors.synthesis import MOST_BYTES

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_DIGITS = 32  # a whole number of more digits is above the most


def parse_size(value: int | str) -> int:
    """Bytes from an integer, NumPy's included, or a text with a unit; a part of a byte is dropped.

    Raises:
        ChoiceError: if it is neither, not positive, or above 2**63 - 1 bytes.

    >>> parse_size("2GiB"), parse_size("1.5 kB"), parse_size(64)
    (2147483648, 1500, 64)
    """
    size = as_integer(value)
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*+([A-Za-z]*)", value.strip())
        if match and match[2].upper() in _UNITS:
            # exact, unlike floats; and digits beyond these decide nothing but how long it takes
            whole, _, part = match[1].lstrip("0").partition(".")
            size = int(Fraction(f"0{whole[:_DIGITS]}.{part[:_DIGITS]}0") * _UNITS[match[2].upper()])
    if size is None or size < 1:
        raise ChoiceError("memory size", value=value)
    if size > MOST_BYTES:
        raise ChoiceError("memory size above most", value=value, most=MOST_BYTES)
    return size
