"""Shardings by path, by a function, and of trees that follow the parameters'."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import LeafError
from tests.messages import exactly
from tests.reshard.arrays import Dense

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
ROWS, COLUMNS, WHOLE = (NamedSharding(MESH, spec) for spec in (P("data"), P(None, "model"), P()))


def params() -> dict[str, object]:
    layer = {"wq": {"kernel": jnp.arange(64.0).reshape(8, 8)}, "norm": jnp.ones(8)}
    return {"layers": [layer, jax.tree.map(lambda leaf: leaf + 1, layer)], "wq": {"kernel": jnp.ones((8, 8))}}


def shardings_of(tree: object) -> list[object]:
    return [leaf.sharding for leaf in jax.tree.leaves(tree)]


def test_patterns_say_where_leaves_go() -> None:
    moved = rd.reshard(params(), {"*/wq/kernel": P("data"), "*": P()}, mesh=MESH)
    assert shardings_of(moved) == [WHOLE, ROWS, WHOLE, ROWS, ROWS]  # `*/` is for nothing too
    jax.tree.map(np.testing.assert_array_equal, moved, params())
    again = rd.reshard(moved, {"layers/*/kernel": COLUMNS, "layers/1/norm": P("data"), "*": WHOLE}, mesh=MESH)
    assert shardings_of(again) == [WHOLE, COLUMNS, ROWS, COLUMNS, WHOLE]


def test_the_pattern_for_the_rest_may_have_no_leaf_left() -> None:
    array = jnp.ones((8, 8))
    assert shardings_of(rd.reshard({"w": array}, {"w": P("data"), "*": P()}, mesh=MESH)) == [ROWS]
    state = optax.sgd(0.1).init({"w": array})
    assert rd.reshard(state, {"*/w": P("data"), "*": P()}, mesh=MESH) == state
    with pytest.raises(LeafError, match=r"^the pattern 'v' matches no leaf; the paths are 'w'$"):
        rd.reshard({"w": array}, {"v": P("data"), "*": P()}, mesh=MESH)


def test_patterns_reach_keys_that_are_numbers() -> None:
    tree = {"layers": {0: jnp.ones((8, 8)), 1: jnp.ones((8, 8))}, "head": jnp.ones((8, 8))}
    assert shardings_of(rd.reshard(tree, {"layers/0": P("data"), "*": P()}, mesh=MESH)["layers"]) == [ROWS, WHOLE]
    numbered = {0: jnp.ones((8, 8)), 1: jnp.ones((8, 8))}
    for patterns in ({"0": P("data"), "*": P()}, {0: P("data"), "*": P()}):
        assert shardings_of(rd.reshard(numbered, patterns, mesh=MESH)) == [ROWS, WHOLE]


def test_patterns_reach_boxes_and_keys_with_dots() -> None:
    array = jnp.ones((8, 8))
    boxes = {"a": {"kernel": {"value": array}}, "b": {"key": array, "value": array}}  # `b` is no box: it has two keys
    moved = rd.reshard(boxes, {"*/kernel": P("data"), "*": P()}, mesh=MESH)
    assert shardings_of(moved) == [ROWS, WHOLE, WHOLE]
    assert shardings_of(rd.reshard(boxes, {"a/kernel/value": P("data"), "*": P()}, mesh=MESH))[0] == ROWS
    with pytest.raises(LeafError, match="the pattern 'b' matches no leaf"):
        rd.reshard(boxes, {"b": P("data"), "*": P()}, mesh=MESH)
    flat = {"model.layers.0.kernel": array, "model.norm": array}
    assert shardings_of(rd.reshard(flat, {"*/kernel": P("data"), "*": P()}, mesh=MESH)) == [ROWS, WHOLE]


def test_a_tree_of_functions_alone_needs_no_pattern() -> None:
    tree = {"activation": jax.nn.relu}
    assert rd.reshard(tree, {"*/kernel": P("data"), "*": P()}, mesh=MESH) == tree


def test_specs_by_path_and_trees_of_specs_take_the_mesh_that_is_set() -> None:
    with jax.set_mesh(MESH):
        moved = rd.reshard(params(), {"*/kernel": P("data"), "*": P()})
    assert shardings_of(moved) == [WHOLE, ROWS, WHOLE, ROWS, ROWS]
    tree = {"layers": P(), "wq": P("data")}
    assert shardings_of(rd.reshard(params(), tree, mesh=MESH)) == [WHOLE] * 4 + [ROWS]


def test_a_module_that_can_be_called_is_a_tree_of_shardings() -> None:
    moved = rd.reshard(Dense(jnp.ones((8, 8)), jnp.ones(8)), Dense(ROWS, WHOLE))
    assert shardings_of(moved) == [ROWS, WHOLE]


def test_a_function_of_path_and_leaf() -> None:
    calls = []

    def spec(path: str, leaf: jax.Array) -> P:
        calls.append(path)
        return P("data") if leaf.ndim == 2 else P()

    moved = rd.reshard(params(), spec, mesh=MESH)
    assert shardings_of(moved) == [WHOLE, ROWS, WHOLE, ROWS, ROWS]
    assert calls[:2] == ["layers/0/norm", "layers/0/wq/kernel"]
    assert rd.reshard_plan(params(), spec, mesh=MESH).by_device_put


REFUSED = [
    (
        {"*/kernel": "data", "*": P()},
        "leaf layers/0/wq/kernel: 'data' is no jax.sharding.Sharding; give a NamedSharding",
    ),
    (
        {"*/kernel": P(), "*/wq/*": P(), "*": P()},
        "leaf layers/0/wq/kernel: the patterns '*/kernel', '*/wq/*' both match 'layers/0/wq/kernel'; make "
        "one of them narrower, so that each leaf has one sharding",
    ),
    (
        {"*/kernel": P()},
        "leaf layers/0/norm: no pattern of '*/kernel' matches 'layers/0/norm'; add one, or '*' for all other leaves",
    ),
    (
        {"*/wk/kernel": P(), "*": P()},
        "the pattern '*/wk/kernel' matches no leaf; the paths are 'layers/0/norm', 'layers/0/wq/kernel', "
        "'layers/1/norm', 'layers/1/wq/kernel', 'wq/kernel'",
    ),
    (
        lambda path, leaf: P() if "wq" in path else None,
        "leaf layers/0/norm: the function of path and leaf returns None; return a sharding",
    ),
    (
        lambda path, leaf: P("nowhere"),
        None,
    ),
]


@pytest.mark.parametrize(("shardings", "message"), REFUSED)
def test_what_matches_nothing_or_twice_is_said_and_nothing_moves(shardings: object, message: str | None) -> None:
    with pytest.raises(LeafError, match=None if message is None else exactly(message)):
        rd.reshard(params(), shardings, mesh=MESH)


def test_dictionaries_whose_keys_have_slashes_are_trees() -> None:
    tree = {"mlp/~/linear": {"w": jnp.ones((8, 8)), "b": jnp.ones(8)}}
    assert shardings_of(rd.reshard(tree, {"mlp/~/linear": {"w": ROWS, "b": WHOLE}})) == [WHOLE, ROWS]
    assert shardings_of(rd.reshard(tree, {"mlp/~/linear": ROWS})) == [ROWS, ROWS]
    with pytest.raises(LeafError, match="no pattern of 'mlp/~/conv' matches 'mlp/~/linear/b'"):
        rd.reshard(tree, {"mlp/~/conv": ROWS})


def test_functions_and_none_stay_where_they_are() -> None:
    tree = {"w": jnp.ones((8, 8)), "activation": jax.nn.relu, "none": None, "act": np.tanh}
    moved = rd.reshard(tree, ROWS)
    assert moved["w"].sharding == ROWS
    assert (moved["activation"], moved["none"], moved["act"]) == (jax.nn.relu, None, np.tanh)
    donated = rd.reshard(moved, COLUMNS, donate=True)
    assert moved["w"].is_deleted() and donated["activation"] is jax.nn.relu


@pytest.mark.parametrize("by_arrays", [True, False])
def test_an_optimizers_state_follows_the_parameters(by_arrays: bool) -> None:
    moved = rd.reshard(params(), {"*/wq/kernel": P("data", "model"), "*": P()}, mesh=MESH)
    source = moved if by_arrays else jax.tree.map(lambda leaf: leaf.sharding, moved)
    state = optax.chain(optax.clip(1.0), optax.adamw(1e-3)).init(params())
    shardings = rd.like(source, state)
    assert jax.tree.structure(shardings) == jax.tree.structure(state)
    placed = rd.reshard(state, shardings)
    for field in ("mu", "nu"):
        assert shardings_of(getattr(placed[1][0], field)) == shardings_of(moved)
    assert placed[1][0].count.sharding == WHOLE


def test_factored_moments_are_whole() -> None:
    weights = {"w": jax.device_put(jnp.ones((256, 512)), NamedSharding(MESH, P("data", "model")))}
    state = optax.adafactor(1e-3).init(weights)
    shardings = rd.like(weights, state)
    specs = {
        leaf.shape: sharding.spec for leaf, sharding in zip(*map(jax.tree.leaves, (state, shardings)), strict=True)
    }
    assert specs[256,] == specs[512,] == P()
    rd.reshard(state, shardings)


@pytest.mark.parametrize("params", [{"w": "x"}, {}, {"w": None}, optax.EmptyState()])
def test_like_wants_shardings(params: object) -> None:
    with pytest.raises(LeafError, match="give"):
        rd.like(params, {"w": 1})


def test_patterns_are_matched_once_for_trees_of_one_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    from redistrib.resharding import leaves

    matches = []
    spread = leaves.spread_by_path
    monkeypatch.setattr(leaves, "spread_by_path", lambda *given: matches.append(1) or spread(*given))
    rd.clear_caches()
    for _ in range(3):
        rd.reshard(params(), {"*/kernel": P("data"), "*": P()}, mesh=MESH)
    assert len(matches) == 1
    moved = rd.reshard(params(), {"*/kernel": P(), "*": P()}, mesh=MESH)  # other shardings are matched anew
    assert (len(matches), shardings_of(moved)) == (2, [WHOLE] * 5)


def test_copies_with_other_padding_follow_by_the_logical_shape() -> None:
    eight, four = (Mesh(np.array(jax.devices()[:n]), ("x",)) for n in (8, 4))
    shapes = {"embed": (13, 8), "norm": None}
    values = {"embed": jnp.arange(104.0).reshape(13, 8), "norm": jnp.ones(8)}
    padded = {"embed": jnp.pad(values["embed"], ((0, 3), (0, 0))), "norm": values["norm"]}
    params = rd.reshard(padded, {"embed": P("x"), "*": P()}, mesh=eight)
    state = optax.adam(1e-3).init(params)
    state = jax.tree.map(lambda leaf: leaf + 1, state)
    smaller = rd.reshard(params, {"embed": P("x"), "*": P()}, mesh=four, logical_shape=shapes)
    assert smaller["embed"].shape == (16, 8)
    three = Mesh(np.array(jax.devices()[:3]), ("x",))
    for mesh, rows in ((three, 15), (four, 16)):
        fewer = rd.reshard(params, {"embed": P("x"), "*": P()}, mesh=mesh, logical_shape=shapes)
        for source in (fewer, jax.tree.map(lambda leaf: leaf.sharding, fewer)):
            shardings, logical = rd.like(source, state, shapes), rd.like(shapes, state)
            assert jax.tree.structure(shardings) == jax.tree.structure(state)
            assert shardings[0].mu["embed"].spec == P("x") and logical[0].nu == shapes and logical[0].count is None
            moved = rd.reshard(state, shardings, logical_shape=logical)
            assert moved[0].mu["embed"].shape == fewer["embed"].shape == (rows, 8)
            np.testing.assert_array_equal(moved[0].nu["embed"][:13], 1)
    assert rd.like((13, 8), {"mu": jnp.ones((16, 8)), "row": jnp.ones(16)}) == {"mu": (13, 8), "row": None}


def test_a_large_leaf_that_follows_nothing_is_said_once() -> None:
    weights = {"w": jax.device_put(jnp.ones((1024, 512)), ROWS)}
    wide = jax.ShapeDtypeStruct((1024, 516), jnp.float32)
    state = {"mu": {"w": wide}, "other": jax.ShapeDtypeStruct((512, 512), jnp.float32), "count": jnp.zeros(())}
    with pytest.warns(UserWarning, match="no parameter has") as caught:
        shardings = rd.like(weights, state)
    assert [str(one.message) for one in caught] == [
        "rd.like: no parameter has the path and the shape of mu/w (2,113,536 bytes), other (1,048,576 bytes); all 8 "
        "devices hold the whole of it. Give it a sharding of its own, or logical_shape= where only its padding differs"
    ]
    assert caught[0].filename == __file__
    assert jax.tree.leaves(shardings) == [WHOLE] * 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rd.like({"w": WHOLE}, {"mu": {"w": wide}})["mu"]["w"] == WHOLE  # it follows its parameter
        rd.like(weights, {"row": jax.ShapeDtypeStruct((1024, 255), jnp.float32)})
        one = jax.device_put(jnp.ones(4), jax.devices()[0])
        rd.like({"w": one}, {"other": wide})
