"""`save`: what it writes is what `load`, and safetensors itself, reads; and a failure leaves nothing behind."""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors import safe_open
from safetensors.numpy import load_file

import redistrib as rd
from redistrib.errors import LeafError, WeightsFileError
from redistrib.weights import saving, writing
from redistrib.weights.headers import DTYPES
from tests.weights.files import arrays, drawn_sharding, read_by_safetensors, same_bits, written

X64 = ("float64", "int64", "uint64")
KINDS = sorted(set(DTYPES.values()) - set(X64))


def mesh(shape: tuple[int, ...] = (2, 4)) -> Mesh:
    return Mesh(np.array(jax.devices()[: math.prod(shape)]).reshape(shape), ("a", "b")[: len(shape)])


@st.composite
def placed_arrays(draw: st.DrawFn) -> tuple[np.ndarray, Any]:
    """Values of any bits with a sharding that divides them."""
    spec = draw(st.permutations(["a", "b", None, None]))[: draw(st.integers(0, 3))]
    sizes = [draw(st.integers(0, 3)) * {"a": 2, "b": 4, None: 1}[axis] for axis in spec]
    dtype = jnp.dtype(draw(st.sampled_from(KINDS)))
    drawn = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 256, math.prod(sizes) * dtype.itemsize)
    data = (drawn & 1 if dtype == np.bool_ else drawn).astype(np.uint8)
    return data.view(dtype).reshape(sizes), NamedSharding(mesh(), P(*spec))


@settings(max_examples=25, deadline=None)
@given(
    leaves=st.lists(placed_arrays(), min_size=1, max_size=6),
    shard_bytes=st.sampled_from([1, 40, "5GB"]),
    seed=st.integers(0, 2**32),
)
def test_round_trips(leaves: list[Any], shard_bytes: Any, seed: int) -> None:
    values = {f"layer.{k}": value for k, (value, _) in enumerate(leaves)}
    shardings = {f"layer.{k}": sharding for k, (_, sharding) in enumerate(leaves)}
    tree = {"layer": [jax.device_put(value, sharding) for value, sharding in leaves]}
    with tempfile.TemporaryDirectory() as folder:
        rd.save(tree, folder, shard_bytes=shard_bytes)
        rng = np.random.default_rng(seed)
        others = {name: drawn_sharding(rng, value.shape, jax.devices()[:8]) for name, value in values.items()}
        for loaded in (rd.load(folder, targets) for targets in (shardings, others, NamedSharding(mesh(), P()))):
            assert all(same_bits(loaded[name], values[name]) for name in values)
        files = sorted(Path(folder).glob("*.safetensors"))
        read: dict[str, Any] = {}
        for file in files:
            with safe_open(file, framework="np") as opened:
                assert opened.metadata() == {"format": "pt"}
                names = list(opened.keys())
                assert all(opened.get_slice(name).get_shape() == list(values[name].shape) for name in names)
            read |= read_by_safetensors(file)
        assert read.keys() == values.keys() and all(same_bits(read[name], value) for name, value in values.items())
        assert sorted(path.name for path in Path(folder).iterdir()) == sorted(
            [*(file.name for file in files), *(["model.safetensors.index.json"] if len(files) > 1 else [])]
        )


def test_safetensors_reads_it(tmp_path: Path) -> None:
    tensors = arrays()
    grid = mesh()
    tree = {
        name: jax.device_put(value, NamedSharding(grid, P("b") if value.ndim and value.shape[0] % 4 == 0 else P()))
        for name, value in tensors.items()
    }
    rd.save(tree, tmp_path / "all.safetensors")
    read = load_file(tmp_path / "all.safetensors")
    assert read.keys() == tensors.keys()
    assert all(same_bits(read[name], tensors[name]) for name in tensors)
    assert [path.name for path in tmp_path.iterdir()] == ["all.safetensors"]


def test_the_index_has_the_keys_that_transformers_reads(tmp_path: Path) -> None:
    tree = {"first": np.zeros(6, np.float32), "second": np.ones((2, 4), np.int16)}
    rd.save(tree, tmp_path, shard_bytes=24)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    first, second = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert index == {"metadata": {"total_size": 24 + 16}, "weight_map": {"first": first, "second": second}}


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    table = jax.device_put(np.arange(1024, dtype=np.float32), NamedSharding(mesh(), P("b")))
    same = rd.reshard(table, NamedSharding(mesh((4, 2)), P("a")))
    tree = {"embed": table, "head": table, "equal": table + 0}
    rd.save(tree, tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert sorted(file.keys()) == ["embed", "equal"]
        assert file.metadata() == {"format": "pt", "redistrib.tied": '{"head": "embed"}'}
    loaded = rd.load(tmp_path, NamedSharding(mesh(), P()))
    assert loaded.keys() == tree.keys() and all(same_bits(array, table) for array in loaded.values())
    assert same_bits(same, table)


def test_every_byte_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = arrays()
    grid = mesh()
    specs = {"layers.0.attn.q": P(None, "b"), "layers.0.mlp.up": P("b", "a"), "embed.weight": P(None, "b")}
    tree = {name: jax.device_put(value, NamedSharding(grid, specs.get(name, P()))) for name, value in tensors.items()}
    writes: list[tuple[int, int]] = []
    write = os.pwrite

    def counted(descriptor: int, data: Any, start: int) -> int:
        count = write(descriptor, data[: max(1, len(data) // 2 or 1)], start)  # less than asked for, as a disk may
        writes.append((start, start + count))
        return count

    monkeypatch.setattr(saving.os, "pwrite", counted)
    rd.save(tree, tmp_path)
    for (_, stop), (start, _) in itertools.pairwise(sorted(writes)):
        assert stop == start
    size = sum(value.nbytes for value in tensors.values())
    assert max(writes)[1] - min(writes)[0] == size == (tmp_path / "model.safetensors").stat().st_size - min(writes)[0]
    monkeypatch.setattr(saving.os, "pwrite", write)
    read = load_file(tmp_path / "model.safetensors")
    assert all(same_bits(read[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("what", ["pwrite", "posix_fallocate", "fsync"])
def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    before = {"w": np.arange(8, dtype=np.float32)}
    path = written(tmp_path, before)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving.os, what, full)
    with pytest.raises(WeightsFileError, match="cannot be written: No space left on device; nothing has been saved"):
        rd.save({"w": jnp.zeros(8)}, path)
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert same_bits(load_file(path)["w"], before["w"])


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(saving.os, "pwrite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rd.save({"w": jnp.zeros(8)}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    gone = jnp.ones(3)
    gone.delete()
    for tree, message in (
        ({}, "there is nothing to save"),
        ({"a": 3}, "leaf a: int is no array with values"),
        (
            {"a": {"k": jax.random.key(0)}},
            "leaf a/k: safetensors has no keys of random numbers, key<fry>; save jax.random.key_data",
        ),
        (
            {"a": jnp.zeros(2, jnp.int4)},
            "safetensors has no element type int4; convert it to one of bool, uint8, int8, .*, complex64$",
        ),
        ({"a": gone}, "has been donated or deleted"),
    ):
        with pytest.raises(LeafError, match=message):
            rd.save(tree, tmp_path)
    written(tmp_path, {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}, 2)
    with pytest.raises(WeightsFileError, match="cannot be written: Not a directory"):
        rd.save({"a": jnp.ones(3)}, tmp_path / "model.safetensors.index.json" / "below")
    for name in ("adapter.safetensors", "adapter-00001-of-00002.safetensors", "adapter.safetensors.index.json"):
        (tmp_path / name).touch()
        for shard_bytes in (1, "5GB"):
            with pytest.raises(WeightsFileError, match=f"the folder has other weights .{name}"):
                rd.save({"a": jnp.ones(3), "b": jnp.ones(3)}, tmp_path, shard_bytes=shard_bytes)
        (tmp_path / name).unlink()
    assert sorted(rd.load(tmp_path, jax.devices()[0])) == ["a", "b"]
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../up.safetensors"}}')
    with pytest.raises(WeightsFileError, match=r"the index names '../up.safetensors', which is no file in its folder"):
        rd.save({"a": jnp.ones(3)}, tmp_path)


@pytest.mark.parametrize(
    "name",
    ["", "a", "a.b", "..", "/", "a/b", "a\0b", "\n", " ", '"', "\\", "__metadata", "format", "pt", "data_offsets",
     "\U0001f600", "\u202e", "a" * 70_000],
)  # fmt: skip
def test_names_of_any_kind_come_back(tmp_path: Path, name: str) -> None:
    rd.save({name: jnp.arange(3), "other": jnp.ones(2)}, tmp_path, shard_bytes=1)
    assert same_bits(rd.load(tmp_path, jax.devices()[0])[name], np.arange(3, dtype=np.int32))
    read: dict[str, Any] = {}
    for file in tmp_path.glob("*.safetensors"):
        read |= read_by_safetensors(file)
    assert read.keys() == {name, "other"}


def test_what_no_reader_reads_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MOST_HEADER_BYTES", 10_000)  # for 100 MB
    before = {"w": np.arange(8, dtype=np.float32)}
    path = written(tmp_path, before)
    whole = path.read_bytes()
    array = jnp.zeros(8)
    tree: dict[str, Any]
    for tree, message in (
        ({"w": array, "__metadata__": array}, "leaf __metadata__: safetensors keeps this name"),
        ({"w": array, "a\ud800": array}, r"leaf 'a.ud800': the name has half of a surrogate pair"),
        ({"w": np.ma.masked_array([1.0, 2.0], [True, False])}, "leaf w: safetensors cannot store a mask"),
    ):
        with pytest.raises(LeafError, match=message):
            rd.save(tree, path)
    metadata: Any
    for metadata, message in (
        ({"step": 1000}, r"metadata has 'step': 1000, and safetensors stores texts alone; write numbers by str\(\)"),
        ({3: "step"}, "metadata has 3: 'step', and safetensors stores texts alone"),
        ({"step": None}, "metadata has 'step': None"),
        ({"step": "\udfff"}, r"metadata has 'step': '.udfff'"),
        ({"\ud800": "step"}, r"metadata has '.ud800'"),
        ({"redistrib.tied": "{}"}, "keys that begin with 'redistrib.' are the library's"),
        ("step", "metadata 'step' is no dict of texts"),
        ({"text": "x" * 10_000}, "the header of model.safetensors would have 10,"),
    ):
        for place in (path, tmp_path):
            with pytest.raises(WeightsFileError, match=message):
                rd.save({"w": array}, place, metadata=metadata)
    nul, bad = "no path has NUL", "is no path; give a str"
    for place, message in (("a\0b", nul), ("\ud800", nul), (3, bad), (b"a", bad)):
        with pytest.raises(WeightsFileError, match=message):
            rd.save({"w": array}, place)  # type: ignore[arg-type]
    with pytest.raises(WeightsFileError, match="cannot be written: File name too long"):
        rd.save({"w": array}, tmp_path / ("long" * 1250))
    assert [file.name for file in tmp_path.iterdir()] == [path.name] and path.read_bytes() == whole


def test_metadata_make_no_tensors(tmp_path: Path) -> None:
    """Though they read as tied names of other programs do."""
    tree = {name: jnp.full(2, k) for k, name in enumerate(("pt", "w", "b"))}
    rd.save(tree, tmp_path / "one.safetensors")
    rd.save(tree, tmp_path / "two.safetensors", metadata={"author": "w", "format": "b"})
    rd.save(tree, tmp_path / "sharded", metadata={"author": "w"}, shard_bytes=1)
    for path in (tmp_path / "one.safetensors", tmp_path / "two.safetensors", tmp_path / "sharded"):
        assert rd.load(path, jax.devices()[0]).keys() == tree.keys()
    with safe_open(tmp_path / "one.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}


def test_booleans_are_written_as_0_and_1(tmp_path: Path) -> None:
    rd.save({"b": np.array([0, 1, 2, 255], np.uint8).view(np.bool_)}, tmp_path)
    assert rd.load(tmp_path, jax.devices()[0])["b"].tolist() == [False, True, True, True]


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    before = {"w": np.arange(8, dtype=np.float32)}
    path = written(tmp_path, before)
    for name, target in (("link.safetensors", path), ("dangling.safetensors", tmp_path / "gone")):
        (tmp_path / name).symlink_to(target)
        rd.save({"w": jnp.zeros(8)}, tmp_path / name)
        assert same_bits(load_file(tmp_path / name)["w"], np.zeros(8, np.float32))
    assert same_bits(load_file(path)["w"], before["w"]) and not (tmp_path / "gone").exists()
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    rd.save({"w": jnp.zeros(8)}, tmp_path / "folder")
    assert [file.name for file in (tmp_path / "real").iterdir()] == ["model.safetensors"]


def test_a_save_goes_to_one_folder_though_the_process_changes_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write = os.pwrite

    def moving(*arguments: Any) -> int:
        os.chdir("/")
        return write(*arguments)

    monkeypatch.setattr(saving.os, "pwrite", moving)
    rd.save({"w": jnp.zeros(8)}, "relative")
    assert [file.name for file in (tmp_path / "relative").iterdir()] == ["model.safetensors"]


CRASHES = """
import os, sys
import jax.numpy as jnp
import redistrib as rd
os.pwrite = lambda *_: os._exit(9)
rd.save({"w": jnp.zeros(8)}, sys.argv[1])
"""


def test_a_crash_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    before = {"w": np.arange(8, dtype=np.float32)}
    path = written(tmp_path, before)
    root = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", CRASHES, str(tmp_path)], env=root, check=False)
    assert ended.returncode == 9
    assert same_bits(load_file(path)["w"], before["w"])
    assert same_bits(rd.load(tmp_path, jax.devices()[0])["w"], before["w"])
    rd.save({"w": jnp.ones(8)}, tmp_path)  # over what the crash has left
    assert same_bits(load_file(path)["w"], np.ones(8, np.float32))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_disk_that_is_full_indeed(tmp_path: Path) -> None:
    before = {"w": np.arange(8, dtype=np.float32)}
    path = written(tmp_path, before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # as a quota: larger files are refused by the kernel
    try:
        with pytest.raises(WeightsFileError, match="cannot be written: File too large; nothing has been saved"):
            rd.save({"w": jnp.zeros(2048)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert same_bits(load_file(path)["w"], before["w"])
