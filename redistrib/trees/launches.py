"""Which leaves travel together when memory is not limited.

Models repeat themselves: most kinds of leaves come once or a few times in every layer. So leaves are dealt into
launches of one make-up, which share a program, and compiling takes as long as the few leaves of one launch ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from redistrib.trees import schedule
from redistrib.trees.schedule import Group, Item, grouped, order

Launch: TypeAlias = tuple[Group, ...]

_PROGRAM = 8  # leaves that take as long to compile as one more program


def together(items: Sequence[Item], least_bytes: int) -> list[Launch]:
    """Launches of all leaves, in the order of least peak.

    Args:
        items: the leaves.
        least_bytes: bytes of source and target tiles that make a launch worth its while.
    """
    places: dict[tuple[int, ...], dict[object, list[Item]]] = {}
    for item in items:
        places.setdefault(item.devices, {}).setdefault((item.kind, item.donated), []).append(item)
    launches: list[Launch] = []
    for kinds in places.values():
        rest: list[Item] = []
        for several in _fitting(list(kinds.values())):
            times = _times(several, least_bytes)
            launches += _dealt(several, times)
            rest += [item for alike in several for item in alike[len(alike) // times * times :]]
        launches += _joined(grouped(rest))
    return sorted(launches, key=lambda launch: order([item for group in launch for item in group]))


def _size(item: Item) -> int:
    return item.source_bytes + item.target_bytes


def _fitting(kinds: list[list[Item]]) -> list[list[list[Item]]]:
    """Kinds in sets of which one leaf each fits in a launch, unless a set is of one kind; the largest leaves first."""
    sets: list[list[list[Item]]] = []
    sizes: list[int] = []
    for alike in sorted(kinds, key=lambda alike: -_size(alike[0])):
        size = _size(alike[0])
        into = next((k for k, several in enumerate(sets) if _is_launch(len(several) + 1, sizes[k] + size)), len(sets))
        if into == len(sets):
            sets.append([])
            sizes.append(0)
        sets[into].append(alike)
        sizes[into] += size
    return sets


def _times(kinds: Sequence[Sequence[Item]], least_bytes: int) -> int:
    """Into how many launches of one make-up to deal kinds, so that compilers have least to do."""
    counts = np.array([len(alike) for alike in kinds])
    times = np.arange(1, counts.max() + 1)
    shares, left = counts[:, None] // times, (counts[:, None] % times).sum(axis=0)
    leaves = shares.sum(axis=0)
    size = np.array([_size(alike[0]) for alike in kinds]) @ shares
    fits = (leaves == 1) | ((leaves <= schedule.MOST_TOGETHER) & (size <= schedule.TOGETHER_BYTES))
    worth = fits & ((size >= least_bytes) | (np.cumsum(fits) == 1))  # the fewest launches if none is
    return int(times[worth][np.argmin((leaves + left + _PROGRAM * (left > 0))[worth])])


def _dealt(kinds: Sequence[Sequence[Item]], times: int) -> Iterator[Launch]:
    """So many launches with as many leaves of every kind in each."""
    for k in range(times):
        shares = [(alike, len(alike) // times) for alike in kinds]
        yield tuple(tuple(alike[k * share : (k + 1) * share]) for alike, share in shares if share)


def _joined(groups: Sequence[Group]) -> list[Launch]:
    """Groups side by side in as few launches as are filled one after the other."""
    launches: list[Launch] = []
    for group in groups:
        if launches and _fit((*launches[-1], group)):
            launches[-1] += (group,)
        else:
            launches.append((group,))
    return launches


def _fit(groups: Sequence[Group]) -> bool:
    """Whether groups may travel in one launch."""
    return _is_launch(sum(map(len, groups)), sum(_size(item) for group in groups for item in group))


def _is_launch(leaves: int, size: int) -> bool:
    return leaves <= schedule.MOST_TOGETHER and size <= schedule.TOGETHER_BYTES
