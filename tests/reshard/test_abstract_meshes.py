"""`reshard_plan` and `diagnose` without devices: of descriptions of arrays over an `AbstractMesh`."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import private
from redistrib.errors import LeafError, MeshError, ProgramError

ALL = np.array(jax.devices()[:8])
TRAIN = AbstractMesh((4, 2), ("data", "model"))
SERVE = AbstractMesh((4,), ("tp",))
LARGE = AbstractMesh((64, 8), ("data", "model"))


def shaped(mesh: Any, spec: P, shape: tuple[int, ...] = (512, 256), dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def concrete(mesh: AbstractMesh) -> jax.sharding.Mesh:
    return jax.sharding.Mesh(ALL[: mesh.size].reshape(mesh.axis_sizes), mesh.axis_names)


def tree(mesh: Any) -> dict[str, Any]:
    return {"w": shaped(mesh, P("data")), "b": shaped(mesh, P(), (256,), jnp.float32)}


def targets(mesh: Any) -> dict[str, Any]:
    return {"w": NamedSharding(mesh, P(None, "tp")), "b": NamedSharding(mesh, P("tp"))}


def test_a_plan_over_abstract_meshes_is_that_over_devices() -> None:
    there = rd.reshard_plan(tree(concrete(TRAIN)), targets(concrete(SERVE)), donate=True)
    found = rd.reshard_plan(tree(TRAIN), targets(SERVE), donate=True)
    assert str(found) == str(there)


def test_specs_and_specs_by_path_over_an_abstract_mesh() -> None:
    by_leaf = rd.reshard_plan(tree(LARGE), {"w": P(None, "model"), "b": P("model")}, mesh=LARGE)
    by_path = rd.reshard_plan(tree(LARGE), {"w": P(None, "model"), "*": P("model")}, mesh=LARGE)
    assert str(by_leaf) == str(by_path)
    assert "512{" in str(by_leaf) or "8{data}512" in str(by_leaf)


@pytest.mark.parametrize("mesh", [rd.Mesh.of({"data": 64, "model": 8}), {"data": 64, "model": 8}, "data=64,model=8"])
def test_specs_over_axes_and_sizes(mesh: Any) -> None:
    specs = {"w": P(None, "model"), "b": P("model")}
    assert str(rd.reshard_plan(tree(LARGE), specs, mesh=mesh)) == str(rd.reshard_plan(tree(LARGE), specs, mesh=LARGE))


def test_arrays_over_axes_and_sizes_go_to_the_first_devices() -> None:
    x, there = jnp.arange(64.0).reshape(8, 8), NamedSharding(concrete(TRAIN), P(None, ("data", "model")))
    start = jax.device_put(x, NamedSharding(concrete(TRAIN), P("data")))
    moved = rd.reshard(start, P(None, ("data", "model")), mesh=rd.Mesh.of({"data": 4, "model": 2}))
    assert moved.sharding.is_equivalent_to(there, 2)
    np.testing.assert_array_equal(moved, x)
    with pytest.raises(
        LeafError, match=rf"is over 1024 devices, and JAX has {jax.device_count()}; give a smaller mesh"
    ):
        rd.reshard(start, P("data"), mesh={"data": 1024})


def test_a_function_on_the_way_over_an_abstract_mesh() -> None:
    def cast(params: dict[str, Any]) -> dict[str, Any]:
        return {"w": params["w"].T, "b": params["b"].astype(jnp.bfloat16)}

    there = rd.reshard_plan(tree(concrete(TRAIN)), targets(concrete(SERVE)), through=cast)
    assert str(rd.reshard_plan(tree(TRAIN), targets(SERVE), through=cast)) == str(there)


def test_what_is_planned_without_devices_does_not_move() -> None:
    with pytest.raises(LeafError, match="AbstractMesh"):
        rd.reshard(tree(TRAIN), targets(SERVE))


def no_plan(path: str, source: str, target: str) -> Any:
    why = (
        f"leaf {path}: its source is on {source} and its target on {target}, and no plan leads from one to the other; "
        "give both over an AbstractMesh, or both over a jax.sharding.Mesh"
    )
    return pytest.raises(LeafError, match=f"^{re.escape(why)}$")


@pytest.mark.parametrize(
    "options",
    [
        {"donate": True},
        {"memory_limit": "1 MiB"},
        {"via": "auto"},
        {"through": lambda params: {"w": params["w"] * 2, "b": params["b"]}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_no_plan_leads_from_an_abstract_mesh_to_devices(options: dict[str, Any]) -> None:
    here, one = targets(concrete(SERVE)), SingleDeviceSharding(ALL[0])
    for target, first in ((here, "b"), ({**targets(SERVE), "w": one}, "w"), ({**targets(SERVE), "w": here["w"]}, "w")):
        with no_plan(first, "an AbstractMesh", "devices"):
            rd.reshard_plan(tree(TRAIN), target, **options)
    with no_plan("b", "an AbstractMesh", "devices"):
        rd.reshard_plan(tree(TRAIN), {"w": P(None, "tp"), "b": P("tp")}, mesh=concrete(SERVE), **options)
    with no_plan("w", "devices", "an AbstractMesh"):
        rd.reshard_plan({**tree(TRAIN), "w": tree(concrete(TRAIN))["w"]}, targets(SERVE), **options)


@pytest.mark.parametrize("options", [{}, {"through": dict}], ids=["plain", "through"])
def test_leaves_over_abstract_meshes_beside_leaves_over_devices(options: dict[str, Any]) -> None:
    mixed = {**tree(TRAIN), "w": tree(concrete(TRAIN))["w"]}, {**targets(SERVE), "w": targets(concrete(SERVE))["w"]}
    found = rd.reshard_plan(*mixed, **options)
    assert found.received_bytes == rd.reshard_plan(tree(TRAIN), targets(SERVE), **options).received_bytes


@pytest.mark.parametrize("options", [{}, {"through": dict}], ids=["plain", "through"])
def test_arrays_do_not_move_to_an_abstract_mesh_of_auto_axes(options: dict[str, Any]) -> None:
    arrays = jax.tree.map(lambda form: jax.device_put(jnp.zeros(form.shape), form.sharding), tree(concrete(TRAIN)))
    message = r"^leaf b: the sharding P\('tp',?\) is over an AbstractMesh, which names no devices, and nothing"
    for call in (rd.reshard, rd.reshard_plan):
        with pytest.raises(LeafError, match=message):
            call(arrays, targets(SERVE), **options)
    with pytest.raises(LeafError, match=r"^leaf b: .* is over an AbstractMesh, which names no devices"):
        rd.reshard(tree(TRAIN), targets(concrete(SERVE)), **options)


def test_under_jit_an_abstract_mesh_is_that_of_the_arrays_and_nothing_is_planned() -> None:
    x, there = jnp.arange(64.0).reshape(8, 8), AbstractMesh((8,), ("tp",))
    start = jax.device_put(x, NamedSharding(concrete(TRAIN), P("data")))
    moved = jax.jit(lambda x: rd.reshard(x, NamedSharding(there, P(None, "tp"))))(start)
    assert moved.sharding.is_equivalent_to(NamedSharding(jax.sharding.Mesh(ALL, ("tp",)), P(None, "tp")), 2)
    np.testing.assert_array_equal(moved, x)
    message = "^a traced array is on no devices yet; plan outside jit, also for a jax.ShapeDtypeStruct"
    with pytest.raises(LeafError, match=message):
        jax.jit(lambda x: rd.reshard_plan(x, NamedSharding(there, P(None, "tp"))))(start)


def test_a_diagnosis_without_devices_is_that_with_them() -> None:
    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w)

    def arguments(mesh: Any) -> tuple[Any, Any]:
        return shaped(mesh, P("data")), shaped(mesh, P("model"), (256, 128))

    there = rd.diagnose(jax.jit(product), *arguments(concrete(TRAIN)))
    found = rd.diagnose(product, *arguments(TRAIN))
    assert found.as_dict() == there.as_dict()
    assert there.received > 0
    assert rd.diagnose(product, *arguments(LARGE)).devices == 512


@pytest.mark.parametrize("placed", [False, True], ids=["shape", "sharding"])
def test_a_diagnosis_of_a_function_that_names_an_abstract_mesh(placed: bool) -> None:
    def turned(mesh: Any) -> Any:
        end = NamedSharding(mesh, P("model", "data"))
        return jax.jit(
            lambda x: jax.lax.with_sharding_constraint(2 * x, end) + 1, in_shardings=NamedSharding(mesh, P("data"))
        )

    def argument(mesh: Any) -> Any:
        return shaped(mesh, P("data")) if placed else jax.ShapeDtypeStruct((512, 256), jnp.bfloat16)

    there = rd.diagnose(turned(concrete(TRAIN)), argument(concrete(TRAIN)))
    found = rd.diagnose(turned(TRAIN), argument(TRAIN))
    assert found.as_dict() == there.as_dict()
    assert there.received > 0 and there.findings[0].reshards


def test_what_is_wrong_with_a_function_is_said_as_jax_says_it() -> None:
    def fails(x: jax.Array) -> jax.Array:
        raise ValueError("wrong in itself")

    with pytest.raises(ValueError, match="wrong in itself"):
        rd.diagnose(jax.jit(fails), jax.ShapeDtypeStruct((8,), jnp.float32))


def test_more_devices_than_can_be_compiled_for() -> None:
    mesh = AbstractMesh((4096,), ("data",))
    message = r"^mesh \{data:4096\} has 4096 devices to compile for and at most 2048 are possible; take a smaller mesh$"
    with pytest.raises(MeshError, match=message):
        rd.reshard_plan(shaped(mesh, P("data"), (8192, 8)), NamedSharding(mesh, P()))


def test_a_jax_without_virtual_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "virtual_devices", lambda count: None)
    with pytest.raises(LeafError, match="AbstractMesh, which names no devices"):
        rd.reshard_plan(tree(TRAIN), targets(SERVE))
    with pytest.raises(ProgramError, match="AbstractMesh names none"):
        rd.diagnose(jnp.sin, shaped(TRAIN, P("data")))
