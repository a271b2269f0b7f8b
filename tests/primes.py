"""Types on prime axes (Principle 1 of the paper)."""

from __future__ import annotations

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType


def prime_type(dist_type: DistType, mesh: Mesh) -> DistType:
    """The type over `mesh.prime().mesh` with the same placement as a well-formed one of equal tiles over the mesh."""
    dist_type.check(mesh)
    factors = dict(zip(mesh.names, mesh.prime().factors, strict=True))
    dims = tuple(
        DimType(dim.tile, tuple(factor.name for name in dim.axes for factor in factors[name]), dim.size)
        for dim in dist_type.dims
    )
    partial = tuple(factor.name for name in dist_type.partial for factor in factors[name])
    return DistType(dims, partial, dist_type.reduction if partial else None)
