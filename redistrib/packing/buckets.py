"""Which leaves travel together when memory is not limited.

Models repeat themselves: most kinds of leaves come once or a few times in every layer. So leaves are dealt into
launches of one make-up, which share a program, and compiling takes as long as the few leaves of one launch ask for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from redistrib.trees import schedule
from redistrib.trees.schedule import Group, Item, alike, grouped

Launch: TypeAlias = tuple[Group, ...]

_PROGRAM = 8  # leaves that take as long to compile as one more program


def together(items: Sequence[Item], least_bytes: int) -> list[Launch]:
    """Launches of all leaves; no plan is made.

    Args:
        items: the leaves.
        least_bytes: bytes of source and target tiles that make a launch worth its while.
    """
    places: dict[tuple[int, ...], list[Item]] = {}
    for item in items:
        places.setdefault(item.devices, []).append(item)
    launches: list[Launch] = []
    for leaves in places.values():
        rest: list[Item] = []
        for kinds in _fitting(alike(leaves)):
            times = _times(kinds, least_bytes)
            launches += _dealt(kinds, times)
            rest += [item for several in kinds for item in several[len(several) // times * times :]]
        launches += _joined(grouped(rest))
    return launches


def leaves_of(launch: Launch) -> int:
    """How many leaves a launch moves."""
    return sum(map(len, launch))


def make_up(launch: Launch) -> Hashable:
    """What launches that share a program have in common."""
    return tuple((group[0].kind, group[0].donated, len(group)) for group in launch)


def _size(item: Item) -> int:
    return item.source_bytes + item.target_bytes


def _fitting(kinds: list[list[Item]]) -> list[list[list[Item]]]:
    """Kinds in sets of which one leaf each fits in a launch, unless a set is of one kind; the largest leaves first."""
    sets: list[list[list[Item]]] = []
    sizes: list[int] = []
    for several in sorted(kinds, key=lambda several: -_size(several[0])):
        size = _size(several[0])
        into = next((k for k, one in enumerate(sets) if _is_launch(len(one) + 1, sizes[k] + size)), len(sets))
        if into == len(sets):
            sets.append([])
            sizes.append(0)
        sets[into].append(several)
        sizes[into] += size
    return sets


def _times(kinds: Sequence[Sequence[Item]], least_bytes: int) -> int:
    """Into how many launches of one make-up to deal kinds, so that compilers have least to do."""
    counts = np.array([len(several) for several in kinds])
    times = np.arange(1, counts.max() + 1)
    shares, left = counts[:, None] // times, (counts[:, None] % times).sum(axis=0)
    leaves = shares.sum(axis=0)
    size = np.array([_size(several[0]) for several in kinds]) @ shares
    fits = (leaves == 1) | _is_launch(leaves, size)
    worth = fits & ((size >= least_bytes) | (np.cumsum(fits) == 1))  # the fewest launches if none is
    return int(times[worth][np.argmin((leaves + left + _PROGRAM * (left > 0))[worth])])


def _dealt(kinds: Sequence[Sequence[Item]], times: int) -> Iterator[Launch]:
    """So many launches with as many leaves of every kind in each."""
    for k in range(times):
        shares = [(several, len(several) // times) for several in kinds]
        yield tuple(tuple(several[k * share : (k + 1) * share]) for several, share in shares if share)


def _joined(groups: Sequence[Group]) -> list[Launch]:
    """Groups side by side in as few launches as are filled one after the other."""
    launches: list[Launch] = []
    for group in groups:
        if launches and _fit((*launches[-1], group)):
            launches[-1] += (group,)
        else:
            launches.append((group,))
    return launches


def _fit(groups: Launch) -> bool:
    """Whether groups may travel in one launch."""
    return bool(_is_launch(leaves_of(groups), sum(_size(item) for group in groups for item in group)))


def _is_launch(leaves: Any, size: Any) -> Any:
    """Whether so many leaves of so many bytes together make a launch; for arrays of such, of each."""
    return (leaves <= schedule.MOST_TOGETHER) & (size <= schedule.TOGETHER_BYTES)
