"""Meetings of the processes of one job before they move arrays, or read and write files, together.

An error of one process is raised in all of them; see `redistrib.launches.calls`.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, Sharding

from redistrib.backends.jax import private
from redistrib.backends.jax.sharding import over_first_devices
from redistrib.backends.jax.store import CoordinatorStore
from redistrib.errors import CommunicatorError
from redistrib.lang.mesh import Mesh as Axes
from redistrib.launches import times
from redistrib.launches.calls import Calls

Value = TypeVar("Value")

_CALLS: dict[str, tuple[Any, Calls]] = {}  # by channel: the client of the store, and the calls in it


def _calls(channel: str) -> Calls | None:
    """The calls of this process; None without `jax.distributed`."""
    client = private.notes_of_processes()
    if client is None:
        return None
    if channel not in _CALLS or _CALLS[channel][0] is not client:
        _CALLS[channel] = client, Calls(CoordinatorStore(client), jax.process_index(), channel)
        atexit.register(_CALLS[channel][1].end)
    return _CALLS[channel][1]


class Meeting:
    """Processes that make the same call.

    A process that is none of them, or the only one, neither waits nor compares.

    Args:
        processes: their numbers.
        function: the name of the function that they call.
        differing: its arguments that may differ, for messages.
        way_out: a hint for messages.
        channel: calls of different channels are made by different threads, in any order.
        seconds: that one of the processes may work before it comes, besides `launches.times.WAIT_SECONDS`.
    """

    def __init__(
        self,
        processes: Iterable[int],
        function: str,
        differing: str = "arguments",
        way_out: str = "",
        *,
        channel: str = "calls",
        seconds: float = 0.0,
    ) -> None:
        self.processes = tuple(sorted(set(processes)))
        self._function, self._differing, self._seconds = function, (differing, way_out), seconds
        self._is_one_of_several = len(self.processes) > 1 and jax.process_index() in self.processes
        self._calls = _calls(channel) if self._is_one_of_several else None

    @property
    def is_between(self) -> bool:
        """Whether this process meets others."""
        return self._calls is not None

    @property
    def leads(self) -> bool:
        """Whether this process is the first of them."""
        return self.processes[0] == jax.process_index()

    def require_equal(self, digest: str) -> None:
        """Return when all processes are about to make the same call.

        Raises:
            RedistribError: in all of them, if their digests differ, one has an error, or one does not come.
        """
        if self._calls is not None:
            self._calls.meet(self.processes, f"{self._function} {digest}", self._differing)

    def gathered(self, note: str, digest: str = "") -> list[str]:
        """The notes of all processes, in the order of their numbers.

        Raises:
            RedistribError: in all of them, if their digests differ, one has an error, or one does not come.
        """
        if self._calls is None:
            if self._is_one_of_several:
                raise CommunicatorError(
                    f"{self._function} is called by several processes, which meet under jax.distributed.initialize; "
                    "call it first"
                )
            return [note]
        record = f"{self._function} {digest}".strip()
        return self._calls.gather(self.processes, record, self._differing, note, self._seconds)

    def raise_everywhere(self, error: Exception) -> NoReturn:
        """Raise an error in this process, and in the others when they come; this one does not wait for them."""
        if self._calls is None:
            raise error
        raise self._calls.fail(self.processes, self._function, error) from error

    def agreed(
        self, act: Callable[[], Value], note: Callable[[Value], str] | None = None, digest: str = ""
    ) -> tuple[Value, list[str]]:
        """Call `act` in every process, and meet: the result of this process, and the notes of all.

        Raises:
            RedistribError: in all processes, the error of the first that has one.
        """
        try:
            value = act()
            text = "" if note is None else note(value)
        except Exception as error:
            self.raise_everywhere(error)
        return value, self.gathered(text, digest)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """A context of moves that all processes have begun; an error of one ends it in all of them.

        Raises:
            CommunicatorError: for an error of JAX, and if another process has one.
        """
        try:
            yield
        except BaseException as error:
            if self._calls is None:
                raise
            told = self._calls.break_off(self.processes, error)
            if isinstance(error, jax.errors.JaxRuntimeError):
                raise told from error
            raise

    def wait(self, arrays: Any) -> None:
        """Wait for arrays; look from time to time whether another process has broken the move off.

        Raises:
            CommunicatorError: if one has.
        """
        if self._calls is not None:
            begun = looked = time.monotonic()
            while not all(map(private.is_computed, jax.tree.leaves(arrays))):
                now = time.monotonic()
                if now - looked > times.LOOK_SECONDS:
                    looked = now
                    self._calls.require_whole(self.processes)
                time.sleep(min(2e-3, 0.05 * (now - begun)))  # at most a twentieth of the time that the move takes
        jax.block_until_ready(arrays)


def raised_in_all(function: str, processes: Callable[[], Iterable[int]]) -> AbstractContextManager[None]:
    """A context of all that a call does before its processes meet: an error of one is raised in all of them.

    Args:
        function: the name of the function that is called.
        processes: those of the call, asked for when there is an error, by which they may not be known.
    """
    return _raised_in_all(function, processes) if jax.distributed.is_initialized() else nullcontext()


@contextmanager
def _raised_in_all(function: str, processes: Callable[[], Iterable[int]]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if jax.process_count() == 1:
            raise
        numbers: Iterable[int] = ()
        with suppress(Exception):  # of the arguments that have the error
            numbers = processes()
        Meeting(numbers, function).raise_everywhere(error)


def processes_of(*trees: Any, mesh: Any = None) -> set[int]:
    """The processes that own a device of an array, a sharding, a mesh or a device among the leaves of trees.

    A leaf that names no devices and is no value of the host, such as a partition spec, stands for those of `mesh`: of
    JAX, or axes and sizes over the first devices; by default that of `jax.set_mesh`.
    """
    devices: set[Any] = set()
    is_whole = True
    for leaf in jax.tree.leaves(trees, is_leaf=lambda value: isinstance(value, Sharding | Mesh)):
        sharding = leaf if isinstance(leaf, Sharding) else getattr(leaf, "sharding", None)
        if isinstance(leaf, jax.Device):
            devices.add(leaf)
        elif isinstance(leaf, Mesh):
            devices.update(leaf.devices.flat)
        elif isinstance(sharding, Sharding) and not isinstance(getattr(sharding, "mesh", None), AbstractMesh):
            devices |= sharding.device_set
        elif not isinstance(leaf, np.ndarray | np.generic | int | float | complex):
            is_whole = False
    if not is_whole:
        with suppress(Exception):  # of a mesh that is none
            over = private.mesh_of_devices() if mesh is None else mesh
            devices.update((over if isinstance(over, Mesh) else over_first_devices(Axes.of(over))).devices.flat)
    return {device.process_index for device in devices}
