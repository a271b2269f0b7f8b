"""Digests: by them processes compare what they do, and readers find damage."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def digest_of_parts(parts: Iterable[object], digits: int = 16) -> str:
    """The first hexadecimal digits, of 64, of SHA-256 over some values, one line each.

    Of bytes and of the elements of arrays of NumPy the bytes count, of all else the text.
    """
    total = hashlib.sha256()
    for k, part in enumerate(parts):
        total.update(b"\n" if k else b"")
        if isinstance(part, np.ndarray):
            part = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        total.update(part if isinstance(part, bytes | memoryview) else f"{part}".encode())
    return total.hexdigest()[:digits]
