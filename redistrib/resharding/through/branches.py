"""The different works of devices in one program, each kind of work once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.rows import AXIS
from redistrib.theory.placement import Int64

Work: TypeAlias = Callable[..., tuple[jax.Array, ...]]  # on the starts of boxes and on arrays


def branching(
    works: Sequence[tuple[Hashable, Callable[[], Work]]], starts: Sequence[Sequence[int]], largest_index: int
) -> Any:
    """The program in which every device of a line does its work.

    Args:
        works: of each device the kind, and what makes the work, once for all devices that do the same.
        starts: of each device numbers, data of the program; beyond the largest index they are part of the kind.
        largest_index: by which programs index arrays.
    """
    table = np.zeros((len(starts), max(1, *map(len, starts))), np.int64)
    for row, several in zip(table, starts, strict=True):
        row[: len(several)] = several
    kinds: dict[Hashable, int] = {}
    numbers: list[int] = []
    branches: list[Work] = []
    for (kind, make), of_device in zip(works, table, strict=True):
        known = tuple(of_device.tolist()) if of_device.max() > largest_index else None
        if (kind, known) not in kinds:
            kinds[kind, known] = len(branches)
            branches.append(make() if known is None else partial(_at_known, make(), of_device))
        numbers.append(kinds[kind, known])

    def run(*args: jax.Array) -> tuple[jax.Array, ...]:
        me = lax.axis_index(AXIS)
        mine = jnp.asarray(np.minimum(table, largest_index).astype(np.int32))[me]
        if len(branches) == 1:
            return branches[0](mine, *args)
        result: tuple[jax.Array, ...] = lax.switch(jnp.asarray(np.array(numbers, np.int32))[me], branches, mine, *args)
        return result

    return run


def _at_known(run: Work, known: Int64, _: jax.Array, *args: jax.Array) -> tuple[jax.Array, ...]:
    """The work of a device on starts that the compiler knows."""
    return run(np.array(known, object), *args)  # of numbers of Python, which have no limit
