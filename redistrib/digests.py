"""Digests by which processes compare what they do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np


def digest_of_parts(parts: Iterable[object]) -> str:
    """A digest of the texts of some values."""
    total = hashlib.sha256()
    for part in parts:
        total.update(f"{part}\n".encode())
    return total.hexdigest()[:16]


def digest_of_values(values: Any) -> str:
    """A digest of the elements of an array of NumPy, or of a number."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return hashlib.blake2b(flat.view(np.uint8).data, digest_size=8).hexdigest()
