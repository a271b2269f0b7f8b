"""What the tests of hostile input share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def soon() -> Iterator[None]:
    """Linear work takes far less than this, quadratic work on the same input far more."""
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < 10
