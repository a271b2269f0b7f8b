"""Cuts of an iteration space by the names of its dimensions, and the meshes of grids."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from redistrib.errors import TypeFormError, UnknownAxisError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.nest import Nest


def cut_of(nest: Nest, axes: Mapping[str, Sequence[str]], mesh: Mesh) -> DistType | None:
    """The cut with the given axes, minor to major, for iteration dimensions; None where it cannot be."""
    try:
        cut = DistType.cut(nest.sizes, {nest.position[name]: names for name, names in axes.items()}, mesh)
    except UnknownAxisError:
        raise
    except TypeFormError:
        return None
    return None if any(cut.dims[nest.position[name]].tile != nest.size(name) for name in nest.whole) else cut


def mesh_of(grid: Sequence[int], ranks: int) -> Mesh:
    """A mesh with an axis `r0`, `r1`, ... for every number of a grid above 1, and `rest` for the other ranks."""
    axes = [Axis(f"r{k}", parts) for k, parts in enumerate(grid) if parts > 1]
    rest = ranks // math.prod(grid)
    return Mesh((*axes, *([Axis("rest", rest)] if rest > 1 else [])))
