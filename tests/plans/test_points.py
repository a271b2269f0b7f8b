"""Points and their owners, beside the tiles of an array whose elements are their own numbers."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import TilesError
from tests.messages import exactly

CASES = [
    ("[2{i}4, 4{j}8, 5{k}5]", rd.Mesh.of("i=2,j=2,k=1")),
    ("[3{x}12, 2]", rd.Mesh.of("x=4,y=3")),  # three devices hold each tile
    ("[3{y,x}18, 2]", rd.Mesh.of("x=3,y=2")),
    ("[4~{x}11, 3]", rd.Mesh.of("x=3")),
    ("[4^{x}10, 3]", rd.Mesh.of("x=3")),
    ("[4{x}11+1]", rd.Mesh.of("x=3")),
    ("[2{x}4, 3]", rd.Mesh.of("x=2,y=2", devices=[5, 1, 4, 2])),
    ("[]", rd.Mesh.of("x=2")),
]


@pytest.mark.parametrize(("form", "mesh"), CASES)
def test_owners_hold_the_point_and_lead_back_to_it(form: str, mesh: Any) -> None:
    shape = rd.DistType.parse(form).global_shape
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    tiles = {device: rd.tile_of(numbers, form, mesh, device) for device in mesh.devices}
    for point in product(*map(range, shape)):
        found = rd.owners(form, mesh, point)
        holders = [device for device in sorted(tiles) if numbers[point] in tiles[device]]
        assert [owner.device for owner in found] == holders
        for owner in found:
            assert tiles[owner.device][owner.local] == numbers[point]
            assert rd.point_of(form, mesh, owner.device, owner.local) == point
            assert rd.point_of(form, mesh, owner.coordinates, np.array(owner.local, int)) == point
            assert mesh.devices[np.ravel_multi_index(owner.coordinates, mesh.shape)] == owner.device
        assert rd.owners(form, mesh, np.array(point, int)) == found


@pytest.mark.parametrize("point", [(11,), (-1,), (1, 2), (), ("a",), (1.5,), 5])
def test_a_point_outside_is_refused(point: Any) -> None:
    why = "; give a number from 0 for each dimension, less than its size"
    with pytest.raises(TilesError, match=exactly(f"{point!r} is no index of an array of shape (11,){why}")):
        rd.owners("[4~{x}11]", "x=3", point)


def test_an_index_outside_the_tile_is_refused() -> None:
    with pytest.raises(TilesError, match=r"\(3,\) is no index of the tile of device 2, of shape \(3,\)"):
        rd.point_of("[4~{x}11]", "x=3", 2, (3,))
    with pytest.raises(TilesError, match=r"there is no device 3 in mesh \{x:3\}; its devices are"):
        rd.point_of("[4~{x}11]", "x=3", 3, (0,))
    with pytest.raises(TilesError, match=r"\(3,\) is no index of a device of mesh \{x:3\}; give a number from 0"):
        rd.point_of("[4~{x}11]", "x=3", (3,), (0,))
