"""Values that belong to the default process group, and end with it.

After `destroy_process_group` a process may have another rank, among other processes. So no channel, plan or subgroup
outlives the group that it was made for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch.distributed as dist

from redistrib.errors import CommunicatorError

Value = TypeVar("Value")


def default_group() -> Any:
    """The default process group.

    Raises:
        CommunicatorError: if there is none.
    """
    world = dist.group.WORLD
    if world is None:
        raise CommunicatorError("there is no process group; call torch.distributed.init_process_group first")
    return world


class OfWorld(Generic[Value]):
    """A value for the default process group, dropped when another group or none takes its place.

    Args:
        make: makes the value, at its first use.
        end: called with the value when it is dropped.
    """

    def __init__(self, make: Callable[[], Value], end: Callable[[Value], None] | None = None) -> None:
        self._make, self._end = make, end
        self._entry: tuple[weakref.ref[Any], Value] | None = None
        self._lock = threading.RLock()
        _ALL.append(self)

    def get(self) -> Value:
        """The value of the present default process group.

        Raises:
            CommunicatorError: if there is none.
        """
        world, entry = default_group(), self._entry
        if entry is not None and entry[0]() is world:
            return entry[1]
        drop_ended()
        with self._lock:
            value = self._make()
            self._entry = weakref.ref(world), value
            return value

    def drop(self, world: Any) -> None:
        """Drop the value unless it is of that default process group."""
        with self._lock:
            entry = self._entry
            if entry is None or (world is not None and entry[0]() is world):
                return
            self._entry = None
        if self._end is not None:
            self._end(entry[1])


_ALL: list[OfWorld[Any]] = []


def drop_ended() -> None:
    """Drop all values of groups that have been destroyed."""
    world = dist.group.WORLD if dist.is_initialized() else None
    for value in _ALL:
        value.drop(world)
