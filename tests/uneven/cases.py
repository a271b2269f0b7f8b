"""What tiles of unequal size are, said a second time and more slowly: the boxes of a type, device by device."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType

Run = tuple[int, int]  # first element, and the one behind the last
Region = tuple[Run, ...]


def halved(run: Run, parts: int, cut: str) -> list[Run]:
    """A run in so many parts: by `numpy.array_split`, or by what `torch.chunk` says of itself."""
    elements = np.arange(*run)
    if cut == "balanced":
        pieces = [len(piece) for piece in np.array_split(elements, parts)]
    else:
        each = -(-len(elements) // parts)
        pieces = [len(elements[k * each : (k + 1) * each]) for k in range(parts)]
    edges = [run[0], *(run[0] + total for total in itertools.accumulate(pieces))]
    return list(itertools.pairwise(edges))


def run_of(dim: DimType, mesh: Mesh, coordinate: dict[str, int]) -> Run:
    """What the device at some coordinates holds along a dimension."""
    if dim.cut != "even":
        run = (0, dim.size)
        for name in reversed(dim.axes):
            run = halved(run, mesh.axis(name).size, dim.cut)[coordinate[name]]
        return run
    tile = 0
    for name in reversed(dim.axes):
        tile = tile * mesh.axis(name).size + coordinate[name]
    return (min(tile * dim.tile, dim.size), min((tile + 1) * dim.tile, dim.size))


def regions(dist_type: DistType, mesh: Mesh, devices: int) -> list[Region | None]:
    """What each device holds; None of those that are not in the mesh."""
    held: list[Region | None] = [None] * devices
    for device, at in zip(mesh.devices, itertools.product(*map(range, mesh.shape)), strict=True):
        coordinate = dict(zip(mesh.names, at, strict=True))
        held[device] = tuple(run_of(dim, mesh, coordinate) for dim in dist_type.dims)
    return held


def elements(region: Region | None) -> set[tuple[int, ...]]:
    """The elements of a region, one by one."""
    return set() if region is None else set(itertools.product(*(range(*run) for run in region)))


def all_uneven_types(mesh: Mesh, shape: Sequence[int]) -> list[DistType]:
    """Every way in which axes cut an array, balanced and in chunks; no two that say the same."""
    from redistrib.testing import all_cuts, cut_type

    found = dict.fromkeys(
        cut_type(mesh, shape, cut, [how] * len(shape))
        for cut in all_cuts(mesh.names, len(shape))
        for how in ("balanced", "chunk")
    )
    return list(found)
