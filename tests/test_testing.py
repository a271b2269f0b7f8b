"""What the strategies for tests draw: something of each kind that they speak of, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.testing import (
    RedistributionCase,
    cuts,
    meshes,
    plans,
    redistributions,
    tori,
    types,
    uneven_redistributions,
)

MESH = Mesh.of("x=2,y=3,z=2")
Some = Callable[[Any], bool]


def axes_of(form: DistType) -> list[str]:
    return [name for dim in form.dims for name in dim.axes]


def ways(form: DistType) -> set[str]:
    return {dim.cut for dim in form.dims}


PROMISED: dict[str, tuple[st.SearchStrategy[Any], Some]] = {
    "a mesh of no axes": (meshes(), lambda mesh: not mesh.axes),
    "a mesh of one device": (meshes(), lambda mesh: mesh.size == 1),
    "a mesh of as many as are allowed": (meshes(max_devices=6), lambda mesh: mesh.size == 6),
    "a mesh of as many axes as are allowed": (meshes(max_axes=3), lambda mesh: len(mesh.axes) == 3),
    "an axis of size 1": (meshes(), lambda mesh: any(axis.size == 1 for axis in mesh.axes)),
    "devices out of order": (meshes(shuffled=True), lambda mesh: list(mesh.devices) != sorted(mesh.devices)),
    "a ring": (tori(6), lambda torus: torus.shape == (6,) and torus.wraps == (True,)),
    "a grid of three dimensions": (tori(8), lambda torus: torus.shape == (2, 2, 2) and not any(torus.wraps)),
    "a dimension cut by several axes": (cuts(MESH, 2), lambda cut: max(map(len, cut)) == 3),
    "an axis that cuts nothing": (cuts(MESH, 2), lambda cut: sum(map(len, cut)) == 2),
    "minor before major": (cuts(MESH, 1), lambda cut: cut == (("z", "x"),)),
    "a type of no dimensions": (types(MESH), lambda form: form.rank == 0),
    "a type of three dimensions": (types(MESH), lambda form: form.rank == 3),
    "two dimensions cut": (types(MESH), lambda form: sum(bool(dim.axes) for dim in form.dims) == 2),
    "tiles of several elements": (types(MESH), lambda form: len(axes_of(form)) == 3 and form.local_size > 1),
    "one mesh": (redistributions(), lambda case: case.mesh == case.target_mesh and axes_of(case.source)),
    "two meshes": (
        redistributions(),
        lambda case: case.mesh != case.target_mesh and axes_of(case.source) and axes_of(case.target),
    ),
    "other axes": (redistributions(), lambda case: case.mesh.shape != case.target_mesh.shape),
    "a larger array than must be": (
        redistributions(),
        lambda case: case.source.local_size > 1 and axes_of(case.source) == axes_of(case.target) == ["x"],
    ),
    "tiles of unequal sizes": (uneven_redistributions(), lambda case: "balanced" in ways(case.source)),
    "tiles of which the last is smaller": (uneven_redistributions(), lambda case: "chunk" in ways(case.target)),
    "padding": (uneven_redistributions(), lambda case: any(dim.padding for dim in case.source.dims)),
    "devices from another number on": (uneven_redistributions(), lambda case: min(case.target_mesh.devices) == 3),
    "fewer devices": (uneven_redistributions(), lambda case: case.mesh.size > case.target_mesh.size > 1),
    "the paper's algorithm": (plans(), lambda plan: (plan.algorithm, plan.cost_model) == ("paper", "paper")),
    "a plan of two steps": (plans(max_devices=8, max_rank=2), lambda plan: len(plan.steps) == 2),
}


@pytest.mark.parametrize("what", PROMISED)
def test_everything_that_is_promised_is_drawn(what: str) -> None:
    strategy, some = PROMISED[what]
    quick = settings(max_examples=20_000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    find(strategy, lambda drawn: bool(some(drawn)), settings=quick)  # NoSuchExample, which fails, where it draws none


@given(redistributions(max_devices=12, max_rank=2, max_size=500))
def test_both_types_are_of_one_array_within_the_limits(case: RedistributionCase) -> None:
    assert case.source.global_shape == case.target.global_shape
    assert math.prod(case.source.global_shape) <= 500
    assert len(case.source.global_shape) <= 2
    assert case.mesh.size == case.target_mesh.size <= 12
    assert case.before.devices == case.after.devices == case.mesh.size


@given(uneven_redistributions(max_devices=8, max_rank=2, max_size=100))
def test_arrays_of_any_sizes_are_small(case: RedistributionCase) -> None:
    sizes = case.source.global_shape
    assert sizes == case.target.global_shape
    assert 1 <= len(sizes) <= 2 and max(sizes) <= 14 and math.prod(sizes) <= 100
    assert max(case.mesh.size, case.target_mesh.size) <= 8


@given(redistributions(two_meshes=False))
def test_one_mesh_where_two_are_not_wanted(case: RedistributionCase) -> None:
    assert case.mesh == case.target_mesh
    assert list(case.mesh.devices) == list(range(case.mesh.size))


@given(types(MESH, max_rank=2))
def test_types_are_even(form: DistType) -> None:
    assert form.rank <= 2
    assert len({*axes_of(form)}) == len(axes_of(form))
    assert ways(form) <= {"even"}


@given(cuts(MESH, 2))
def test_no_axis_cuts_twice(cut: tuple[tuple[str, ...], ...]) -> None:
    names = [name for names in cut for name in names]
    assert len(cut) == 2
    assert sorted({*names}) == sorted(names)
    assert {*names} <= {*MESH.names}
