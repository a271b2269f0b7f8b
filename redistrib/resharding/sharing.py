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
    """Arrays of a sequence that must not be given up one by one, by their places.

    Attributes:
        groups: of arrays that have buffers in common, directly or by way of others; two at least in each.
        elsewhere: arrays whose buffers belong to an array outside the sequence as well.
    """

    groups: Tied = ()
    elsewhere: frozenset[int] = frozenset()

    @property
    def members(self) -> set[int]:
        """All of them."""
        return {k for one in self.groups for k in one} | self.elsewhere


def buffers(array: jax.Array) -> list[private.Buffer]:
    """Every buffer of an array that this process holds; waits for the array to be computed.

    Raises:
        RuntimeError: JAX's own, if one has been deleted.
    """
    if not array.size:
        return []
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return private.addresses(array)


def grouped_by_buffer(held: Sequence[Sequence[private.Buffer]]) -> Tied:
    """Groups of places that hold a buffer in common, directly or by way of others; two at least in each."""
    first: dict[private.Buffer, int] = {}
    parent = list(range(len(held)))

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    for place, some in enumerate(held):
        for buffer in some:
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
    """An array that shares buffers with others, and those whose owners count on them, held weakly, by id."""

    array: weakref.ref[Any]
    owners: dict[int, weakref.ref[Any]]


_RELATIONS: dict[int, _Relation] = {}  # by the id of an array, until it is collected


def note(source: Any, result: Any, *, given_up: bool) -> None:
    """Note that a result has buffers of its source, so that neither goes unless its owner gives it up.

    Nothing is noted of arrays of several processes: these must act alike, and each collects garbage in its own time.
    """
    if not source.is_fully_addressable:
        return
    known = _RELATIONS.get(id(source))
    owners = {} if known is None else known.owners
    for array in (source, result):
        _relate(array, owners)
    owners[id(result)] = _RELATIONS[id(result)].array
    if given_up:
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
    """Whether an array's buffers are those of an array that is alive, but for arrays of some ids."""
    known = _RELATIONS.get(id(array))
    if known is None:
        return False
    owners = [ref() for name, ref in list(known.owners.items()) if name != id(array) and name not in but]
    return any(owner is not None and not owner.is_deleted() for owner in owners)
