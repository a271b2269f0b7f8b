"""Halos: the elements of other tiles that devices receive besides their own, dimension by dimension, in rounds.

In a round each device receives from the tile at one distance from its own. Messages along a later dimension include the
halos received along earlier ones, so that corners need no extra round. Messages of a round are equally long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from redistrib.cache import cached
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.windows import Held, Reach
from redistrib.theory.placement import Int64, placement_of


@dataclass(frozen=True, eq=False)
class HaloRound:
    """Messages along one dimension, from tiles at one distance.

    Attributes:
        dim: the dimension.
        distance: of the sender's tile, in tiles; negative before the receiver's; 0 copies from the device itself.
        length: elements along the dimension in a message.
        elements: of a message, in all.
        pairs: `[messages, 2]` sender and receiver, by number in the mesh.
        taken: `[devices]` where in its tile, along the dimension, a sender's message begins.
        placed: `[devices]` the position of its message in the tile with halos; it may stand out at either end.
        wanted: `[devices, 2]` begin and end of the part of the message that the tile with halos keeps.
    """

    dim: int
    distance: int
    length: int
    elements: int
    pairs: Int64
    taken: Int64
    placed: Int64
    wanted: Int64


@cached(1 << 12)
def halo_rounds(form: DistType, mesh: Mesh, windows: tuple[Held, ...]) -> tuple[HaloRound, ...]:
    """The messages, in order, after which devices with tiles of a type hold the halos of their windows too."""
    return tuple(copy for copy in halo_copies(form, mesh, windows) if copy.distance)


def halo_copies(form: DistType, mesh: Mesh, windows: Sequence[Held]) -> Iterator[HaloRound]:
    """The rounds in order, and among them for each dimension the copy of the device's tile."""
    placement = placement_of(form, mesh)
    shape = [*form.local_shape]
    for dim, held in enumerate(windows):
        if not isinstance(held, Reach):
            continue
        tile, parts = shape[dim], placement.grid[dim]
        index = placement.index[:, dim]
        begins = index * held.step + held.start  # of a tile with halos
        beside = math.prod(shape[:dim]) * math.prod(shape[dim + 1 :])
        nearest, farthest = begins // tile - index, (begins + held.length - 1) // tile - index
        for distance in range(max(1 - parts, int(nearest.min())), min(parts, int(farthest.max()) + 1)):
            sender = index + distance
            low = np.maximum(begins, sender * tile)
            high = np.minimum(begins + held.length, (sender + 1) * tile)
            count = np.where((sender >= 0) & (sender < parts), np.maximum(high - low, 0), 0)
            length = int(count.max())
            if not length:
                continue
            receivers = np.flatnonzero(count)
            senders = _at_distance(form, mesh, dim, index, distance)[receivers]
            first = np.minimum(low - sender * tile, tile - length)  # a message lies inside the tile
            taken = np.zeros_like(index)
            taken[senders] = first[receivers]
            placed = first + sender * tile - begins
            wanted = np.stack([low - begins, low - begins + count], axis=1)
            pairs = np.stack([senders, receivers], axis=1)
            yield HaloRound(dim, distance, length, length * beside, pairs, taken, placed, wanted)
        shape[dim] = held.length


def _at_distance(form: DistType, mesh: Mesh, dim: int, index: Int64, distance: int) -> Int64:
    """For every device the one with the tile at a distance along a dimension, equal in all others; itself if none."""
    coordinates = mesh.coordinates
    others = [k for k, name in enumerate(mesh.names) if name not in form.dims[dim].axes]
    beside = [tuple(row) for row in coordinates[:, others].tolist()]
    number = {(row, tile): device for device, (row, tile) in enumerate(zip(beside, index.tolist(), strict=True))}
    wanted = zip(beside, (index + distance).tolist(), strict=True)
    return np.array([number.get(at, device) for device, at in enumerate(wanted)], dtype=np.int64)
