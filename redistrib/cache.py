"""Bounded caches that drop the least recently used entry, all of which `clear_caches` empties, and results kept with
instances.

A key tells its parts apart by value, or holds those that it tells apart by identity: an id alone outlives its object.
`cachetools` has the dropping, which is three lines, but neither the counts nor the lock.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakSet

Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])
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


def changed(instance: Value, **fields: Any) -> Value:
    """An instance with other fields, not checked again; what it remembers must not depend on them."""
    other = object.__new__(type(instance))
    other.__dict__.update(instance.__dict__, **fields)
    return other


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


_CACHES: WeakSet[Cache[Any]] = WeakSet()  # all that are alive
_FUNCTIONS: list[Any] = []  # those made by `cached`, at import


class Cache(Generic[Value]):
    """A mapping that keeps the `limit` most recently used entries until `clear_caches`; safe for several threads.

    Args:
        limit: the most entries.
        missed: called after an entry has been made.
    """

    def __init__(self, limit: int, missed: Callable[[], None] | None = None) -> None:
        self.limit, self._missed = limit, missed
        self._entries: OrderedDict[Hashable, tuple[Value]] = OrderedDict()
        self._hits = self._misses = 0
        self._lock = threading.RLock()
        _CACHES.add(self)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The entry of a key; if there is none, `make` makes it.

        The lock is not held while `make` runs, so two threads may make the same entry.
        """
        with self._lock:
            entry = self._entries.pop(key, None)  # one comparison of keys, which may take long
            if entry is not None:
                self._hits += 1
                self._entries[key] = entry
                return entry[0]
        value = make()
        with self._lock:
            self._misses += 1
            self._entries[key] = (value,)
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


def cached(limit: int) -> Callable[[Function], Function]:
    """A decorator of functions of hashable arguments that keeps the `limit` most recently used results.

    Equal arguments give the same result. It is for functions of modules, and quicker than a `Cache`.
    """

    def decorator(function: Function) -> Function:
        remembering: Any = functools.lru_cache(maxsize=limit)(function)
        _FUNCTIONS.append(remembering)
        return remembering  # type: ignore[no-any-return]

    return decorator


def clear_caches() -> None:
    """Drop all plans, compiled programs and other results that the library keeps from one call to the next.

    Programs that you hold yourself, such as those of `to_jax` and `distribute`, stay as they are. With PyTorch call it
    on all ranks, which prepare their moves together.

    >>> import redistrib as rd
    >>> rd.clear_caches()
    >>> rd.cache_info()["plans"].size
    0
    """
    for cache in list(_CACHES):
        cache.clear()
    for function in _FUNCTIONS:
        function.cache_clear()
