"""Large leaves in parts: cut on the source's devices, moved one after the other, joined on the target's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from redistrib.arith import divisors
from redistrib.lang.types import DistType


@dataclass(frozen=True)
class Parts:
    """The equal parts into which the tiles of a source and a target are cut.

    Along one dimension source and target tiles have common cells, each whole in one tile of either side. Every cell is
    cut into as many pieces as there are parts. The k-th pieces of all cells are part k, an array whose types differ
    from the whole only in the sizes along the dimension.

    Attributes:
        dim: the dimension that is cut.
        count: number of parts; 1: the whole array.
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


def in_parts(source: DistType, target: DistType, least: int) -> Parts:
    """The cut into `least` parts, or the next number that divides; else into as many as possible.

    Of equally good dimensions the first is cut. Partial sums and tiles of unequal size are not cut.

    >>> in_parts(DistType.of("[4{x}16, 16]"), DistType.of("[16, 4{x}16]"), 3)
    Parts(dim=0, count=4, source_cells=1, target_cells=4)
    """
    if least <= 1 or source.partial or target.partial or source.uneven or target.uneven or 0 in source.global_shape:
        return Parts()
    cuts = [Parts()]
    for k, (before, after) in enumerate(zip(source.dims, target.dims, strict=True)):
        cell = math.gcd(before.tile, after.tile)
        counts = divisors(cell)
        count = next((count for count in counts if count >= least), counts[-1])
        cuts.append(Parts(k, count, before.tile // cell, after.tile // cell))
    enough = [cut for cut in cuts if cut.count >= least]
    return min(enough, key=lambda cut: cut.count) if enough else max(cuts, key=lambda cut: cut.count)
