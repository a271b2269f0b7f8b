"""Grids that do not divide a range: iteration spaces are made longer, and no operation works on the points beyond."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from redistrib.errors import CutError
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.trimmed import Trimmed
from redistrib.programs.schedule.grids import parts_of

_Slot = tuple[str, int]  # of an array or a nest, and the number of a dimension
_Grids = Mapping[str, Sequence[int] | Mapping[str, int]]


def padded(nests: Sequence[Nest], grids: _Grids) -> tuple[tuple[Nest, ...], dict[str, tuple[int, ...]]]:
    """Nests over longer iteration spaces, which their grids divide, and arrays that are longer at the end.

    An array dimension has one size for all nests that read or write it, so the grid of one nest may lengthen the
    iteration space of another. No nest reads an array beyond its old end.

    Returns:
        The nests; and for each array that is longer the added elements of every dimension.

    Raises:
        CutError: if a dimension would have to be longer that is read in windows, or is a minor factor of an array
            dimension, or if every part writes the same result.
    """
    counts = [parts_of(nest, grids) for nest in nests]
    if all(not any(map(operator.mod, nest.sizes, grid)) for nest, grid in zip(nests, counts, strict=True)):
        return tuple(nests), {}
    sizes = _sizes(nests, counts)
    padding: dict[str, tuple[int, ...]] = {}
    for nest in nests:
        for access in (*nest.reads, *nest.writes):
            added = tuple(sizes[_array(access), i] - size for i, size in enumerate(nest.shape(access)))
            if any(added):
                padding[access.array] = added
    return tuple(_lengthened(nest, sizes) for nest in nests), padding


def _array(access: Access) -> str:
    return f"array {access.array}"


def _nest(nest: Nest) -> str:
    return f"nest {nest.name}"


def _sizes(nests: Sequence[Nest], counts: Sequence[tuple[int, ...]]) -> dict[_Slot, int]:
    """The new size of every dimension of nests and arrays.

    Dimensions that grow together keep their ratios: an array dimension of heads and their elements, and its heads. So
    each is `n / g` times one number, `g` at first, the greatest common divisor. The least multiple of it is taken by
    which all parts divide.
    """
    size: dict[_Slot, int] = {}
    parts: dict[_Slot, int] = {}
    parent: dict[_Slot, _Slot] = {}

    def root(slot: _Slot) -> _Slot:
        while parent.setdefault(slot, slot) != slot:
            slot = parent[slot]
        return slot

    for nest, grid in zip(nests, counts, strict=True):
        for k, (extent, count) in enumerate(zip(nest.sizes, grid, strict=True)):
            size[_nest(nest), k], parts[_nest(nest), k] = extent, count
        for access in (*nest.reads, *nest.writes):
            for i, extent in enumerate(nest.shape(access)):
                size[_array(access), i] = extent
        for factor, dimension in _linked(nest, grid):
            parent[root(factor)] = root(dimension)
    together: dict[_Slot, list[_Slot]] = {}
    for slot in size:
        together.setdefault(root(slot), []).append(slot)
    longer = dict(size)
    for slots in together.values():
        unit = math.gcd(*(size[slot] for slot in slots))
        if unit:
            ratios = {slot: size[slot] // unit for slot in slots}
            multiple = math.lcm(*(parts.get(slot, 1) // math.gcd(parts.get(slot, 1), ratios[slot]) for slot in slots))
            longer |= {slot: ratio * -(-unit // multiple) * multiple for slot, ratio in ratios.items()}
    return longer


def _linked(nest: Nest, grid: Sequence[int]) -> Iterator[tuple[_Slot, _Slot]]:
    """Each array dimension with its major factor, the first that has more than one point or part."""
    for access in (*nest.reads, *nest.writes):
        for i, names in enumerate(access.dims):
            places = [nest.position[name] for name in names]
            if places and not access.windows:
                major = next((k for k in places if nest.sizes[k] > 1 or grid[k] > 1), places[0])
                yield (_nest(nest), major), (_array(access), i)


def _lengthened(nest: Nest, sizes: Mapping[_Slot, int]) -> Nest:
    longer = {name: sizes[_nest(nest), k] for name, k in nest.position.items()}
    changed = {name for name in longer if longer[name] != nest.size(name)}
    for access in nest.reads:
        lengths = [sizes[_array(access), i] for i in range(len(access.dims))]
        if access.windows and (changed & set(access.names) or lengths != list(nest.shape(access))):
            raise CutError(nest.name, access.array, "Window", "it is read in windows; take grids that divide them")
    if changed and nest.replicated:
        raise CutError(
            nest.name, nest.writes[min(nest.replicated)].array, "Combine", "every part writes the same, and one "
            "without points cannot; take grids that divide"
        )  # fmt: skip
    for access in (*nest.reads, *nest.writes):
        for i, names in enumerate(access.dims):
            if names and not access.windows and math.prod(longer[name] for name in names) != sizes[_array(access), i]:
                raise CutError(
                    nest.name, access.array, "Dim", f"{', '.join(names)} make one dimension, of which the grid may "
                    f"leave points over along the first alone; take grids that divide the others",
                )  # fmt: skip
    reads, writes = ([_extended(access, sizes) for access in side] for side in (nest.reads, nest.writes))
    if not changed and (reads, writes) == (list(nest.reads), list(nest.writes)):
        return nest
    ranges = tuple(
        (name, range(over.start, over.start + over.step * longer[name], over.step)) for name, over in nest.ranges
    )
    return replace(
        nest,
        ranges=ranges,
        reads=tuple(reads),
        writes=tuple(writes),
        indexed=nest.indexed | changed,
        body=nest.body and Trimmed(nest, tuple(writes), frozenset(changed)),
    )


def _extended(access: Access, sizes: Mapping[_Slot, int]) -> Access:
    whole = [sizes[_array(access), i] for i, names in enumerate(access.dims) if not names]
    return replace(access, extents=tuple(whole))
