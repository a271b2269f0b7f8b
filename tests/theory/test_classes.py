"""The weak graph of two classes of links, against meshes whose axes say which links are slow."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from redistrib.lang.mesh import Mesh
from redistrib.testing import all_types
from redistrib.theory.classes import LinkClasses, node_of, split_edges
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.topology import Topology
from redistrib.theory.weak import EdgeKind, WeakSpace, edges

ANY: tuple[EdgeKind, ...] = ("dynslice", "alltoall", "allgather")
MESH = Mesh.of("s=2,t=2,x=2,y=3")  # hosts are what s and t tell apart
HOSTS = Topology.consecutive(24, 6)
SIZES = dict(zip(MESH.names, MESH.shape, strict=True))
SHAPE = (24, 24)


def test_the_node_of_a_type_is_what_its_axes_say() -> None:
    seen = 0
    for dist_type in all_types(MESH, SHAPE):
        cut = [[SIZES[name] for name in dim.axes if name in "st"] for dim in dist_type.dims]
        placement = placement_of(dist_type, MESH)
        assert node_of(placement, HOSTS) == (placement.grid, tuple(map(math.prod, cut)))
        assert node_of(placement, Topology(24)) == (placement.grid, (1, 1))
        seen += 1
    assert seen > 100


def test_tiles_that_lie_on_hosts_in_different_ways_have_no_node() -> None:
    index = np.array([[0], [1], [2], [3], [0], [0], [1], [1]])
    assert node_of(Placement((8,), (4,), index), Topology.consecutive(8, 4)) is None


def test_with_one_host_it_is_the_plain_graph() -> None:
    space, classes = WeakSpace(SHAPE, 24, 24 * 24), LinkClasses.of(Topology(24))
    for grid in itertools.product((1, 2, 3, 4, 6), repeat=2):
        if not space.is_node(grid):
            continue
        split = list(split_edges(space, classes, (grid, (1, 1)), ANY))
        assert [edge for edge, _ in split] == list(edges(space, grid, ANY))
        assert all(onto == (edge.target, (1, 1)) for edge, onto in split)


def test_an_edge_is_there_exactly_when_axes_move_that_way() -> None:
    """Every move of some axes in a type is an edge between the nodes, with the slow part that those axes have."""
    space, classes = WeakSpace(SHAPE, 24, 24 * 24), LinkClasses.of(HOSTS)
    types = list(all_types(MESH, SHAPE))
    nodes = {dist_type: node_of(placement_of(dist_type, MESH), HOSTS) for dist_type in types}
    expected: set[object] = set()
    for source, target in itertools.product(types, repeat=2):
        where = [{name: i for i, dim in enumerate(t.dims) for name in dim.axes} for t in (source, target)]
        moved = {name for name in MESH.names if where[0].get(name) != where[1].get(name)}
        ways = {(where[0].get(name), where[1].get(name)) for name in moved}
        if len(ways) == 1:
            slow = math.prod(SIZES[name] for name in moved if name in "st")
            expected.add((nodes[source], nodes[target], math.prod(SIZES[name] for name in moved), slow))
    found = {
        (node, onto, edge.factor, edge.slow)
        for node in set(nodes.values())
        if node is not None
        for edge, onto in split_edges(space, classes, node, ANY)
    }
    assert found == expected


@pytest.mark.parametrize(("hosts", "expected"), [((0, 0, 1, 1), LinkClasses(2, 2)), ((0, 0, 0, 1), LinkClasses(1, 4))])
def test_hosts_of_different_size_are_no_classes(hosts: tuple[int, ...], expected: LinkClasses) -> None:
    assert LinkClasses.of(Topology(4, hosts)) == expected
