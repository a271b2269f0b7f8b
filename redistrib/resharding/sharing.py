"""Which arrays have buffers in common, so that to give one up takes it from another."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from redistrib.backends.jax import private

Tied: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SharedBuffers:
    """Arrays of a sequence that share buffers and so cannot be deleted one by one, by number.

    Attributes:
        groups: of arrays that share buffers, directly or through others; at least two in each.
        outside: arrays that share buffers with an array outside the sequence.
    """

    groups: Tied = ()
    outside: frozenset[int] = frozenset()

    @property
    def members(self) -> set[int]:
        """All of them."""
        return {k for group in self.groups for k in group} | self.outside


def buffers(array: jax.Array) -> list[private.Buffer]:
    """Every buffer of an array in this process; waits until the array is computed.

    Raises:
        RuntimeError: JAX's own, if a buffer has been deleted.
    """
    if not array.size:
        return []
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return private.addresses(array)


def grouped_by_buffer(held: Sequence[Sequence[private.Buffer]]) -> Tied:
    """Groups of numbers that share a buffer, directly or through others; at least two in each."""
    first: dict[private.Buffer, int] = {}
    parent = list(range(len(held)))

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    for place, buffers_of_array in enumerate(held):
        for buffer in buffers_of_array:
            other = first.setdefault(buffer, place)
            if other != place:
                parent[root(place)] = root(other)
    if all(above == place for place, above in enumerate(parent)):
        return ()
    members: dict[int, list[int]] = {}
    for place in range(len(held)):
        members.setdefault(root(place), []).append(place)
    return tuple(tuple(several) for several in members.values() if len(several) > 1)


# ------------------------------------------------------------------ arrays that `reshard` made of others' buffers


_Owners: TypeAlias = dict[int, weakref.ref[Any]]  # arrays whose owners rely on buffers that they share, by their ids

# An array that shares buffers with others, and the owners of all; by the id of the array, until it is collected.
_RELATIONS: dict[int, tuple[weakref.ref[Any], _Owners]] = {}


def note(source: Any, result: Any, *, deleted: bool) -> None:
    """Record that a result shares buffers with its source, so that neither is deleted unless its owner deletes it.

    Arrays of several processes are not recorded: processes must act alike, and each collects garbage at its own time.
    """
    if not source.is_fully_addressable:
        return
    relation = _RELATIONS.get(id(source))
    owners: _Owners = {} if relation is None else relation[1]
    of_source, of_result = (_related(array, owners) for array in (source, result))
    owners[id(result)] = of_result
    if deleted:
        owners.pop(id(source), None)
    else:
        owners[id(source)] = of_source


def _related(array: Any, owners: _Owners) -> weakref.ref[Any]:
    """The reference of an array that shares buffers, which joins the others if it is new."""
    name = id(array)

    def forget(_: weakref.ref[Any], relations: dict[int, Any] = _RELATIONS) -> None:
        owners.pop(name, None)
        relations.pop(name, None)  # an argument: when Python ends, globals go before arrays do

    if name not in _RELATIONS:
        _RELATIONS[name] = weakref.ref(array, forget), owners
    return _RELATIONS[name][0]


def belongs_to_others(array: Any, but: set[int]) -> bool:
    """Whether an array shares its buffers with a live array, except arrays of these ids."""
    relation = _RELATIONS.get(id(array))
    if relation is None:
        return False
    owners = [ref() for name, ref in list(relation[1].items()) if name != id(array) and name not in but]
    return any(owner is not None and not owner.is_deleted() for owner in owners)
