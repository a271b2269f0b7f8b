"""Values of Flax, Equinox and Optax move as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.resharding.paths import through_boxes
from tests.docs.alone import readers_environment, run_alone, snippets_of
from tests.docs.blocks import LIBRARIES, ROOT

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
ROWS, WHOLE = NamedSharding(MESH, P("data")), NamedSharding(MESH, P())


def same(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for mine, theirs in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        if isinstance(mine, jax.Array) and not jnp.issubdtype(mine.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(mine, theirs)


def test_the_state_of_an_nnx_module_with_its_partition_specs() -> None:
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):  # type: ignore[misc, name-defined]
        def __init__(self, rngs: Any) -> None:
            init = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "model"))
            self.wq = nnx.Linear(16, 32, rngs=rngs, kernel_init=init)
            self.drop = nnx.Dropout(0.1, rngs=rngs)

    with jax.set_mesh(MESH):
        state = nnx.state(Model(nnx.Rngs(0)))
        specs = nnx.get_partition_spec(state)
    moved = rd.reshard(state, specs, mesh=MESH)
    assert type(moved) is type(state)
    same(moved, state)
    leaf = jax.tree.leaves(moved["wq"]["kernel"])[0]
    assert leaf.sharding == NamedSharding(MESH, P(None, "model"))
    back = rd.reshard(moved, {"wq/kernel": P("data"), "*": P()}, mesh=MESH, donate=True)
    assert jax.tree.leaves(back["wq"]["kernel"])[0].sharding == ROWS
    with jax.set_mesh(MESH):
        optimizer = optax.adamw(1e-3).init(state := nnx.state(Model(nnx.Rngs(0)), nnx.Param))
    follows = rd.like(rd.reshard(state, {"*/kernel": P("data"), "*": P()}, mesh=MESH), optimizer)
    assert [s.spec for s in jax.tree.leaves(follows[0].mu)] == [P(), P("data")]


def test_an_nnx_model_in_files(tmp_path: Path) -> None:
    nnx = pytest.importorskip("flax.nnx")
    state = nnx.state({"layers": nnx.List([nnx.Linear(8, 8, rngs=nnx.Rngs(0))])})
    patterns = {"layers/*/kernel": P("data"), "*": P()}
    placed = rd.reshard(state, patterns, mesh=MESH)
    rd.save(placed, tmp_path)
    assert list(rd.load(tmp_path, WHOLE)) == ["layers.0.bias", "layers.0.kernel"]
    back = rd.load(tmp_path, placed)
    assert type(back) is type(state)
    same(back, state)
    assert rd.load(tmp_path, patterns, mesh=MESH)["layers.0.kernel"].sharding == ROWS
    assert "layers/0/kernel " in str(rd.reshard_plan(state, patterns, mesh=MESH))


def test_the_page_of_hugging_face_folders_runs(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "hugging-face.md"
    for name in LIBRARIES:
        pytest.importorskip(name)
    for snippet in snippets_of(page):
        (folder := tmp_path / str(snippet.line)).mkdir()
        done = run_alone(snippet, folder, readers_environment(page))
        assert done.returncode == 0, f"line {snippet.line}: {done.stdout}{done.stderr}"


def test_boxes_of_linen_with_their_partition_specs() -> None:
    nn = pytest.importorskip("flax.linen")

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            init = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
            return nn.Dense(32, kernel_init=init)(x)

    variables = Model().init(jax.random.key(0), jnp.ones((2, 16)))
    assert isinstance(variables["params"]["Dense_0"]["kernel"], nn.Partitioned)
    for kernel, shardings in (
        (P(None, "model"), nn.get_partition_spec(variables)),
        (P("data"), {"*/kernel": P("data"), "*": P()}),
    ):
        moved = rd.reshard(variables, shardings, mesh=MESH)
        same(moved, variables)
        assert moved["params"]["Dense_0"]["kernel"].names == (None, "model")
        assert moved["params"]["Dense_0"]["kernel"].value.sharding == NamedSharding(MESH, kernel)
        assert moved["params"]["Dense_0"]["bias"].sharding == WHOLE


def test_an_equinox_module_with_its_functions() -> None:
    eqx = pytest.importorskip("equinox")
    model = eqx.nn.MLP(16, 8, 32, 2, key=jax.random.key(0))
    moved = rd.reshard(model, lambda path, leaf: P("data") if path.endswith("weight") else P(), mesh=MESH)
    same(moved, model)
    assert moved.activation is model.activation
    assert (moved.layers[0].weight.sharding, moved.layers[0].bias.sharding) == (ROWS, WHOLE)
    assert rd.reshard(moved, WHOLE, donate=True).layers[1].weight.sharding == WHOLE
    mixed = rd.reshard(model, {"*/weight": P("data"), "*": P()}, mesh=MESH)
    state = optax.adam(1e-3).init(eqx.filter(model, eqx.is_array))
    follows = rd.like(mixed, state)
    assert [sharding.spec for sharding in jax.tree.leaves(follows[0].mu)] == [P("data"), P()] * 3
    assert jax.tree.structure(follows) == jax.tree.structure(state)


def test_partition_specs_of_another_tree_are_refused() -> None:
    nn = pytest.importorskip("flax.linen")
    box = nn.Partitioned(jnp.ones((8, 8)), (None, "model"))
    with pytest.raises(rd.RedistribError, match="the shardings do not match the tree"):
        rd.reshard({"a": box, "b": box}, {"a": P()}, mesh=MESH)
    assert through_boxes({"a": box}, {"a": {"b": P()}}, lambda leaf: isinstance(leaf, P)) is None
