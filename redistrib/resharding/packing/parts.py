"""Large leaves in parts: cut on the source's devices, moved one after the other, put together on the target's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from redistrib.arith import divisors
from redistrib.lang.types import DistType


@dataclass(frozen=True)
class Parts:
    """How tiles of a source and a target are cut alike into equal parts.

    Along one dimension source and target tiles have common cells, each whole in one tile of either side. Every cell is
    cut into as many pieces as there are parts, and the k-th pieces of all cells are part k: an array of its own, of the
    same types but for the sizes along the dimension.

    Attributes:
        dim: the dimension that is cut.
        count: how many parts there are; 1: the array as it is.
        source_cells, target_cells: cells of a tile along the dimension, before and after.
    """

    dim: int = 0
    count: int = 1
    source_cells: int = 1
    target_cells: int = 1

    def of(self, dist_type: DistType) -> DistType:
        """The type of a part of an array."""
        dims = list(dist_type.dims)
        dim = dims[self.dim]
        dims[self.dim] = replace(dim, tile=dim.tile // self.count, size=dim.size // self.count)
        return DistType(tuple(dims))


def in_parts(source: DistType, target: DistType, wanted: int) -> Parts:
    """The cut into so many parts, or the least number above that divides; into as many as there are if none does.

    Of dimensions that do equally well the first one is cut. Tiles of summands and of unequal size stay as they are.

    >>> in_parts(DistType.of("[4{x}16, 16]"), DistType.of("[16, 4{x}16]"), 3)
    Parts(dim=0, count=4, source_cells=1, target_cells=4)
    """
    if wanted <= 1 or source.partial or target.partial or source.uneven or target.uneven or 0 in source.global_shape:
        return Parts()
    ways = [Parts()]
    for k, (here, there) in enumerate(zip(source.dims, target.dims, strict=True)):
        cell = math.gcd(here.tile, there.tile)
        counts = divisors(cell)
        count = next((count for count in counts if count >= wanted), counts[-1])
        ways.append(Parts(k, count, here.tile // cell, there.tile // cell))
    enough = [way for way in ways if way.count >= wanted]
    return min(enough, key=lambda way: way.count) if enough else max(ways, key=lambda way: way.count)
