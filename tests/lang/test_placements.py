"""Placements of DTensor as types, without PyTorch: classes of the same names stand for its own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from redistrib.errors import DTensorError
from redistrib.lang.mesh import Mesh
from redistrib.lang.placements import from_placements


@dataclass(frozen=True)
class Shard:
    dim: int


@dataclass(frozen=True)
class _StridedShard:
    dim: int
    split_factor: int


def test_strided_shards_come_after_later_mesh_dimensions() -> None:
    mesh = Mesh.of("x=2,y=3")
    assert str(from_placements([_StridedShard(0, 3), Shard(0)], (12,), mesh)) == "[2{x,y}12]"
    assert from_placements([_StridedShard(0, 3), Shard(0)], (5,), mesh).dims[0].size == 5
    assert from_placements([Shard(0), Shard(0)], (4,), mesh).uneven


def test_a_split_factor_that_no_order_has_is_refused() -> None:
    with pytest.raises(
        DTensorError, match=r"is sharding after 5 other shards, and no mesh dimensions of \{x:2, y:3\} "
    ):
        from_placements([_StridedShard(0, 5), Shard(0)], (12,), Mesh.of("x=2,y=3"))


def test_strided_shards_of_unequal_size_that_are_no_tiles_are_refused() -> None:
    with pytest.raises(DTensorError, match="dimension 0 of 7 elements is strided over the mesh in shards of unequal"):
        from_placements([_StridedShard(0, 2), Shard(0)], (7,), Mesh.of("x=3,y=2"))
