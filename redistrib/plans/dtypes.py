"""Element types by name, as plans record them: what NumPy, ml_dtypes and JAX spell, without importing JAX."""

from __future__ import annotations

import re

import numpy as np

from redistrib.errors import DtypeError

# bits of the types that NumPy itself lacks; those below a byte take a whole one in an array
_EXTENDED = re.compile(r"bfloat(16)|float(8|6|4)_e\d+m\d+(?:fn|fnu|fnuz|b11fnuz|b11)?|u?int(4|2|1)")
_KEYS = {"key<fry>": 8, "key<rbg>": 16, "key<unsafe_rbg>": 16}  # JAX's random keys, by implementation


def itemsize_of(dtype: str) -> int:
    """Bytes per element of a dtype given by name; a type of less than a byte takes one.

    Raises:
        DtypeError: if no such dtype is known, or it has no fixed size.

    >>> [itemsize_of(name) for name in ("float32", "bfloat16", "float8_e4m3fn", "int4", "complex64", "key<fry>")]
    [4, 2, 1, 1, 8, 8]
    """
    extended = _EXTENDED.fullmatch(dtype)
    if extended:
        bits = int(next(group for group in extended.groups() if group))
        return max(1, bits // 8)
    if dtype in _KEYS:
        return _KEYS[dtype]
    try:
        known = np.dtype(dtype)
    except (TypeError, SyntaxError, ValueError):
        known = None
    if known is None or known.hasobject or not known.itemsize or known.names is not None or known.subdtype is not None:
        raise DtypeError(dtype)
    return int(known.itemsize)
