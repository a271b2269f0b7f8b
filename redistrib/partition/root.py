"""Arrays on one device: the two calls that spread one over a grid, and the two that bring it back."""

from __future__ import annotations

from redistrib.lang.mesh import Mesh
from redistrib.programs.program import Place, Value

ROOT = Place(Mesh(()), (0,))


def scatter_calls(value: Value) -> tuple[str, ...]:
    """The MPI calls that bring an array from the root to a value: at most two.

    Different tiles are scattered to one device each, and these broadcast theirs to the devices that hold the same.
    """
    tiles = value.placement.tiles
    return (*(["Scatterv"] if tiles > 1 else []), *(["Bcast"] if tiles < value.place.mesh.size else []))


def gather_calls(value: Value) -> tuple[str, ...]:
    """The MPI calls that bring a value to the root: at most two. Summands are reduced to one device for each tile."""
    return (*(["Reduce"] if value.type.partial else []), *(["Gatherv"] if value.placement.tiles > 1 else []))
