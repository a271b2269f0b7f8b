"""A grid is a node of the weak graph iff some type on the prime mesh has that grid."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.lang.mesh import Axis, Mesh
from redistrib.testing import all_types, meshes
from redistrib.theory.placement import placement_of
from redistrib.theory.weak import WeakSpace, edges


def counts(shape: tuple[int, ...], devices: int) -> itertools.product[tuple[int, ...]]:
    """Every grid that could be one, and many that could not."""
    return itertools.product(*(range(1, max(size, devices) + 2) for size in shape))


@given(meshes(max_devices=12, max_axes=3), st.lists(st.integers(1, 12), min_size=0, max_size=2).map(tuple))
def test_nodes_are_the_grids_of_types_on_the_prime_mesh(mesh: Mesh, shape: tuple[int, ...]) -> None:
    prime = mesh.prime().mesh
    grids = {placement_of(dist_type, prime).grid for dist_type in all_types(prime, shape)}
    space = WeakSpace(shape, mesh.size, math.prod(shape))
    assert {grid for grid in counts(shape, mesh.size) if space.is_node(grid)} == grids


@given(meshes(max_devices=12, max_axes=3), st.integers(1, 144))
def test_the_bound_takes_away_just_the_nodes_with_larger_tiles(mesh: Mesh, bound: int) -> None:
    shape = (12, 12)
    whole, bounded = WeakSpace(shape, mesh.size, 144), WeakSpace(shape, mesh.size, bound)
    for grid in counts(shape, mesh.size):
        assert bounded.is_node(grid) == (whole.is_node(grid) and 144 // math.prod(grid) <= bound)


@given(meshes(max_devices=12, max_axes=3))
def test_edges_lead_from_node_to_node(mesh: Mesh) -> None:
    space = WeakSpace((12, 8), mesh.size, 96)
    for grid in filter(space.is_node, counts((12, 8), mesh.size)):
        for edge in edges(space, grid, ("dynslice", "alltoall", "allgather")):
            assert space.is_node(edge.target)
            assert edge.target != grid


@given(meshes(max_devices=12, max_axes=3))
def test_every_node_is_reached_from_every_other(mesh: Mesh) -> None:
    space = WeakSpace((12, 8), mesh.size, 96)
    nodes = set(filter(space.is_node, counts((12, 8), mesh.size)))
    for start in ((1, 1), max(nodes, key=math.prod)):
        reached, ahead = {start}, [start]
        while ahead:
            onward = {edge.target for edge in edges(space, ahead.pop(), ("dynslice", "alltoall", "allgather"))}
            ahead += onward - reached
            reached |= onward
        assert reached == nodes


@pytest.mark.parametrize("grid", [(3,), (2,), (4,)])
def test_without_prime_axes_some_nodes_have_no_type(grid: tuple[int]) -> None:
    """Primality is necessary: on one axis of 12 an array of 12 is cut by 12 or not at all."""
    mesh = Mesh((Axis("x", 12),))
    space = WeakSpace((12,), 12, 12)
    assert space.is_node(grid)
    assert grid not in {placement_of(dist_type, mesh).grid for dist_type in all_types(mesh, (12,))}
