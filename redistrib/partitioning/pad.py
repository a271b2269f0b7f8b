"""Padding: iteration spaces are made longer where a grid does not divide them; points beyond the end do nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redistrib.errors import CutError
from redistrib.lang.notation import Reduction
from redistrib.partitioning.grids import parts_of
from redistrib.plans.reduction import identity
from redistrib.programs.nest import Access, Nest

_Slot = tuple[str, int]  # of an array or a nest, and the number of a dimension


def padded(nests: Sequence[Nest], grids: Mapping[str, Sequence[int] | Mapping[str, int]]) -> tuple[Nest, ...]:
    """The nests over padded iteration spaces, which their grids divide; arrays are padded at the end too.

    An array dimension has one size for all nests that read or write it, so the grid of one nest may pad the iteration
    space of another. No nest reads an array beyond its old end.

    Raises:
        CutError: if a dimension that is a factor of an array dimension would have to be longer.
    """
    sizes = _sizes(nests, grids)
    return tuple(_lengthened(nest, sizes) for nest in nests)


def _sizes(nests: Sequence[Nest], grids: Mapping[str, Sequence[int] | Mapping[str, int]]) -> dict[_Slot, int]:
    """The padded size of every dimension of nests and arrays."""
    parent: dict[_Slot, _Slot] = {}

    def root(slot: _Slot) -> _Slot:
        while parent.setdefault(slot, slot) != slot:
            slot = parent[slot]
        return slot

    size: dict[_Slot, int] = {}
    for nest in nests:
        size |= {(f"nest {nest.name}", k): extent for k, extent in enumerate(nest.sizes)}
        for access in (*nest.reads, *nest.writes):
            for i, (names, extent) in enumerate(zip(access.dims, nest.shape(access), strict=True)):
                size[f"array {access.array}", i] = extent
                if len(names) == 1 and not access.windows:
                    parent[root((f"nest {nest.name}", nest.position[names[0]]))] = root((f"array {access.array}", i))
    parts: dict[_Slot, int] = {}
    for nest in nests:
        for k, count in enumerate(parts_of(nest, grids)):
            slot = root((f"nest {nest.name}", k))
            parts[slot] = math.lcm(parts.get(slot, 1), count)
    lengths = {slot: parts.get(root(slot), 1) for slot in size}
    return {slot: -(-extent // lengths[slot]) * lengths[slot] for slot, extent in size.items()}


def _lengthened(nest: Nest, sizes: Mapping[_Slot, int]) -> Nest:
    longer = {name: sizes[f"nest {nest.name}", k] for name, k in nest.position.items()}
    changed = {name for name in longer if longer[name] != nest.size(name)}
    for access in nest.reads:
        if access.windows and changed & set(access.names):
            raise CutError(
                nest.name, access.array, "Window", "what is read in windows cannot be padded; take grids that divide"
            )
    if changed and nest.replicated:
        raise CutError(
            nest.name, nest.writes[min(nest.replicated)].array, "Combine", "every part writes the same, and one with "
            "padding alone cannot; take grids that divide"
        )  # fmt: skip
    for access in (*nest.reads, *nest.writes):
        for names in access.dims:
            if len(names) > 1 and changed & set(names):
                raise CutError(
                    nest.name, access.array, "Dim", f"{', '.join(names)} make one dimension and cannot be padded "
                    f"apart; take grids that divide them",
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
        body=nest.body and _trimming(nest, tuple(writes), changed),
    )


def _extended(access: Access, sizes: Mapping[_Slot, int]) -> Access:
    whole = [sizes[f"array {access.array}", i] for i, names in enumerate(access.dims) if not names]
    return replace(access, extents=tuple(whole))


def _trimming(nest: Nest, writes: tuple[Access, ...], changed: set[str]) -> Callable[..., Any]:
    """A body that runs the body of the nest on the points before the end, and fills the padding with the identity."""
    inner = nest.body
    assert inner is not None

    def body(at: Mapping[str, range], *tiles: Any) -> Any:
        valid = dict(at)
        for name in changed:
            whole = nest.ranges[nest.position[name]][1]
            first = (at[name].start - whole.start) // whole.step
            here = whole[first : first + len(at[name])]
            valid[name] = here if name in nest.indexed else whole[: len(here)]
        empty = any(not over for over in valid.values())
        # a device with padding alone runs one point, for the element type of the result
        points = {name: over[:1] or nest.ranges[nest.position[name]][1][:1] for name, over in valid.items()}
        run = points if empty else valid
        result = inner(run, *(_cropped(a, tile, run) for a, tile in zip(nest.reads, tiles, strict=True)))
        results = result if isinstance(result, tuple) else (result,)
        return tuple(
            _filled(nest, access, tile, at, keep=not empty) for access, tile in zip(writes, results, strict=True)
        )

    return body


def _shape(access: Access, at: Mapping[str, range]) -> list[int]:
    extents = iter(access.extents)
    return [math.prod(len(at[name]) for name in names) if names else next(extents) for names in access.dims]


def _cropped(access: Access, tile: Any, at: Mapping[str, range]) -> Any:
    return tile[tuple(slice(0, extent) for extent in _shape(access, at))]


def _filled(nest: Nest, access: Access, result: Any, at: Mapping[str, range], *, keep: bool) -> Any:
    kinds = [kind for name, kind in nest.combine if name not in access.names]
    reduction: Reduction = kinds[0] if kinds else "sum"  # type: ignore[assignment]  # checked by the nest
    tile = result if hasattr(result, "__array_function__") else np.asarray(result)  # which other libraries' arrays have
    nothing, shape = identity(reduction, tile.dtype), _shape(access, at)
    if not shape:
        return tile if keep else np.full((), nothing, tile.dtype)
    front = tile if keep else tile[:0]
    margins = [(0, extent - there) for extent, there in zip(shape, front.shape, strict=True)]
    return np.pad(front, margins, constant_values=nothing)
