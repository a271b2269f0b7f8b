"""`load` takes what `reshard` takes: patterns, functions of name and leaf, specs over a mesh, templates of arrays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import LeafError, WeightsFileError
from tests.reshard.arrays import Dense

MESH = jax.make_mesh((4, 2), ("x", "y"))
TENSORS = {
    f"layers.{k}.{name}": np.arange(64, dtype=np.float32).reshape(8, 8) + k
    for k in range(2)
    for name in ("kernel", "bias")
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rd.save(TENSORS, tmp_path / "a.safetensors")
    return tmp_path / "a.safetensors"


def same(loaded: dict[str, Any], specs: dict[str, P], mesh: Any = MESH) -> None:
    assert list(loaded) == sorted(specs)
    for name, array in loaded.items():
        np.testing.assert_array_equal(array, TENSORS[name])
        assert array.sharding == NamedSharding(mesh, specs[name])


def test_patterns_choose_tensors_and_say_where_they_go(path: Path) -> None:
    kernels = {f"layers.{k}.kernel": P("x") for k in range(2)}
    same(rd.load(path, {"*.kernel": P("x")}, mesh=MESH), kernels)
    rest = {f"layers.{k}.bias": P() for k in range(2)}
    same(rd.load(path, {"*.kernel": P("x"), "*": P()}, mesh=MESH), kernels | rest)
    same(rd.load(path, {"layers.?.bias": NamedSharding(MESH, P())}), rest)
    with jax.set_mesh(MESH):
        same(rd.load(path, {"*.kernel": P("x")}), kernels)
    (first,) = rd.load(path, {"layers.0.b*": P("d")}, mesh={"d": 8}).values()
    assert first.sharding.spec == P("d") and first.sharding.mesh.axis_names == ("d",)


def test_what_no_pattern_matches_is_not_read(path: Path) -> None:
    plan = rd.load_plan(path, {"*.0.kernel": P("x")}, mesh=MESH)
    assert sum(plan.read_bytes) == 256
    assert sum(rd.load_plan(path, {"*": P("x")}, mesh=MESH).read_bytes) == 1024


def test_a_function_of_name_and_leaf(path: Path) -> None:
    seen = []

    def place(name: str, leaf: Any) -> P | None:
        seen.append((name, leaf.shape, leaf.dtype))
        return P(None, "y") if name.endswith("bias") else None

    same(rd.load(path, place, mesh=MESH), {f"layers.{k}.bias": P(None, "y") for k in range(2)})
    assert seen == [(name, (8, 8), np.float32) for name in sorted(TENSORS)]


def test_a_template_of_arrays_and_a_tree_of_specs(path: Path) -> None:
    columns = NamedSharding(MESH, P(None, "x"))
    template = {"layers": [{"kernel": jax.device_put(jnp.zeros((8, 8), jnp.bfloat16), columns)}, {"bias": P("y")}]}
    loaded = rd.load(path, template, mesh=MESH)
    first, second = loaded["layers"][0]["kernel"], loaded["layers"][1]["bias"]
    assert (first.dtype, first.sharding, second.sharding.spec) == (jnp.bfloat16, columns, P("y"))
    np.testing.assert_array_equal(first, TENSORS["layers.0.kernel"].astype(jnp.bfloat16))
    other = {"layers.0.kernel": jnp.zeros((8, 4))}
    with pytest.raises(WeightsFileError, match=r"its shape is \(8, 8\), and \(8, 4\) is asked for"):
        rd.load(path, other)


@pytest.mark.parametrize(
    ("shardings", "why"),
    [
        ({"*.weight": P("x")}, "the pattern '*.weight' matches no leaf; the paths are 'layers.0.bias'"),
        ({"*.kernel": P("x"), "*.0.*": P()}, "leaf layers.0.kernel: the patterns '*.kernel', '*.0.*' both match"),
        ({"*.kernel": P("x", "x")}, "leaf layers.0.kernel: P('x', 'x') has axis 'x' twice; an axis cuts one dimension"),
        ({"layers": [{"kernel": P("x", "x")}]}, "leaf layers/0/kernel: P('x', 'x') has axis 'x' twice"),
        ({"*.kernel": P("z")}, "P('z',) names axis 'z', and the mesh has 'x', 'y'; give one of its axes"),
    ],
)
def test_what_does_not_fit_is_refused(path: Path, shardings: Any, why: str) -> None:
    with pytest.raises(LeafError, match=re.escape(why).replace(r"P\(", r"(PartitionSpec|P)\(")):
        rd.load(path, shardings, mesh=MESH)


def test_a_module_that_can_be_called_is_a_template(path: Path) -> None:
    module = Dense(jnp.ones((8, 8)), jnp.ones(8))
    rd.save(module, path.parent / "module")
    template = Dense(*[NamedSharding(MESH, P("x"))] * 2)
    for asked in (template, rd.reshard(module, template)):
        loaded = rd.load(path.parent / "module", asked)
        assert loaded.weight.sharding == NamedSharding(MESH, P("x"))
        assert jnp.array_equal(loaded.weight, module.weight)


def test_specs_of_too_many_entries_are_refused_by_name(path: Path) -> None:
    name = "layers.0.kernel"
    for shardings in ({name: P("x", None, None)}, {name: NamedSharding(MESH, P("x", None, None))}):
        with pytest.raises(LeafError, match=rf"leaf {name}: .* has 3 entries and the shape \(8, 8\) only 2 dimensions"):
            rd.load(path, shardings, mesh=MESH)
    with jax.set_mesh(MESH), pytest.raises(LeafError, match=f"leaf {name}: .* has axis 'x' twice"):
        rd.load(path, {name: P("x", "x")})
