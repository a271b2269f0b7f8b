"""Bounded caches of plans and executables that drop the least recently used entry, and results kept with instances.

`cachetools` has the dropping, which is three lines, but neither the counts nor the lock.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")
Argument = TypeVar("Argument", bound=Hashable)


@dataclass(frozen=True)
class CacheInfo:
    """The statistics of a cache.

    Attributes:
        hits: number of lookups that found an entry.
        misses: number of lookups that made an entry.
        size: number of entries.
        limit: the most entries that the cache keeps.
    """

    hits: int
    misses: int
    size: int
    limit: int


def remembered(method: Callable[[Any, Argument], Value]) -> Callable[[Any, Argument], Value]:
    """A method of immutable instances that computes its result once for each argument, kept with the instance."""
    name = f"_{method.__name__}_by_argument"

    @functools.wraps(method)
    def call(self: Any, argument: Argument) -> Value:
        results: dict[Argument, Value] = self.__dict__.setdefault(name, {})
        if argument not in results:
            results[argument] = method(self, argument)
        return results[argument]

    return call


class Key:
    """A key of many parts, whose hash is found once.

    Raises:
        TypeError: if a part has no hash.

    >>> Key((1, "a")) == Key((1, "a")), {Key((1, "a")): 2}[Key((1, "a"))]
    (True, 2)
    """

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[Hashable, ...]) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self._parts == other._parts)

    def __hash__(self) -> int:
        return self._hash


class Cache(Generic[Value]):
    """A mapping that keeps the `limit` most recently used entries; safe for several threads.

    Args:
        limit: the most entries.
        missed: called after an entry has been made.
    """

    def __init__(self, limit: int, missed: Callable[[], None] | None = None) -> None:
        self.limit, self._missed = limit, missed
        self._entries: OrderedDict[Hashable, Value] = OrderedDict()
        self._hits = self._misses = 0
        self._lock = threading.RLock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The entry of a key; if there is none, `make` makes it.

        The lock is not held while `make` runs, so two threads may make the same entry.
        """
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
        if self._missed is not None:
            self._missed()
        return value

    def clear(self) -> None:
        """Remove all entries and reset the statistics."""
        with self._lock:
            self._entries.clear()
            self._hits = self._misses = 0

    @property
    def info(self) -> CacheInfo:
        """The statistics of the cache."""
        with self._lock:
            return CacheInfo(self._hits, self._misses, len(self._entries), self.limit)
