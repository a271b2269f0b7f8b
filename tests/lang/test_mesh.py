"""Meshes: what describes one, what cannot be one, coordinates, and the split into prime axes."""

from __future__ import annotations

import itertools
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.errors import MeshError, UnknownAxisError
from redistrib.lang.mesh import Axis, Mesh

XY = Mesh((Axis("x", 4), Axis("y", 6)))


@pytest.mark.parametrize(
    "value",
    [
        XY,
        {"x": 4, "y": 6},
        {"x": np.int64(4), "y": 6},
        "x=4,y=6",
        "{x:4, y:6}",
        SimpleNamespace(axis_names=("x", "y"), axis_sizes=(4, 6)),
        SimpleNamespace(axis_names=("x", "y"), devices=np.empty((4, 6), dtype=object)),
    ],
    ids=str,
)
def test_a_mesh_from_whatever_describes_one(value: Any) -> None:
    mesh = Mesh.of(value)
    assert mesh == XY
    assert hash(mesh) == hash(XY)
    assert (mesh.size, mesh.shape, mesh.names) == (24, (4, 6), ("x", "y"))
    assert str(mesh) == "{x:4, y:6}"
    assert Mesh.of(str(mesh)) == mesh


def test_a_mesh_from_jax() -> None:
    jax = pytest.importorskip("jax")
    device = np.array(jax.devices()[:1]).reshape(1, 1)
    assert Mesh.of(jax.sharding.Mesh(device, ("x", "y"))) == Mesh.of("x=1,y=1")
    assert Mesh.of(jax.sharding.AbstractMesh((4, 6), ("x", "y"))) == XY


def test_coordinates_are_row_major() -> None:
    expected = list(itertools.product(range(4), range(6)))
    assert XY.coordinates.tolist() == [list(row) for row in expected]
    assert not XY.coordinates.flags.writeable


def test_coordinates_follow_the_device_order() -> None:
    mesh = Mesh((Axis("x", 2), Axis("y", 2)), (3, 0, 2, 1))
    # device 3 stands at (0, 0), device 0 at (0, 1), device 2 at (1, 0), device 1 at (1, 1)
    assert mesh.coordinates.tolist() == [[0, 1], [1, 1], [1, 0], [0, 0]]
    assert mesh != Mesh.of("x=2,y=2")


def test_the_mesh_without_axes_is_one_device() -> None:
    mesh = Mesh.of("{}")
    assert (mesh.size, mesh.devices, str(mesh)) == (1, (0,), "{}")
    assert mesh.coordinates.shape == (1, 0)


def test_an_axis_is_found_by_name() -> None:
    assert XY.axis("y") == Axis("y", 6)
    with pytest.raises(UnknownAxisError) as caught:
        XY.axis("z")
    assert str(caught.value) == "mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'"
    assert (caught.value.name, caught.value.names) == ("z", ("x", "y"))


BAD = [
    (lambda: Mesh.of(3.5), MeshError,
     "3.5 does not describe a mesh; give a Mesh, a dict such as {'x': 4, 'y': 6}, the text 'x=4,y=6', "
     "or a jax.sharding.Mesh"),
    (lambda: Mesh.of({"": 4}), MeshError,
     "the axis name '' is not a non-empty string; name mesh axes by strings such as 'x'"),
    (lambda: Mesh.of({3: 4}), MeshError,
     "the axis name 3 is not a non-empty string; name mesh axes by strings such as 'x'"),
    (lambda: Mesh.of("x=0"), MeshError,
     "axis 'x' has size 0; a mesh axis has a positive integer number of devices"),
    (lambda: Mesh.of({"x": 4.0}), MeshError,
     "axis 'x' has size 4.0; a mesh axis has a positive integer number of devices"),
    (lambda: Mesh.of({"x": True}), MeshError,
     "axis 'x' has size True; a mesh axis has a positive integer number of devices"),
    (lambda: Mesh.of("x=2,x=3"), MeshError,
     "axis 'x' appears twice in mesh {x:2, x:3}; give every axis of a mesh its own name"),
    (lambda: Mesh.of("x=4096,y=4096"), MeshError,
     "mesh {x:4096, y:4096} has 16777216 devices and at most 1048576 are possible; take a smaller mesh"),
    (lambda: Mesh((Axis("x", 3),), (0, 1, 1)), MeshError,
     "mesh {x:3} needs 3 different device numbers, from 0 to 1,048,575, got [0, 1, 1]; "
     "leave them out to number devices row by row"),
    (lambda: Mesh((Axis("x", 2),), tuple(range(20))), MeshError,
     "mesh {x:2} needs 2 different device numbers, from 0 to 1,048,575, "
     "got [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] and 4 more; "
     "leave them out to number devices row by row"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "message"), BAD)
def test_what_cannot_be_a_mesh_is_refused(make: Any, kind: type[MeshError], message: str) -> None:
    with pytest.raises(MeshError) as caught:
        make()
    assert type(caught.value) is kind
    assert str(caught.value) == message
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is kind
    assert str(again) == message
    assert vars(again) == vars(caught.value)


def test_an_error_names_the_rule_and_has_its_values_as_attributes() -> None:
    with pytest.raises(MeshError) as caught:
        Mesh.of("x=2,x=3")
    error = caught.value
    assert (error.rule, error.name, error.values) == ("duplicate axis", "x", {"name": "x", "mesh": "{x:2, x:3}"})
    assert not hasattr(error, "size")


# --------------------------------------------------------------------------------------- prime decomposition


def test_example_3_1_splits_as_in_the_paper() -> None:
    prime = XY.prime()
    assert prime.factors == ((Axis("x0", 2), Axis("x1", 2)), (Axis("y0", 3), Axis("y1", 2)))
    assert str(prime.mesh) == "{x1:2, x0:2, y1:2, y0:3}"


def test_prime_axes_keep_their_name_and_unit_axes_disappear() -> None:
    prime = Mesh.of("a=1,b=3,c=1").prime()
    assert prime.mesh == Mesh.of("b=3")
    assert prime.factors[0] == ()


def test_new_names_clash_with_none() -> None:
    assert str(Mesh.of("x=4,x0=2,x_1=3").prime().mesh) == "{x__1:2, x__0:2, x0:2, x_1:3}"
    assert str(Mesh.of("x=4,x0=2,x_=4").prime().mesh) == "{x_1:2, x_0:2, x0:2, x__1:2, x__0:2}"
    assert Mesh.of("x=4,x1=1").prime().mesh.names == ("x_1", "x_0")


meshes = st.lists(st.integers(1, 12), max_size=4).flatmap(
    lambda sizes: (
        st.permutations(range(int(np.prod(sizes, dtype=int)))).map(
            lambda devices: Mesh(
                tuple(Axis(name, size) for name, size in zip("abcd", sizes, strict=False)), tuple(devices)
            )
        )
        if np.prod(sizes, dtype=int) <= 200
        else st.just(Mesh(tuple(Axis(name, size) for name, size in zip("abcd", sizes, strict=False))))
    )
)


@given(meshes)
def test_prime_and_user_coordinates_correspond_one_to_one(mesh: Mesh) -> None:
    prime = mesh.prime()
    assert prime.mesh.devices == mesh.devices
    for k, axis in enumerate(mesh.axes):
        value = np.zeros(mesh.size, dtype=int)
        weight = 1
        for part in prime.factors[k]:  # minor to major
            assert all(part.size % divisor for divisor in range(2, part.size))
            value += weight * prime.mesh.coordinates[:, prime.mesh.names.index(part.name)]
            weight *= part.size
        assert weight == axis.size
        assert (value == mesh.coordinates[:, k]).all()


@given(meshes)
def test_every_device_has_its_own_coordinates(mesh: Mesh) -> None:
    assert mesh.coordinates.shape == (mesh.size, len(mesh.axes))
    rows = [tuple(row) for row in mesh.coordinates[list(mesh.devices)].tolist()]
    assert rows == list(itertools.product(*(range(size) for size in mesh.shape)))


def test_a_mesh_shows_its_device_order_where_it_has_one() -> None:
    assert repr(XY) == "Mesh({x:4, y:6})"
    assert repr(Mesh((Axis("x", 2),), (1, 0))) == "Mesh({x:2}, devices=(1, 0))"
