"""Meshes of Explicit and Auto axes at once, and abstract meshes of other axes than the one that is set."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd

VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)
SPECS = (P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x")), P("x"), P(None, "y"), P())
KINDS = {"explicit, auto": (AxisType.Explicit, AxisType.Auto), "auto, explicit": (AxisType.Auto, AxisType.Explicit)}


def mesh_of(axes: dict[str, int], kinds: tuple[AxisType, ...]) -> jax.sharding.Mesh:
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=kinds)


def check(found: jax.Array, values: np.ndarray, target: NamedSharding) -> None:
    assert found.sharding.is_equivalent_to(target, found.ndim), (found.sharding, target)
    for shard in found.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), values[shard.index])


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("source", "target"),
    [pytest.param(*ends, marks=[] if ends[0] == SPECS[0] else pytest.mark.long) for ends in product(SPECS[:3], SPECS)],
)
def test_meshes_of_explicit_and_auto_axes(kinds: tuple[AxisType, ...], source: P, target: P) -> None:
    mesh = mesh_of({"x": 2, "y": 4}, kinds)
    before, after = NamedSharding(mesh, source), NamedSharding(mesh, target)
    array = jax.device_put(VALUES, before)

    def moved(value: Any) -> Any:
        return rd.reshard(value, after, source=before)

    check(rd.reshard(array, after), VALUES, after)
    with jax.set_mesh(mesh):
        check(jax.jit(moved)(array), VALUES, after)
        gradient = jax.jit(jax.grad(lambda value: jnp.sum(moved(value) ** 2) / 2))(array)
    np.testing.assert_array_equal(gradient, VALUES)


EXPLICIT = (AxisType.Explicit,) * 2
MESHES = [{"a": 4, "b": 2}, {"a": 2, "b": 4}, {"y": 4, "x": 2}]


@pytest.mark.parametrize("axes", MESHES, ids=str)
@pytest.mark.parametrize("other", [False, True])
def test_abstract_meshes_of_other_axes_than_the_mesh_that_is_set(axes: dict[str, int], other: bool) -> None:
    """Under `jit` the devices are those of the arguments, and an abstract mesh names them anew."""
    mesh, named = mesh_of({"x": 2, "y": 4}, EXPLICIT), mesh_of(axes, EXPLICIT)
    array = jax.device_put(VALUES, NamedSharding(mesh, P("x", "y")))
    first, second = axes
    specs = (P(first, second), P(second, first), P((first, second)), P(None, first), P())
    for spec in specs:
        there, back = NamedSharding(named.abstract_mesh, spec), NamedSharding(mesh.abstract_mesh, P("y", "x"))

        def moved(value: Any, there: Any = there, back: Any = back) -> Any:
            away = rd.reshard(value, there)
            return rd.reshard(away, back) if other else away

        with jax.set_mesh(mesh):
            found = jax.jit(moved)(array)
        check(found, VALUES, NamedSharding(mesh, P("y", "x")) if other else NamedSharding(named, spec))


@pytest.mark.parametrize("axes", [{"a": 8}, {"a": 2, "x": 2, "c": 2}, {"y": 4, "x": 2}], ids=str)
@pytest.mark.parametrize("kinds", [EXPLICIT, *KINDS.values()], ids=["explicit", *KINDS])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["to auto", "to explicit"])
def test_a_mesh_with_explicit_axes_and_a_mesh_of_other_names(
    kind: AxisType, kinds: tuple[AxisType, ...], axes: dict[str, int]
) -> None:
    mesh, other = mesh_of({"x": 4, "y": 2}, kinds), mesh_of(axes, (kind,) * len(axes))
    for spec in (P("x", "y"), P()):
        before, after = NamedSharding(mesh, spec), NamedSharding(other, P(None, tuple(axes)))
        array = jax.device_put(VALUES, before)
        check(rd.reshard(array, after), VALUES, after)

        def moved(value: Any, after: NamedSharding = after, before: NamedSharding = before) -> Any:
            return rd.reshard(value, after, source=before)

        check(jax.jit(moved)(array), VALUES, after)
        gradient = jax.jit(jax.grad(lambda value, moved=moved: jnp.sum(moved(value) ** 2) / 2))(array)
        np.testing.assert_array_equal(gradient, VALUES)
