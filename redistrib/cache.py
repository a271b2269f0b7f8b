"""Bounded caches of plans and executables, dropped least recently used first.

By hand, as `cachetools` has the dropping, three lines of it, and neither the counts nor the lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class CacheInfo:
    """How a cache has done: lookups that found something, that did not, entries now, and the most it keeps."""

    hits: int
    misses: int
    size: int
    limit: int


class Cache(Generic[Value]):
    """A mapping that keeps the `limit` entries last used."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, Value] = OrderedDict()
        self._hits = self._misses = 0
        self._lock = threading.RLock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The entry of a key, made if it is not there."""
        with self._lock:
            if key in self._entries:
                self._hits += 1
                self._entries.move_to_end(key)
                return self._entries[key]
        value = make()
        with self._lock:
            self._misses += 1
            self._entries[key] = value
            while len(self._entries) > self.limit:
                self._entries.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._hits = self._misses = 0

    @property
    def info(self) -> CacheInfo:
        with self._lock:
            return CacheInfo(self._hits, self._misses, len(self._entries), self.limit)
