"""`reshard` outside jit: where arrays go, what is shared, what is refused."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.sharding_impls import GSPMDSharding  # what XLA returns where it chose itself
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import LeafError
from redistrib.resharding import leaves, planning, progress
from tests.messages import exactly
from tests.reshard.arrays import COLUMNS, DELETED, EIGHT, GRID, ROWS, TURNED, matrix

from .cases import bits, jax_mesh, same_shards

# ---------------------------------------------------------------------------------------- trees


def test_one_sharding_for_all_a_prefix_and_a_whole_tree() -> None:
    tree = {"a": matrix(), "b": [matrix(), matrix((8, 8))]}
    one = rd.reshard(tree, COLUMNS)
    assert all(leaf.sharding == COLUMNS for leaf in jax.tree.leaves(one))
    prefix = rd.reshard(tree, {"a": COLUMNS, "b": ROWS})
    assert [leaf.sharding for leaf in jax.tree.leaves(prefix)] == [COLUMNS, ROWS, ROWS]
    whole = rd.reshard(tree, {"a": ROWS, "b": [COLUMNS, ROWS]})
    assert [leaf.sharding for leaf in jax.tree.leaves(whole)] == [ROWS, COLUMNS, ROWS]
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(tree), strict=True))


def test_none_in_the_tree_stays() -> None:
    assert rd.reshard({"a": None, "b": matrix()}, {"a": None, "b": COLUMNS})["a"] is None
    assert rd.reshard({"a": None, "b": matrix()}, COLUMNS)["a"] is None


class Pair(NamedTuple):
    """A pytree of JAX's own making."""

    first: Any
    second: Any


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    """A pytree that a user registered, with a field that is no leaf."""

    kernel: Any
    heads: Pair
    name: str = field(default="layer", metadata={"static": True})


def test_named_tuples_and_dataclasses() -> None:
    tree = Layer(matrix(), Pair(matrix((8, 8)), {"scale": matrix((32,))}), "attention")
    everywhere = NamedSharding(GRID, P())
    for shardings in (everywhere, Layer(COLUMNS, Pair(COLUMNS, everywhere), "attention")):
        moved = rd.reshard(tree, shardings)
        assert jax.tree.structure(moved) == jax.tree.structure(tree)
        assert moved.name == "attention"
        for before, after in zip(jax.tree.leaves(tree), jax.tree.leaves(moved), strict=True):
            assert np.array_equal(before, after)
        assert moved.heads.second["scale"].sharding == everywhere
    wrong = Layer(COLUMNS, Pair(COLUMNS, NamedSharding(GRID, P(None, "a"))), "attention")
    with pytest.raises(
        LeafError,
        match=exactly(
            "leaf heads/second/scale: the partition spec has 2 entries and the shape (32,) "
            "only 1 dimension; give at most one entry for each dimension ("
            f"{P(None, 'a')} on mesh "
            "{a:2, b:4}, for shape (32,))"
        ),
    ):
        rd.reshard(tree, wrong)


def test_no_leaves() -> None:
    assert rd.reshard({}, ROWS) == {}


def test_partition_spec_under_set_mesh() -> None:
    with jax.set_mesh(GRID):
        moved = rd.reshard(matrix(), P("b"))
    assert moved.sharding == NamedSharding(GRID, P("b"))
    with pytest.raises(
        LeafError,
        match=exactly(f"{P('b')} names axes of no mesh; give a NamedSharding, or mesh=, or call under jax.set_mesh"),
    ):
        rd.reshard(matrix(), P("b"))


def test_shardings_that_do_not_match() -> None:
    with pytest.raises(
        LeafError,
        match=exactly(
            "the shardings do not match the tree: pytree structure error: different pytree "
            "metadata at key path; give one sharding, a tree of them of the same structure, or a "
            "prefix of it"
        ),
    ):
        rd.reshard({"a": matrix()}, {"c": ROWS})
    with pytest.raises(LeafError, match=exactly("leaf a: 'x' is no jax.sharding.Sharding; give a NamedSharding")):
        rd.reshard({"a": matrix()}, {"a": "x"})


# --------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("target", [COLUMNS, NamedSharding(TURNED, P(("q", "p"), "r")), NamedSharding(TURNED, P())])
def test_never_through_the_host(target: NamedSharding) -> None:
    array = matrix()
    with jax.transfer_guard("disallow_explicit"):
        moved = rd.reshard(array, target)
    assert moved.committed
    assert moved.sharding == target
    assert same_shards(moved, jax.device_put(np.asarray(array), target))


def test_agrees_with_device_put_of_the_array_itself() -> None:
    array = matrix()
    for spec in (P("a", "b"), P("b", "a"), P(("a", "b")), P(None, "a"), P()):
        target = NamedSharding(GRID, spec)
        assert same_shards(rd.reshard(array, target), jax.device_put(array, target))


@pytest.mark.usefixtures("fresh")
def test_equal_placements_share_their_buffers() -> None:
    array = matrix()
    for target in (ROWS, NamedSharding(GRID, P(("a", "b")))):
        moved = rd.reshard(array, target)
        assert moved.sharding == target
        before = {shard.device: shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}
        assert before == {shard.device: shard.data.unsafe_buffer_pointer() for shard in moved.addressable_shards}
    assert rd.cache_info()["programs"].size == 0


def test_scalars_and_weak_types() -> None:
    weak = jax.jit(lambda: 3.0, out_shardings=NamedSharding(EIGHT, P()))()
    assert weak.weak_type
    moved = rd.reshard(weak, NamedSharding(TURNED, P()))
    assert moved.weak_type
    assert (moved + jnp.int8(1)).dtype == jnp.float32
    cut = jax.jit(lambda: jax.lax.broadcast(2, (16,)), out_shardings=ROWS)()
    assert cut.weak_type
    assert rd.reshard(cut, NamedSharding(GRID, P("a"))).weak_type


def test_nan_payloads_survive_when_small_leaves_travel_stacked() -> None:
    values = np.arange(2**16, dtype=np.uint16).view(jnp.bfloat16).reshape(64, 1024)
    tree = [jax.device_put(values, ROWS) for _ in range(3)]
    for moved in rd.reshard(tree, COLUMNS):
        assert np.array_equal(bits(moved), bits(values))


def test_the_source_may_be_without_a_mesh() -> None:
    array = jax.jit(lambda: jnp.arange(64.0).reshape(8, 8), out_shardings=ROWS)()
    alone = jax.device_put(np.arange(4.0), jax.devices()[0])
    there = rd.reshard(alone, NamedSharding(jax_mesh((("x", 1),), (0,)), P("x")))
    assert isinstance(there.sharding, NamedSharding)
    flat = GSPMDSharding(tuple(jax.devices()[:8]), ROWS._to_xla_hlo_sharding(2))
    pieces = [shard.data for shard in array.addressable_shards]
    strange = jax.make_array_from_single_device_arrays((8, 8), flat, pieces)
    assert np.array_equal(rd.reshard(strange, COLUMNS), array)


def test_targets_without_a_mesh() -> None:
    flat = GSPMDSharding(tuple(jax.devices()[:8]), NamedSharding(GRID, P("b", "a"))._to_xla_hlo_sharding(2))
    moved = rd.reshard(matrix(), flat)
    assert moved.sharding == flat
    assert np.array_equal(moved, matrix())


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_under_a_mesh_context_of_the_caller(kind: AxisType) -> None:
    source = NamedSharding(jax_mesh((("x", 8),), tuple(range(8)), kind), P("x"))
    mesh = jax_mesh((("a", 2), ("b", 4)), (1, 0, 3, 2, 5, 4, 7, 6), kind)
    with jax.set_mesh(mesh):
        moved = rd.reshard(matrix(sharding=source), NamedSharding(mesh, P("b", "a")))
    assert np.array_equal(moved, matrix())


# ----------------------------------------------------------------------- what device_put has to do


def test_host_values_and_other_devices_go_by_device_put() -> None:
    other = NamedSharding(Mesh(np.array(jax.devices()[8:16]), ("y",)), P("y"))
    tree = {"host": np.arange(8.0), "number": 2.5, "far": matrix(), "near": matrix()}
    shardings = {"host": ROWS, "number": NamedSharding(EIGHT, P()), "far": other, "near": COLUMNS}
    plan = rd.reshard_plan(tree, shardings)
    assert plan.by_device_put == ("far", "host", "number")
    moved = rd.reshard(tree, shardings)
    assert {name: leaf.sharding for name, leaf in moved.items()} == shardings
    assert np.array_equal(moved["far"], matrix())
    assert moved["number"].weak_type == jax.device_put(2.5, shardings["number"]).weak_type
    assert rd.reshard(np.arange(3), jax.devices()[2]).sharding == SingleDeviceSharding(jax.devices()[2])


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 1 has no such strings")
def test_strings_go_by_device_put() -> None:
    text = np.array([["a", "some more letters"] * 2] * 8, np.dtypes.StringDType())
    array = rd.reshard(text, ROWS)
    for moved in (array, rd.reshard(array, ROWS), rd.reshard(array, COLUMNS), rd.reshard(array, jax.devices()[2])):
        assert np.array_equal(jax.device_get(moved), text)


# -------------------------------------------------------------------------------------- failures


def test_errors_name_the_leaf_and_nothing_is_donated() -> None:
    good, bad = matrix(), matrix((16, 6))
    with pytest.raises(
        LeafError,
        match=exactly(
            "leaf bad/0: dimension 1 has 6 elements, which axis 'b' cannot cut into 4 equal "
            f"tiles; take other axes, or pad the dimension to 8 ({P(None, 'b')} on mesh {{a:2, b:4}}, "
            "for shape (16, 6))"
        ),
    ) as caught:
        rd.reshard({"a": good, "bad": [bad]}, COLUMNS, donate=True)
    assert caught.value.__cause__ is not None
    assert not good.is_deleted()
    assert not bad.is_deleted()
    with pytest.raises(LeafError, match=exactly("leaf b: str is neither an array nor a number")):
        rd.reshard({"a": good, "b": "text"}, COLUMNS, donate=True)
    assert not good.is_deleted()
    masked = np.ma.masked_array(np.ones(8), np.arange(8) > 4)
    for source in (masked, {"a": good, "b": masked}):
        with pytest.raises(LeafError, match=re.escape("JAX has no masked arrays; give .filled(), and .mask")):
            rd.reshard(source, COLUMNS, donate=True)
    assert not good.is_deleted()
    gone = matrix()
    gone.delete()
    with pytest.raises(LeafError, match=exactly(f"leaf b: {DELETED}")):
        rd.reshard({"a": good, "b": gone}, COLUMNS, donate=True)
    assert not good.is_deleted()
    with pytest.raises(
        LeafError,
        match=exactly(
            "leaf b: the partition spec has 2 entries and the shape (8,) only 1 dimension; "
            f"give at most one entry for each dimension ({P(None, 'b')} on mesh {{a:2, b:4}}, for shape "
            "(8,))"
        ),
    ):
        rd.reshard({"a": good, "b": matrix((8,))}, COLUMNS)


@pytest.mark.usefixtures("fresh", "by_collectives")
def test_a_failing_compiler_names_the_leaf_and_nothing_is_donated(monkeypatch: pytest.MonkeyPatch) -> None:

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(planning, "CompiledBucket", fails)
    array = matrix()
    with pytest.raises(LeafError, match=exactly("leaf w: no such kernel")):
        rd.reshard({"w": array}, COLUMNS, donate=True)
    assert not array.is_deleted()


# ------------------------------------------------------------------------------ plans as values


def test_plan_of_abstract_arrays_and_its_table() -> None:
    abstract = {"w": jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=ROWS)}
    plan = rd.reshard_plan(abstract, COLUMNS)
    assert plan.order == ("w",)
    assert plan.received_bytes == plan.lower_bound_bytes == 8 * (16 * 8 - 16) * 4
    text = str(plan)
    assert re.search(r"^ 1 +w +float32", text, re.MULTILINE)
    assert "alltoall" in text
    assert f"{plan.peak_bytes:,} at the peak" in text
    with pytest.raises(LeafError, match=exactly("a ShapeDtypeStruct must say where its array is; give it a sharding=")):
        rd.reshard_plan(jax.ShapeDtypeStruct((16, 32), jnp.float32), COLUMNS)


def test_progress_bar_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    moved = rd.reshard(matrix(), COLUMNS, progress=True)
    assert np.array_equal(moved, matrix())
    shown = capsys.readouterr()
    assert "resharding" in shown.err
    assert not shown.out
    rd.reshard(matrix(), COLUMNS)
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("by_collectives")
@pytest.mark.parametrize(("terminal", "most", "shown"), [(True, 100, True), (False, 100, False), (True, 10_000, False)])
def test_progress_of_itself_on_terminals_and_for_long_moves(
    terminal: bool, most: int, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LONG", most)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    rd.reshard(matrix(), COLUMNS)
    assert ("resharding" in capsys.readouterr().err) == shown


# ---------------------------------------------------------------------------------------- other processes


def test_a_description_of_an_array_of_other_processes_becomes_an_array_without_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaves, "without_shards", lambda *described: described)
    described = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=ROWS)
    leaf = leaves.Leaf("", described, COLUMNS)
    assert leaves.present(leaf) is leaf  # this process has shards of it
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    assert leaves.present(leaf).value == ((8, 8), jnp.float32, ROWS)
    unplaced = leaves.Leaf("", jax.ShapeDtypeStruct((8, 8), jnp.float32), COLUMNS)
    assert leaves.present(unplaced) is unplaced
