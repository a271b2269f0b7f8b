"""Garbage collection in blocks that make many objects which last."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(*, lasts: bool = False) -> Iterator[None]:
    """Make no search for cyclic garbage inside the block.

    Such a search visits all objects that there are. While a large function is traced, or modules are loaded, they only
    become more, and the searches take a quarter of the time. Objects without cycles are freed as ever.

    Args:
        lasts: whether what the block makes lasts. Then it counts as old: the next searches, which are for what is new,
            do not visit it either.

    >>> import gc
    >>> with uncollected():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if lasts and not gc.get_freeze_count():  # else these would thaw what others froze
                gc.freeze()
                gc.unfreeze()
            gc.enable()
