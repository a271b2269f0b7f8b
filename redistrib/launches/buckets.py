"""Buckets: the leaves that travel together without a memory limit.

Models repeat themselves: a leaf of most specs comes once or a few times in every layer. So leaves are dealt into
buckets with equally many of each spec. These share a program, so only the leaves of one bucket take time to compile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from redistrib.launches.moves import Group

Bucket: TypeAlias = tuple[Group, ...]  # the leaves of one launch


class Packable(Protocol):
    """Keys of leaves: those of one spec share a program, and those of the same devices a launch."""

    @property
    def spec(self) -> Any: ...

    @property
    def devices(self) -> Hashable: ...

    @property
    def gives_up_source(self) -> bool: ...

    @property
    def source_bytes(self) -> int: ...

    @property
    def target_bytes(self) -> int: ...


Item = TypeVar("Item", bound=Packable)

BUCKET_LEAVES = 128
BUCKET_BYTES = 32 * 2**20  # bytes of source and target tiles in a bucket, unless one leaf has more

_PROGRAM = 8  # leaves that take as long to compile as one more program


def pack_into_buckets(items: Sequence[Item], least_bytes: int) -> list[tuple[tuple[Item, ...], ...]]:
    """Buckets of all leaves; no plan is made.

    Args:
        items: the leaves.
        least_bytes: bytes of source and target tiles from which a launch is worth its cost.
    """
    places: dict[Hashable, list[Item]] = {}
    for item in items:
        places.setdefault(item.devices, []).append(item)
    buckets: list[tuple[tuple[Item, ...], ...]] = []
    for leaves in places.values():
        left: list[Item] = []
        for specs in _fitting(by_spec(leaves)):
            times = _times(specs, least_bytes)
            buckets += _dealt(specs, times)
            left += [item for several in specs for item in several[len(several) // times * times :]]
        buckets += _joined(even_groups(left))
    return buckets


def leaves_of(bucket: Sequence[Sequence[Any]]) -> int:
    """How many leaves a bucket has."""
    return sum(map(len, bucket))


def program_key(bucket: Bucket) -> Hashable:
    """A key that is equal for buckets that share a program."""
    return tuple((group[0].spec, group[0].gives_up_source, reused(group), len(group)) for group in bucket)


def reused(group: Group) -> bool:
    """Whether a program may overwrite the sources of a group."""
    return all(item.frees_source for item in group)


def _size(item: Packable) -> int:
    return item.source_bytes + item.target_bytes


def _fitting(specs: list[list[Item]]) -> list[list[list[Item]]]:
    """Specs in sets, of which one leaf each fits in a bucket unless a set has one spec; the largest leaves first."""
    sets: list[list[list[Item]]] = []
    sizes: list[int] = []
    for several in sorted(specs, key=lambda several: -_size(several[0])):
        size = _size(several[0])
        into = next((k for k, members in enumerate(sets) if _is_bucket(len(members) + 1, sizes[k] + size)), len(sets))
        if into == len(sets):
            sets.append([])
            sizes.append(0)
        sets[into].append(several)
        sizes[into] += size
    return sets


def _times(specs: Sequence[Sequence[Packable]], least_bytes: int) -> int:
    """The number of buckets of one program, for which compilers have least work."""
    counts = np.array([len(several) for several in specs])
    times = np.arange(1, counts.max() + 1)
    shares, left = counts[:, None] // times, (counts[:, None] % times).sum(axis=0)
    leaves = shares.sum(axis=0)
    size = np.array([_size(several[0]) for several in specs]) @ shares
    fits = (leaves == 1) | _is_bucket(leaves, size)
    worth = fits & ((size >= least_bytes) | (np.cumsum(fits) == 1))  # the fewest if none is
    return int(times[worth][np.argmin((leaves + left + _PROGRAM * (left > 0))[worth])])


def _dealt(specs: Sequence[Sequence[Item]], times: int) -> Iterator[tuple[tuple[Item, ...], ...]]:
    """`times` buckets with equally many leaves of every spec."""
    for k in range(times):
        shares = [(several, len(several) // times) for several in specs]
        yield tuple(tuple(several[k * share : (k + 1) * share]) for several, share in shares if share)


def _joined(groups: Sequence[tuple[Item, ...]]) -> list[tuple[tuple[Item, ...], ...]]:
    """Groups in as few buckets as result from filling one after the other."""
    buckets: list[tuple[tuple[Item, ...], ...]] = []
    for group in groups:
        if buckets and _fit((*buckets[-1], group)):
            buckets[-1] += (group,)
        else:
            buckets.append((group,))
    return buckets


def _fit(groups: Sequence[Sequence[Packable]]) -> bool:
    """Whether groups fit in one bucket."""
    return bool(_is_bucket(leaves_of(groups), sum(_size(item) for group in groups for item in group)))


def _is_bucket(leaves: Any, size: Any) -> Any:
    """Whether so many leaves of so many bytes fit in one bucket; elementwise for arrays."""
    return (leaves <= BUCKET_LEAVES) & (size <= BUCKET_BYTES)


def by_spec(items: Iterable[Item]) -> list[list[Item]]:
    """Leaves that may share an executable, in the order in which specs first appear."""
    specs: dict[tuple[Hashable, bool], list[Item]] = {}
    for item in items:
        specs.setdefault((item.spec, item.gives_up_source), []).append(item)
    return list(specs.values())


def even_groups(items: Sequence[Item]) -> list[tuple[Item, ...]]:
    """Leaves of one spec in groups of equal size where possible, in the order in which specs first appear."""
    result: list[tuple[Item, ...]] = []
    for several in by_spec(items):
        leaf_bytes = max(1, several[0].source_bytes + several[0].target_bytes)
        size = _even(len(several), max(1, min(BUCKET_LEAVES, BUCKET_BYTES // leaf_bytes)))
        result += [tuple(several[k : k + size]) for k in range(0, len(several), size)]
    return result


def _even(count: int, most: int) -> int:
    """A group size of at most `most` that leaves no smaller group, if there is one above half of `most`."""
    if count <= most:
        return count
    return next((size for size in range(most, most // 2, -1) if count % size == 0), most)
