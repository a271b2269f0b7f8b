"""Bodies of nests over iteration spaces that are longer than those they were written for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import identity
from redistrib.programs.ir.nest import Access, Nest


class Points(NamedTuple):
    """The points that the body of the shorter nest runs on.

    Attributes:
        ranges: of every iteration dimension a range; dimensions that are not indexed begin at the first point.
        is_there: whether the part has any of them. Else they are one point, for the element type of the result.
    """

    ranges: tuple[range, ...]
    is_there: bool


@dataclass(frozen=True, eq=False)
class Trimmed:
    """A body that works on the points of a nest alone, and fills the elements beyond with the identity of the sum.

    Attributes:
        nest: the nest, with its body.
        writes: the longer results.
        longer: the iteration dimensions that are longer than those of the nest.
    """

    nest: Nest
    writes: tuple[Access, ...]
    longer: frozenset[str]

    def points(self, at: Mapping[str, range]) -> Points:
        """The points of a part at which there is work. Parts with equal ones may run one trace of the body."""
        valid = []
        for name, whole in self.nest.ranges:
            here = at[name]
            if name in self.longer:
                first = (here.start - whole.start) // whole.step
                here = whole[first : first + len(here)]
                here = here if name in self.nest.indexed else whole[: len(here)]
            valid.append(here)
        if all(valid):
            return Points(tuple(valid), True)
        return Points(
            tuple(here[:1] or whole[:1] for here, (_, whole) in zip(valid, self.nest.ranges, strict=True)), False
        )

    def __call__(self, at: Mapping[str, range], *tiles: Any) -> Any:
        assert self.nest.body is not None
        ranges, is_there = self.points(at)
        run = dict(zip(self.nest.position, ranges, strict=True))
        operands = (_cropped(access, tile, run) for access, tile in zip(self.nest.reads, tiles, strict=True))
        result = self.nest.body(run, *operands)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(
            _filled(self.nest, access, tile, at, keep=is_there)
            for access, tile in zip(self.writes, results, strict=True)
        )


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
