"""The different works of devices in one program, each kind of work once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.theory.placement import Int64


class Branches:
    """The work of devices, each kind once, on the starts of their boxes and on arrays.

    Args:
        starts: `[devices, ...]` numbers, data of the program; beyond the largest index they are part of the kind.
        largest_index: by which programs index arrays.
    """

    def __init__(self, starts: Int64, largest_index: int) -> None:
        self._starts, self._largest_index = starts, largest_index
        self._kinds: dict[Hashable, int] = {}
        self._numbers: list[int] = []
        self._branches: list[Any] = []

    def add(self, device: int, kind: Hashable, make: Callable[[], Any]) -> None:
        """The work of the next device, whose starts are known; `make` makes it where no device before does the same."""
        starts = self._starts[device]
        known = tuple(starts.ravel().tolist()) if starts.max() > self._largest_index else None
        if (kind, known) not in self._kinds:
            self._kinds[kind, known] = len(self._branches)
            run = make()
            self._branches.append(run if known is None else partial(_at_known, run, starts))
        self._numbers.append(self._kinds[kind, known])

    def chosen(self, me: jax.Array, *args: jax.Array) -> tuple[jax.Array, ...]:
        """The results of the running device's work on the arguments."""
        result: tuple[jax.Array, ...]
        starts = jnp.asarray(np.minimum(self._starts, self._largest_index).astype(np.int32))[me]
        if len(self._branches) == 1:
            result = self._branches[0](starts, *args)
        else:
            number = jnp.asarray(np.array(self._numbers, np.int32))[me]
            result = lax.switch(number, self._branches, starts, *args)
        return result


def _at_known(
    run: Callable[..., tuple[jax.Array, ...]], known: Int64, _: jax.Array, *args: jax.Array
) -> tuple[jax.Array, ...]:
    """The work of a device on starts that the compiler knows."""
    return run(np.array(known, object), *args)  # of numbers of Python, which have no limit
