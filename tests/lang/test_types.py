"""Distributed types: shapes, well-formedness (Figure 7b), the move to prime axes, axes of size 1, empty dimensions."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.errors import MeshError, RedistribError, TypeFormError, UnknownAxisError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.theory.placement import placement_of
from tests.primes import prime_type

XY = Mesh.of("x=4,y=6")


def test_shapes_of_a_type() -> None:
    t = DistType.parse("[3{x}12, 5, 2{y}12]")
    assert t.rank == 3
    assert t.global_shape == (12, 5, 12)
    assert t.local_shape == (3, 5, 2)
    assert (t.global_size, t.local_size) == (720, 30)
    assert t.axes == ("x", "y")
    assert str(t) == "[3{x}12, 5, 2{y}12]"
    t.check(XY)


def test_rank_zero() -> None:
    t = DistType.parse("[]")
    assert (t.rank, t.global_shape, t.local_size, str(t)) == (0, (), 1, "[]")
    t.check(XY)
    assert placement_of(t, XY).index.shape == (24, 0)


@pytest.mark.parametrize(
    "value",
    [
        DistType((DimType(3, ("x",), 12), DimType(5, (), 5))),
        "[3{x}12, 5]",
        [DimType(3, ("x",), 12), DimType(5, (), 5)],
        iter([DimType(3, ("x",), 12), DimType(5, (), 5)]),
    ],
)
def test_a_type_from_whatever_describes_one(value: Any) -> None:
    assert DistType.of(value) == DistType.parse("[3{x}12, 5]")


REFUSED = [
    (lambda: DistType.of(12), TypeFormError,
     "12 does not describe a distributed type; give a DistType, its notation such as '[3{x}12, 24]', "
     "or a sequence of DimType"),
    (lambda: DistType.of((3, 4)), TypeFormError,
     "(3, 4) does not describe a distributed type; give a DistType, its notation such as '[3{x}12, 24]', "
     "or a sequence of DimType"),
    (lambda: DimType(-1, (), 12), TypeFormError,
     "the tile -1 of a dimension is not an integer from 0 to 2**63 - 1"),
    (lambda: DimType(1, (), 2**63), TypeFormError,
     "the global size 9223372036854775808 of a dimension is not an integer from 0 to 2**63 - 1"),
    (lambda: DimType(3.0, (), 12), TypeFormError,
     "the tile 3.0 of a dimension is not an integer from 0 to 2**63 - 1"),
    (lambda: DimType(3, (4,), 12), MeshError,
     "the axis name 4 is not a non-empty string; name mesh axes by strings such as 'x'"),
    (lambda: DistType.parse("[3{z}12]").check(XY), UnknownAxisError,
     "mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'"),
    (lambda: DistType.parse("[3{x}12, 3{x}12]").check(XY), TypeFormError,
     "axis 'x' is used twice in type [3{x}12, 3{x}12]; a mesh axis may cut at most one dimension, once"),
    (lambda: DistType.parse("[1{x,x}16]").check(XY), TypeFormError,
     "axis 'x' is used twice in type [1{x,x}16]; a mesh axis may cut at most one dimension, once"),
    (lambda: DistType.parse("[12, 4{x}12]").check(XY), TypeFormError,
     "dimension 1 of [12, 4{x}12]: 4 tiles of 4 make 16 elements, not 12; write 3{x}12"),
    (lambda: DistType.parse("[5{}12]").check(XY), TypeFormError,
     "dimension 0 of [5{}12]: 1 tile of 5 makes 5 elements, not 12; write 12"),
    (lambda: DistType.parse("[2{x}10]").check(XY), TypeFormError,
     "dimension 0 of [2{x}10]: 4 tiles of 2 make 8 elements, not 10; 4 does not divide 10: "
     "take other axes, pad the dimension to 12, or write 3~{x}10 for tiles of unequal size"),
    (lambda: DistType.cut((12, 10), {1: ["x"]}, XY), TypeFormError,
     "dimension 1 of [12, 2{x}10]: 4 tiles of 2 make 8 elements, not 10; 4 does not divide 10: "
     "take other axes, pad the dimension to 12, or write 3~{x}10 for tiles of unequal size"),
    (lambda: DistType.cut((12,), {0: ["z"]}, XY), UnknownAxisError,
     "mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'"),
    (lambda: DistType.parse("[0{x}4]").check(XY), TypeFormError,
     "dimension 0 of [0{x}4]: 4 tiles of 0 make 0 elements, not 4; write 1{x}4"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "message"), REFUSED)
def test_what_is_no_type_is_refused(make: Any, kind: type[RedistribError], message: str) -> None:
    with pytest.raises(RedistribError) as caught:
        make()
    assert type(caught.value) is kind
    assert str(caught.value) == message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_the_first_axis_is_the_minor_one() -> None:
    """Figure 7a: D[[3{x,y}72]] at (x, y) is 3x + 12y."""
    index = placement_of(DistType.parse("[3{x,y}72]"), XY).start[:, 0].tolist()
    assert index == [3 * x + 12 * y for x in range(4) for y in range(6)]


# ------------------------------------------------------------------------------------ every type on a mesh


def types_of(mesh: Mesh, rank: int) -> list[DistType]:
    """Every well-formed type whose dimensions have as many elements as the mesh has devices, times 2."""
    size = 2 * mesh.size
    found = []
    for places in itertools.product(range(-1, rank), repeat=len(mesh.axes)):
        cuts = [[name for name, place in zip(mesh.names, places, strict=True) if place == i] for i in range(rank)]
        for ordered in itertools.product(*(itertools.permutations(cut) for cut in cuts)):
            dims = []
            for axes in ordered:
                tiles = 1
                for name in axes:
                    tiles *= mesh.axis(name).size
                dims.append(DimType(size // tiles, axes, size))
            found.append(DistType(tuple(dims)))
    return found


@pytest.mark.parametrize("text", ["x=4", "x=6", "x=12", "x=4,y=6", "x=2,y=3", "x=4,y=2,z=2", "x=1,y=4,z=1", "x=5,y=4"])
@pytest.mark.parametrize("rank", [1, 2])
def test_a_type_and_its_prime_type_mean_the_same(text: str, rank: int) -> None:
    mesh = Mesh.of(text)
    reordered = Mesh(mesh.axes, tuple(range(mesh.size))[::-1])
    for t in types_of(mesh, rank):
        for user in (mesh, reordered):
            prime = user.prime().mesh
            split = prime_type(t, user)
            split.check(prime)
            assert placement_of(split, prime) == placement_of(t, user)


def test_prime_type_names_the_parts_minor_to_major() -> None:
    assert str(prime_type(DistType.parse("[1{y,x}24, 7]"), XY)) == "[1{y0,y1,x0,x1}24, 7]"


def test_axes_of_size_one_change_nothing() -> None:
    mesh = Mesh.of("a=1,x=4,b=1")
    plain = placement_of(DistType.parse("[3{x}12, 5]"), mesh)
    for text in ("[3{a,x,b}12, 5]", "[3{x,b}12, 5{a}5]", "[3{b,x}12, 5]"):
        t = DistType.parse(text)
        t.check(mesh)
        assert placement_of(t, mesh) == plain
        assert prime_type(t, mesh) == DistType.parse("[3{x0,x1}12, 5]")


def test_a_dimension_may_be_empty() -> None:
    t = DistType.parse("[0{x}0, 2{y}12]")
    t.check(XY)
    assert (t.global_shape, t.local_shape, t.local_size, t.global_size) == ((0, 12), (0, 2), 0, 0)
    assert placement_of(t, XY).tile == (0, 2)


axis_names = st.sampled_from(["x", "y", "model.head", 'quo"te'])


@given(st.lists(st.tuples(st.integers(0, 99), st.lists(axis_names, max_size=3), st.integers(0, 99)), max_size=4))
def test_printing_and_parsing_round_trip(dims: list[tuple[int, list[str], int]]) -> None:
    t = DistType(tuple(DimType(tile, tuple(axes), size) for tile, axes, size in dims))
    assert DistType.parse(str(t)) == t


@given(st.data())
def test_check_agrees_with_figure_7b(data: st.DataObject) -> None:
    mesh = Mesh((Axis("x", 2), Axis("y", 3)))
    dims = data.draw(
        st.lists(
            st.tuples(st.integers(0, 6), st.lists(st.sampled_from("xyz"), max_size=2), st.integers(0, 12)), max_size=2
        )
    )
    sizes = {"x": 2, "y": 3}
    names = [name for _, axes, _ in dims for name in axes]
    affine = len(set(names)) == len(names)
    known = set(names) <= set(sizes)

    def product(tile: int, axes: list[str]) -> int:
        for name in axes:
            tile *= sizes[name]
        return tile

    well_formed = affine and known and all(product(tile, axes) == size for tile, axes, size in dims)
    t = DistType(tuple(DimType(tile, tuple(axes), size) for tile, axes, size in dims))
    if well_formed:
        t.check(mesh)
    else:
        with pytest.raises(TypeFormError) as caught:
            t.check(mesh)
        assert caught.value.rule in ("unknown axis", "axis reused", "tile product")
