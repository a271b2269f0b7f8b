"""Points of an array and the devices that hold them: from global to local indices and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from redistrib.arith import as_integer
from redistrib.errors import TilesError
from redistrib.errors.base import shown
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.theory.placement import Placement, placement_of


class Owner(NamedTuple):
    """A device that holds a point.

    Attributes:
        device: its number.
        coordinates: its position along each axis of the mesh.
        local: index of the point in its tile, one number for each dimension.
    """

    device: int
    coordinates: tuple[int, ...]
    local: tuple[int, ...]


def owners(dist_type: DistType | str, mesh: Any, point: Sequence[int]) -> list[Owner]:
    """The devices that hold a point of an array, by number.

    Args:
        dist_type: how the array is cut, as a `DistType` or its notation. Where tiles are partial sums, a device holds
            a summand of the point.
        mesh: the mesh, in any form that `Mesh.of` reads.
        point: a global index, one number for each dimension, as a sequence or an array.

    Raises:
        TilesError: if the point lies outside the array.
        TypeFormError: if the type is not well-formed over the mesh.

    >>> owners("[2{i}4, 4{j}8, 16{k}16]", "i=2,j=2,k=1", (3, 2, 12))
    [Owner(device=2, coordinates=(1, 0, 0), local=(1, 2, 12))]
    """
    placement, over = _placed(dist_type, mesh)
    at = _index(point, placement.shape, f"an array of shape {placement.shape}")
    owners_of_point = []
    for device in sorted(over.devices):
        box = placement.box(device)
        local = tuple(k - start for k, start in zip(at, box.start, strict=True))
        if all(0 <= k < size for k, size in zip(local, box.size, strict=True)):
            owners_of_point.append(Owner(device, tuple(over.coordinates[device].tolist()), local))
    return owners_of_point


def point_of(
    dist_type: DistType | str, mesh: Any, device: int | Sequence[int], index: Sequence[int]
) -> tuple[int, ...]:
    """The point of the array that an index in the tile of a device stands for; the inverse of `owners`.

    Args:
        dist_type, mesh: as for `owners`.
        device: a device number, or the coordinates of a device, one number for each axis of the mesh.
        index: in the tile of the device, one number for each dimension.

    Raises:
        TilesError: if the mesh has no such device, or if the index lies outside its tile.
        TypeFormError: if the type is not well-formed over the mesh.

    >>> point_of("[2{i}4, 4{j}8, 16{k}16]", "i=2,j=2,k=1", 2, (1, 2, 12))
    (3, 2, 12)
    >>> point_of("[2{i}4, 4{j}8, 16{k}16]", "i=2,j=2,k=1", (1, 0, 0), (1, 2, 12))
    (3, 2, 12)
    """
    placement, over = _placed(dist_type, mesh)
    if (number := as_integer(device)) is None:
        coordinates = _index(device, over.shape, f"a device of mesh {over}")
        number = over.devices[np.ravel_multi_index(coordinates, over.shape)] if coordinates else over.devices[0]
    elif number not in over.devices:
        raise TilesError(f"there is no device {number} in mesh {over}; its devices are {list(over.devices)}")
    box = placement.box(number)
    at = _index(index, box.size, f"the tile of device {number}, of shape {tuple(box.size)}")
    return tuple(k + start for k, start in zip(at, box.start, strict=True))


def _placed(dist_type: DistType | str, mesh: Any) -> tuple[Placement, Mesh]:
    over = Mesh.of(mesh)
    return placement_of(DistType.of(dist_type), over), over


def _index(index: Any, shape: Sequence[int], holder: str) -> tuple[int, ...]:
    """An index as integers, checked."""
    is_index = isinstance(index, Sequence) or np.ndim(index) == 1
    numbers = [as_integer(k) for k in index] if is_index else []
    inside = tuple(k for k, size in zip(numbers, shape, strict=False) if k is not None and 0 <= k < size)
    if not is_index or not len(inside) == len(numbers) == len(shape):
        raise TilesError(
            f"{shown(index)} is no index of {holder}; give a number from 0 for each dimension, less than its size"
        )
    return inside
