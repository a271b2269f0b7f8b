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


@dataclass(frozen=True)
class _Relation:
    """An array that shares buffers with others, and the arrays whose owners rely on them, by weak references."""

    array: weakref.ref[Any]
    owners: dict[int, weakref.ref[Any]]


_RELATIONS: dict[int, _Relation] = {}  # by the id of an array, until it is collected


def note(source: Any, result: Any, *, deleted: bool) -> None:
    """Record that a result shares buffers with its source, so that neither is deleted unless its owner deletes it.

    Arrays of several processes are not recorded: processes must act alike, and each collects garbage at its own time.
    """
    if not source.is_fully_addressable:
        return
    relation = _RELATIONS.get(id(source))
    owners = {} if relation is None else relation.owners
    for array in (source, result):
        _relate(array, owners)
    owners[id(result)] = _RELATIONS[id(result)].array
    if deleted:
        owners.pop(id(source), None)
    else:
        owners[id(source)] = _RELATIONS[id(source)].array


def _relate(array: Any, owners: dict[int, weakref.ref[Any]]) -> None:
    name = id(array)

    def forget(_: weakref.ref[Any], relations: dict[int, _Relation] = _RELATIONS) -> None:
        owners.pop(name, None)
        relations.pop(name, None)  # an argument: when Python ends, globals go before arrays do

    if name not in _RELATIONS:
        _RELATIONS[name] = _Relation(weakref.ref(array, forget), owners)


def belongs_to_others(array: Any, but: set[int]) -> bool:
    """Whether an array shares its buffers with a live array, except arrays of these ids."""
    relation = _RELATIONS.get(id(array))
    if relation is None:
        return False
    owners = [ref() for name, ref in list(relation.owners.items()) if name != id(array) and name not in but]
    return any(owner is not None and not owner.is_deleted() for owner in owners)
