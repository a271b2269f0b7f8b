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
    if not dist.is_initialized():
        raise CommunicatorError("there is no process group; call torch.distributed.init_process_group first")
    return dist.group.WORLD


class OfWorld(Generic[Value]):
    """A value for each default process group, dropped when the group is destroyed.

    Args:
        make: makes the value, at its first use. The value holds no reference to the group.
        end: called with the value when the group is destroyed.
    """

    def __init__(self, make: Callable[[], Value], end: Callable[[Value], None] | None = None) -> None:
        self._make, self._end = make, end
        self._values: dict[int, tuple[weakref.ref[Any], Value]] = {}
        self._lock = threading.RLock()

    def get(self) -> Value:
        """The value of the present default process group.

        Raises:
            CommunicatorError: if there is none.
        """
        world = default_group()
        entry = self._values.get(id(world))
        if entry is not None and entry[0]() is world:
            return entry[1]
        with self._lock:
            value = self._make()
            number = id(world)
            self._values[number] = weakref.ref(world, lambda group: self._drop(number, group)), value
            return value

    def _drop(self, number: int, group: Any) -> None:
        with self._lock:
            entry = self._values.get(number)
            if entry is None or entry[0] is not group:
                return
            del self._values[number]
        if self._end is not None:
            self._end(entry[1])
