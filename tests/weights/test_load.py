"""`load` in one process: what comes out, what is read, and what is refused."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import queue
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file

import redistrib as rd
from redistrib.backends.jax.rows import line_of
from redistrib.errors import DtypeError, LeafError, MemoryLimitError, ThroughError, WeightsFileError
from redistrib.theory.boxes import Box, runs_of
from redistrib.weights import headers, open_files, reading
from redistrib.weights.ahead import BatchesAhead
from redistrib.weights.batches import in_batches, pieces_of
from redistrib.weights.opening import open_weights
from redistrib.weights.reading import BoxPiece, PieceReader
from redistrib.weights.targets import target_tree
from tests.weights.files import CountingFile, arrays, read_by_safetensors, same_bits, written


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    monkeypatch.setattr(open_files, "open_file", CountingFile)
    CountingFile.reads.clear()
    return CountingFile.reads


def mesh(shape: tuple[int, ...] = (2, 4)) -> Mesh:
    return Mesh(np.array(jax.devices()[: math.prod(shape)]).reshape(shape), ("a", "b")[: len(shape)])


def everywhere() -> NamedSharding:
    return NamedSharding(mesh(), P())


@pytest.mark.parametrize("files", [1, 3])
def test_all_tensors_each_byte_once(tmp_path: Path, files: int, counted: list[tuple[str, int, int]]) -> None:
    tensors = arrays()
    loaded = rd.load(written(tmp_path, tensors, files), everywhere())
    assert loaded.keys() == tensors.keys()
    for name, array in loaded.items():
        assert array.sharding == everywhere()
        assert all(same_bits(shard.data, tensors[name]) for shard in array.addressable_shards)
    assert sum(stop - start for _, start, stop in counted) == sum(array.nbytes for array in tensors.values())
    assert counted == sorted(counted)  # in the order of the files
    for (file, _, stop), (other, start, _) in itertools.pairwise(counted):
        assert file != other or stop <= start  # none twice


def test_a_tree_and_only_what_it_names(tmp_path: Path, counted: list[tuple[str, int, int]]) -> None:
    tensors = arrays()
    columns, rows = NamedSharding(mesh(), P(None, "b")), NamedSharding(mesh(), P(("a", "b")))
    shape = jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=columns)
    tree = {"layers": [{"attn": {"q": shape, "k": rows}}], "scale": jax.devices()[3]}
    loaded = rd.load(written(tmp_path, tensors), tree)
    assert jax.tree.structure(loaded) == jax.tree.structure(tree)
    q, k = loaded["layers"][0]["attn"]["q"], loaded["layers"][0]["attn"]["k"]
    assert q.sharding == columns and q.dtype == jnp.float32 and k.sharding == rows
    assert same_bits(k, tensors["layers.0.attn.k"]) and same_bits(loaded["scale"], tensors["scale"])
    expected = np.asarray(jnp.asarray(tensors["layers.0.attn.q"]).astype(jnp.float32))
    assert same_bits(q, expected)
    assert loaded["scale"].devices() == {jax.devices()[3]}
    assert sum(stop - start for _, start, stop in counted) == 2 * 512 * 512 * 2 + 4


def test_types(tmp_path: Path) -> None:
    tensors = {"w": np.linspace(-3, 3, 64, dtype=np.float32), "n": np.arange(8, dtype=np.int32)}
    path = written(tmp_path, tensors)
    loaded = rd.load(path, everywhere(), dtype="bfloat16")
    assert loaded["w"].dtype == jnp.bfloat16 and loaded["n"].dtype == jnp.int32
    assert same_bits(loaded["w"], tensors["w"].astype(ml_dtypes.bfloat16))
    assert rd.load(path, everywhere(), dtype={"n": "int8"})["n"].dtype == jnp.int8
    save_file({"l": np.arange(3)}, tmp_path / "wide.safetensors")
    with pytest.raises(WeightsFileError, match="JAX has no arrays of int64 unless jax_enable_x64 is set"):
        rd.load(tmp_path / "wide.safetensors", everywhere())


def test_tied_names_are_read_once(tmp_path: Path, counted: list[tuple[str, int, int]]) -> None:
    table = np.ones((4, 4), np.float32)
    save_file({"embed": table}, tmp_path / "model.safetensors", metadata={"head": "embed", "format": "pt"})
    loaded = rd.load(tmp_path, everywhere())
    assert loaded.keys() == {"embed", "head"} and loaded["head"] is loaded["embed"]
    assert sum(stop - start for _, start, stop in counted) == table.nbytes


def test_a_function_on_the_way_reads_what_it_needs(tmp_path: Path, counted: list[tuple[str, int, int]]) -> None:
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=(16, 24)).astype(np.float32) for name in ("q", "k", "v", "unused")}
    tensors["ids"] = np.arange(8, dtype=np.int32)
    path = written(tmp_path, tensors)

    def fused(t: dict[str, Any]) -> dict[str, Any]:
        assert t.keys() == tensors.keys()
        return {"qkv": jnp.concatenate([t["q"], t["k"], t["v"]], 1), "first": t["ids"][:4]}

    target = {"qkv": NamedSharding(mesh(), P(None, "b")), "first": NamedSharding(mesh(), P("b"))}
    loaded = rd.load(path, target, through=fused, dtype="bfloat16")
    expected = np.concatenate([tensors[name] for name in "qkv"], 1).astype(ml_dtypes.bfloat16)
    assert same_bits(loaded["qkv"], expected) and same_bits(loaded["first"], tensors["ids"][:4])
    assert jax.tree.map(lambda array: array.sharding, loaded) == target
    assert sum(stop - start for _, start, stop in counted) == 3 * 16 * 24 * 4 + 32
    counted.clear()
    with pytest.raises(ThroughError, match="dot_general"):
        rd.load(path, everywhere(), through=lambda t: t["q"] @ t["k"].T)
    assert not counted  # before anything is read


def test_a_limit_on_host_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {f"w{k}": np.full((64, 64), k, np.float32) for k in range(20)}
    path = written(tmp_path, tensors)
    most = 0

    class Watched(reading.PieceReader):
        def _reserve(self, size: int) -> bool:
            nonlocal most
            going_on = super()._reserve(size)
            most = max(most, self._used)
            return going_on

    monkeypatch.setattr("redistrib.weights.loading.PieceReader", Watched)
    loaded = rd.load(path, everywhere(), memory_limit=40_000)
    assert all(same_bits(loaded[name], tensors[name]) for name in tensors)
    assert 16_384 <= most <= 40_000
    with pytest.raises(MemoryLimitError) as caught:
        rd.load(path, everywhere(), memory_limit=16_383)
    assert caught.value.least == 16_384


def test_the_limit_holds_for_all_that_a_reader_allocates(tmp_path: Path) -> None:
    weights = open_weights(written(tmp_path, {"w": np.arange(2**19, dtype=np.float32).reshape(512, 1024)}))
    tensor = weights.files["w"]
    columns = [BoxPiece(tensor, Box((0, k), (512, 512)), (512, 512)) for k in (0, 512)]
    padded = BoxPiece(tensor, Box((400, 0), (112, 1024)), (160, 1024))
    pieces = [*columns, padded, *columns]
    limit = 2 * 2**20 + 4096  # a box of columns, and the runs with gaps that are read at once
    tracemalloc.start()
    try:
        with PieceReader(weights, pieces, limit) as reader:
            for piece in pieces:
                values = reader.next().view(np.float32).reshape(piece.shape)
                inside = piece.box.slices()
                rows = piece.box.size[0]
                expected = np.arange(2**19, dtype=np.float32).reshape(512, 1024)[inside]
                assert np.array_equal(values[:rows], expected) and not values[rows:].any()
                del values, expected
                reader.release(piece.nbytes)
            tracemalloc.reset_peak()
        _, before = tracemalloc.get_traced_memory()
        with PieceReader(weights, pieces, limit) as reader:
            for piece in pieces:
                reader.next()
                time.sleep(0.02)  # the reader goes on as far as it may
                reader.release(piece.nbytes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2**20 < peak - before <= limit + 2**16, peak - before
    with pytest.raises(MemoryLimitError):
        PieceReader(weights, pieces, 2**20 + 4096)


# ------------------------------------------------------------------------------------------------ bad input


def file_of(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    """A file with a header as it is given."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


TWICE = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
BAD: dict[str, tuple[Any, bytes, int | None, str]] = {
    "empty": (b"", b"", 0, "damaged"),
    "no JSON": (b"{nothing", b"", None, "damaged"),
    "length beyond the file": ({}, b"", 2**63, "says that its header has 9,223,372,036,854,775,808"),
    "length a little beyond the file": ({}, b"", 200, "the file has 10 bytes and says that its header has 200"),
    "length beyond what is allowed": ({}, b"", 100_000_001, "says that its header has 100,000,001"),
    "truncated": ({"a": entry("F32", [2], 0, 8)}, b"1234", None, "truncated or damaged"),
    "longer than it says": ({"a": entry("F32", [1], 0, 4)}, b"12345", None, "truncated or damaged"),
    "overlap": ({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 2, 6)}, b"123456", None, "damaged"),
    "hole": ({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)}, bytes(12), None, "damaged"),
    "backwards": ({"a": entry("F32", [1], 4, 0)}, b"1234", None, "damaged"),
    "negative": ({"a": entry("F32", [-1], 0, 4)}, b"1234", None, "damaged"),
    "overflow": ({"a": entry("F32", [2**40, 2**40], 0, 4)}, b"1234", None, "damaged"),
    "other size": ({"a": entry("F32", [3], 0, 4)}, b"1234", None, "damaged"),
    "unknown dtype": ({"a": entry("F31", [1], 0, 4)}, b"1234", None, "its dtype .F31. is none of"),
    "half bytes": ({"a": entry("F4", [2], 0, 1)}, b"1", None, "its dtype .F4. is none of"),
    "twice": (TWICE, b"1234", None, "has this name twice"),
    "nested": (b"[" * 100_000, b"", None, "damaged"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_malformed_file_is_refused(tmp_path: Path, what: str) -> None:
    header, data, length, message = BAD[what]
    path = file_of(tmp_path / "bad.safetensors", header, data, length)
    with pytest.raises(WeightsFileError, match=message) as caught:
        rd.load(path, everywhere())
    assert caught.value.path == str(path)


def test_headers_and_indexes_above_100_mb_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(tmp_path / "long.safetensors", b"{", length=100_000_001)
    index = tmp_path / "model.safetensors.index.json"
    index.write_bytes(b"{")
    for each in (path, index):
        with each.open("r+b") as file:
            file.truncate(100_001_000)  # a hole, which takes no room on the disk
    monkeypatch.setattr(headers.json, "loads", None)  # is not reached
    with pytest.raises(WeightsFileError, match="its header has 100,000,001, of 100,000,000 allowed"):
        rd.load(path, everywhere())
    with pytest.raises(WeightsFileError, match="an index has at most 100,000,000 bytes"):
        rd.load(tmp_path, everywhere())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 400), bits=st.integers(1, 255), cut=st.integers(0, 60))
def test_a_damaged_file_is_refused_or_read_as_it_is(tmp_path: Path, place: int, bits: int, cut: int) -> None:
    values = {"weight": np.arange(40, dtype=np.float32), "bias": np.arange(3, dtype=np.int8)}
    whole = bytearray(written(tmp_path, values).read_bytes())
    whole[place % len(whole)] ^= bits
    path = tmp_path / "bad.safetensors"
    path.write_bytes(whole[: len(whole) - cut])
    try:
        loaded = rd.load(path, jax.devices()[0])
    except WeightsFileError:
        return
    assert loaded.keys() >= read_by_safetensors(path).keys()  # which accepts it too
    assert all(array.nbytes <= len(whole) for array in loaded.values())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([2**63, 0], "its shape .9223372036854775808, 0. is above the 2.63 bytes"),
        ([2**40, 2**40, 0], "is above the 2.63 bytes that arrays may span"),
        ([2**62, 0], "is above the 2.63 bytes that arrays may span"),
        ([1] * 70 + [0], "it has 71 dimensions, of 64 that an array may have"),
        ([2**64, 0], "its shape is no list of sizes"),
        ([True, 0], "its shape is no list of sizes"),
    ],
)
def test_shapes_that_no_array_has(tmp_path: Path, shape: list[int], message: str) -> None:
    header = {"a": entry("F32", shape, 0, 0), "b": entry("F32", [1], 0, 4)}
    path = file_of(tmp_path / "bad.safetensors", header, bytes(4))
    with pytest.raises(WeightsFileError, match=message):
        rd.load(path, everywhere())
    if "array" in message:  # what is not asked for does not matter
        assert rd.load(path, {"b": everywhere()})["b"].tolist() == [0]
        with pytest.raises(WeightsFileError, match=message):
            rd.load_plan(path, {"a": everywhere()})


def test_64_dimensions(tmp_path: Path) -> None:
    path = file_of(tmp_path / "file.safetensors", {"a": entry("F32", [1] * 64, 0, 4)}, bytes(4))
    assert rd.load(path, jax.devices()[0])["a"].shape == (1,) * 64


@pytest.mark.parametrize("size", [4, 2**17])
def test_booleans_are_0_or_1(tmp_path: Path, size: int) -> None:
    header = {"a": entry("BOOL", [size], 0, size), "b": entry("U8", [1], size, size + 1)}
    path = file_of(tmp_path / "file.safetensors", header, bytes(size - 1) + b"\2" + b"\2")
    with pytest.raises(WeightsFileError, match="tensor 'a': it is of booleans and has a byte 2; write 0 or 1"):
        rd.load(path, everywhere())
    assert rd.load(path, {"b": everywhere()})["b"].tolist() == [2]


def test_paths_and_names_that_no_file_has(tmp_path: Path) -> None:
    (tmp_path / "folder.safetensors").mkdir()
    os.mkfifo(tmp_path / "pipe.safetensors")
    nul, long = "no path has NUL or half of a surrogate pair", "cannot be read: File name too long"
    path: Any
    for path, message in (
        ("a\0b", nul), ("\ud800.safetensors", nul), (3, "int is no path"), (None, "NoneType is no path"),
        (b"a", "bytes is no path"), ("x" * 5000, long), (tmp_path / ("x" * 300), long), ("", "no safetensors file"),
        (tmp_path / "folder.safetensors", "no safetensors file"), (tmp_path / "pipe.safetensors", "no file of bytes"),
        (tmp_path, "folder.safetensors: cannot be read: it is no file of bytes"), ("/dev/null", "no file of bytes"),
    ):  # fmt: skip
        for call in (rd.load, rd.load_plan):
            with pytest.raises(WeightsFileError, match=message) as caught:
                call(path, {})
            assert len(str(caught.value)) < 1500
    with pytest.raises(LeafError, match=r"leaf 'b/a.ud800': the name has half of a surrogate pair"):
        rd.load(written(tmp_path, {"a": np.ones(3, np.float32)}), {"b": {"a\ud800": everywhere()}})


def test_indexes_that_name_what_is_no_file(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}, 2)
    index = folder / "model.safetensors.index.json"
    (folder / "folder.safetensors").mkdir()
    os.mkfifo(folder / "pipe.safetensors")
    for name in ("x" * 5000, "a\0b", "\ud800", "", ".", "..", "/", "a/b", "folder.safetensors", "pipe.safetensors"):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        for path in (folder, index):
            with pytest.raises(WeightsFileError, match=r"which is no file|no file of bytes|is no JSON"):
                rd.load(path, everywhere())
    for text in (
        b"\xff",
        b'{"weight_map": {"a": NaN}}',
        b'{"weight_map": {"a": "b", "a": "b"}}',
        "{}".encode("utf-16"),
    ):
        index.write_bytes(text)
        with pytest.raises(WeightsFileError, match=r"the index (is no JSON|has this name twice)|has this name twice"):
            rd.load(folder, everywhere())
    index.unlink()
    index.mkdir()
    with pytest.raises(WeightsFileError, match=r"index.json: cannot be read: it is no file of bytes"):
        rd.load(folder, everywhere())


def test_ties_that_are_none(tmp_path: Path) -> None:
    array = {"embed": np.ones(3, np.float32)}
    path = tmp_path / "model.safetensors"
    for text, message in (
        ("{", "the text of redistrib.tied is no JSON"),
        ('{"head": "gone"}', "tensor 'head': redistrib.tied ties it to 'gone'"),
        ('{"embed": "embed"}', "tensor 'embed': redistrib.tied ties it to 'embed'"),
        ('{"head": ["embed"]}', "tensor 'head': redistrib.tied ties it to"),
    ):
        save_file(array, path, metadata={"redistrib.tied": text})
        with pytest.raises(WeightsFileError, match=message):
            rd.load(path, everywhere())
    save_file(array, path, metadata={"redistrib.tied": '{"head": "embed"}', "author": "embed", "format": "embed"})
    assert rd.load(path, everywhere()).keys() == {"embed", "head"}
    save_file(array, path, metadata={"head": "embed", "format": "embed"})  # as other programs write ties
    assert rd.load(path, everywhere()).keys() == {"embed", "head"}


def test_shards_beside_a_whole_file_belong_to_a_save_that_has_not_ended(tmp_path: Path) -> None:
    save_file({"a": np.ones(3, np.float32)}, tmp_path / "model-0123456789abcdef-00001-of-00002.safetensors")
    with pytest.raises(WeightsFileError, match="no index says which belong together: a save was broken off"):
        rd.load(tmp_path, everywhere())
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    assert rd.load(tmp_path, everywhere())["a"].tolist() == [0, 0, 0]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, arrays())
    cut = NamedSharding(mesh(), P("b"))
    for tree, error, message in (
        ({"layers.0.atn.q": cut}, WeightsFileError, "close names are layers.0.attn.q"),
        ({"scale": jax.ShapeDtypeStruct((1,), jnp.float32, sharding=cut)}, WeightsFileError, "is asked for"),
        ({"scale": jax.ShapeDtypeStruct((), jnp.float32)}, LeafError, "give it a sharding="),
        ({"layers": {"0": {"attn": 3}}}, WeightsFileError, "tensor 'layers.0.attn': there is no tensor"),
        ({"scale": 3}, LeafError, "leaf scale: 3 is no jax.sharding.Sharding"),
        ({"scale": np.ones((2, 2))}, LeafError, "leaf scale: ndarray of shape .2, 2. is no jax.sharding.Sharding"),
        ({"*.q": 3}, LeafError, "leaf layers.0.attn.q: 3 is no jax.sharding.Sharding"),
        ({"a": {"b": cut}, "a.b": cut}, LeafError, "leaf a.b: it has the name 'a.b', as leaf a/b; rename one"),
    ):
        with pytest.raises(error, match=message):
            rd.load(path, tree)


@pytest.mark.parametrize("call", [rd.load, rd.load_plan])
def test_shardings_that_do_not_fit_are_refused_in_the_words_of_reshard(
    tmp_path: Path, call: Callable[..., Any]
) -> None:
    path = written(tmp_path, arrays())
    tree = {"embed": {"weight": jnp.zeros(arrays()["embed.weight"].shape)}}
    axes = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    for spec in (P("x"), P(None, None, "x"), P("x", "x"), P("z"), P(unreduced={"x"}), P(P.UNCONSTRAINED)):
        with pytest.raises(LeafError, match="leaf embed/weight: ") as moved:
            rd.reshard(tree, spec, mesh=axes)
        with pytest.raises(LeafError) as loaded:
            call(path, {"embed": {"weight": spec}}, mesh=axes)
        assert str(loaded.value) == str(moved.value)
    with pytest.raises(LeafError, match=r"leaf embed/weight: .* AbstractMesh, which names no devices"):
        call(path, {"embed": {"weight": P("x")}}, mesh=axes.abstract_mesh)


@pytest.mark.parametrize("call", [rd.load, rd.load_plan])
def test_element_types_that_are_none_are_refused_by_option_and_by_leaf(
    tmp_path: Path, call: Callable[..., Any]
) -> None:
    path = written(tmp_path, arrays())
    tree = {"embed": {"weight": everywhere()}}
    for dtype, meant in (("bf16", "bfloat16"), ("fp32", "float32"), ("f16", "float16")):
        says = f"dtype='{dtype}' names no element type that JAX can hold; did you mean '{meant}'?"
        with pytest.raises(DtypeError) as of_all:
            call(path, tree, dtype=dtype)
        with pytest.raises(LeafError) as of_leaf:
            call(path, tree, dtype={"embed.weight": dtype})
        assert (str(of_all.value), str(of_leaf.value)) == (says, f"leaf embed/weight: {says}")
    for dtype in ("float128", "U4", "O", 3):
        with pytest.raises(DtypeError, match=f"dtype='{dtype}' names no element type that JAX can hold; give a NumPy"):
            call(path, tree, dtype=dtype)
    assert rd.load(path, tree, dtype="f2")["embed"]["weight"].dtype == jnp.float16


def test_folders_that_are_refused(tmp_path: Path) -> None:
    tensors = {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}
    folder = written(tmp_path, tensors, 2)
    index = folder / "model.safetensors.index.json"
    first, second = sorted(path.name for path in folder.glob("*.safetensors"))
    for weight_map, message in (
        ({"a": "../elsewhere.safetensors"}, "which is no file in its folder"),
        ({"a": "gone.safetensors"}, "which is no file in its folder"),
        ({"a": second, "b": second}, f"the index says that {second} has it, which has not"),
        ({}, "the index names no file"),
        ([], 'no "weight_map"'),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(WeightsFileError, match=message):
            rd.load(folder, everywhere())
    for text, message in (("[]", "the index is no JSON object"), ("{", "no JSON"), ("[" * 10**5, "no JSON")):
        index.write_text(text)
        with pytest.raises(WeightsFileError, match=message):
            rd.load(folder, everywhere())
    index.unlink()
    with pytest.raises(WeightsFileError, match=f"{first} is one of several files, and no index says which"):
        rd.load(folder, everywhere())
    (folder / first).rename(folder / "one.safetensors")
    (folder / second).unlink()
    save_file({"a": np.zeros(3, np.float32)}, folder / "two.safetensors")
    with pytest.raises(WeightsFileError, match=r"one.safetensors and two.safetensors both have it"):
        rd.load(folder, everywhere())
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(WeightsFileError, match="there is no safetensors file in this folder"):
        rd.load(empty, everywhere())


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {f"w{k}": np.ones((256, 1024), np.float32) for k in range(4)}
    path = written(tmp_path, tensors)

    class Shrinking(open_files.LocalFile):
        def read_into(self, buffer: memoryview, start: int) -> int:
            if start > 2**21:
                with path.open("r+b") as file:
                    file.truncate(2**21)
            return super().read_into(buffer, start)

    monkeypatch.setattr(open_files, "open_file", Shrinking)
    with pytest.raises(WeightsFileError, match="it shrank while it was read"):
        rd.load(path, everywhere())


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(open_files.LocalFile):
        def read_into(self, buffer: memoryview, start: int) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(open_files, "open_file", Broken)
    with pytest.raises(WeightsFileError, match="cannot be read: Input/output error"):
        rd.load(written(tmp_path, {"w": np.ones(8, np.float32)}), everywhere())


@given(st.lists(st.integers(0, 5), max_size=4), st.data())
def test_runs_are_those_of_numpy(shape: list[int], data: st.DataObject) -> None:
    edges = []
    for size in shape:
        start = data.draw(st.integers(0, size))
        edges.append((start, data.draw(st.integers(start, size))))
    box = Box.between(edges)
    numbers = np.arange(math.prod(shape)).reshape(shape)
    inside = numbers[box.slices()].reshape(-1)
    starts, length = runs_of(shape, box)
    assert [k for start in starts.tolist() for k in range(start, start + length)] == inside.tolist()
    if len(starts) > 1:  # no longer runs are possible
        assert min(np.diff(starts)) > length


class _Told:
    """Other processes, of which there are none; keeps what they are told."""

    def __init__(self) -> None:
        self.errors: queue.SimpleQueue[Exception] = queue.SimpleQueue()

    def agreed(self, act: Any, note: Any = None) -> Any:
        try:
            return act(), [""]
        except Exception as error:
            self.errors.put(error)
            raise


def test_other_processes_are_told_that_a_load_has_been_broken_off(tmp_path: Path) -> None:
    weights = open_weights(written(tmp_path, {f"w{k}": np.full((4096, 1024), k, np.float32) for k in range(6)}))
    targets = target_tree(weights.files, everywhere(), None).tensors
    batches = in_batches(targets, line_of(jax.devices()[:8]))
    assert len(batches) == 2
    told: Any = _Told()
    reader = PieceReader(weights, pieces_of(batches), None)
    with contextlib.suppress(KeyboardInterrupt), reader, BatchesAhead(told, [*batches, batches[-1]], reader) as ahead:
        arrays = ahead.next()
        assert same_bits(arrays[1], np.ones((4096, 1024), np.float32))
        raise KeyboardInterrupt
    assert "broken off in this process" in str(told.errors.get(timeout=60))
