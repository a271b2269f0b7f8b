"""Only what is asked for is read and required, and `rename=` gives tensors other names."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import LeafError, WeightsFileError
from tests.weights.files import written

MESH = jax.make_mesh((8,), ("x",))
ROWS, WHOLE = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())
TENSORS = {
    f"model.layers.{k}.{name}.weight": np.arange(64, dtype=np.float32).reshape(8, 8) + 10 * k + place
    for k in range(2)
    for place, name in enumerate(("self_attn.q_proj", "input_layernorm"))
}
FIRST, NORM, SECOND, OTHER_NORM = TENSORS
FILES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
GONE = f"the index names {FILES[1]!r}, which is no file in its folder; download it"
UNKNOWN = "its dtype 'F4' is none of BF16"
LACKING = f"the index says that {FILES[0]} has it, which has not"
TWICE = f"{FILES[0]} and {FILES[1]} both have it"


def change_index(folder: Path, **names: str) -> None:
    index = folder / "model.safetensors.index.json"
    parsed = json.loads(index.read_text())
    parsed["weight_map"] |= {name.replace("__", "."): file for name, file in names.items()}
    index.write_text(json.dumps(parsed))


def retype(path: Path, dtype: str) -> None:
    """Give the first tensor of a file another element type, of names of equal length."""
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"F32"', b'"%s" ' % dtype.encode(), 1))


def damage(folder: Path, how: str) -> tuple[str, str]:
    """Spoil a folder of two files; the tensor that can no longer be read, and the reason."""
    second = folder / FILES[1]
    held = sorted(TENSORS)[1]
    if how == "a name without a tensor":
        change_index(folder, extra__bias=FILES[0])
        return "extra.bias", LACKING
    if how == "no file":
        second.unlink()
        return held, GONE
    if how == "half a file":
        second.write_bytes(second.read_bytes()[:-100])
        return held, f"the index names {FILES[1]!r}, which cannot be used: the file has "
    if how == "a tensor in two files":
        (folder / FILES[1]).unlink()
        both = {name: TENSORS[name] for name in sorted(TENSORS)[1:]}
        written(folder, both)
        (folder / "model.safetensors").rename(second)
        return sorted(TENSORS)[2], TWICE
    retype(second, "F4")
    lost = json.loads(second.read_bytes()[8 : 8 + int.from_bytes(second.read_bytes()[:8], "little")])
    return next(name for name, entry in lost.items() if entry.get("dtype") == "F4"), UNKNOWN


HOW = ("a name without a tensor", "no file", "half a file", "a tensor in two files", "an unknown type")


@pytest.mark.parametrize("how", HOW)
def test_what_is_not_asked_for_may_be_lacking(tmp_path: Path, how: str) -> None:
    folder = written(tmp_path, TENSORS, 2)
    lost, why = damage(folder, how)
    for shardings in (
        {FIRST: ROWS},
        {"*.input_layernorm.*": ROWS} if lost == "extra.bias" else {f"{NORM[:-3]}*": ROWS},
        lambda name, leaf: ROWS if name in (FIRST, NORM) and leaf.shape else None,
    ):
        asked = shardings
        if lost in (FIRST, NORM):
            asked = {FIRST if lost == NORM else NORM: ROWS}
        for name, array in rd.load(folder, asked).items():
            np.testing.assert_array_equal(array, TENSORS[name])
            assert array.sharding == ROWS
    fused = rd.load(folder, {"q": ROWS}, through=lambda tensors: {"q": tensors[FIRST if lost != FIRST else NORM] * 2})
    np.testing.assert_array_equal(fused["q"], 2 * TENSORS[FIRST if lost != FIRST else NORM])

    def all_(name: str, leaf: Any) -> NamedSharding:
        return WHOLE

    def by_size(name: str, leaf: Any) -> NamedSharding:
        return ROWS if leaf.shape[0] % 8 == 0 else WHOLE

    for shardings in ({lost: WHOLE}, WHOLE, {f"{lost[:-2]}*": WHOLE}, {"*": WHOLE}, all_, by_size):
        for call in (rd.load, rd.load_plan):
            with pytest.raises(WeightsFileError, match=re.escape(why)) as caught:
                call(folder, shardings)
            assert caught.value.tensor == lost or how in ("no file", "half a file", "an unknown type")
            assert caught.value.path == str(folder)
    with pytest.raises(WeightsFileError, match=re.escape(why)):
        rd.load(folder, {"q": ROWS}, through=lambda tensors: {"q": tensors[lost]})


def test_a_name_that_no_file_has_is_an_error_of_a_function_too(tmp_path: Path) -> None:
    folder = written(tmp_path, TENSORS, 2)
    with pytest.raises(WeightsFileError, match=f"there is no tensor of this name; close names are {FIRST}"):
        rd.load(folder, {"q": ROWS}, through=lambda tensors: {"q": tensors[FIRST.replace("q_proj", "q_prj")]})
    with pytest.raises(KeyError, match="mine"):
        rd.load(folder, {"q": ROWS}, through=lambda tensors: {"q": {FIRST: 1}[("mine",)]})  # type: ignore[index]


def short(name: str) -> str | None:
    """The path of a leaf for a tensor of a file; None for norms."""
    parts = name.split(".")
    return f"blocks.{parts[2]}.wq" if parts[-2] == "q_proj" else None


SHORT = {FIRST: "blocks.0.wq", SECOND: "blocks.1.wq", NORM: None, OTHER_NORM: None}


@pytest.mark.parametrize("rename", [short, SHORT])
def test_load_renames_from_the_file_to_the_tree(tmp_path: Path, rename: Any) -> None:
    folder = written(tmp_path, TENSORS, 2)
    tree = rd.load(folder, {"blocks": [{"wq": ROWS}, {"wq": WHOLE}]}, rename=rename)
    np.testing.assert_array_equal(tree["blocks"][0]["wq"], TENSORS[FIRST])
    np.testing.assert_array_equal(tree["blocks"][1]["wq"], TENSORS[SECOND])
    assert list(rd.load(folder, WHOLE, rename=rename)) == ["blocks.0.wq", "blocks.1.wq"]
    assert list(rd.load(folder, {"*.1.wq": P("x")}, mesh=MESH, rename=rename)) == ["blocks.1.wq"]
    assert list(rd.load(folder, lambda name, leaf: WHOLE, rename=rename)) == ["blocks.0.wq", "blocks.1.wq"]
    halves = rd.load(folder, {"blocks.0.wq": ROWS}, rename=rename, dtype={"blocks.0.wq": "bfloat16"})
    assert halves["blocks.0.wq"].dtype == "bfloat16"
    double = rd.load(folder, [ROWS], rename=rename, through=lambda tensors: [2 * tensors["blocks.1.wq"]])
    np.testing.assert_array_equal(double[0], 2 * TENSORS[SECOND])
    assert rd.load_plan(folder, {"blocks.0.wq": ROWS}, rename=rename).total_bytes == 256
    with pytest.raises(WeightsFileError, match="no tensor of this name; close names are blocks"):
        rd.load(folder, {"blocks.2.wq": ROWS}, rename=rename)


def test_a_mapping_leaves_other_names_and_tied_names_are_renamed(tmp_path: Path) -> None:
    array = jax.device_put(np.arange(64.0, dtype=np.float32).reshape(8, 8), ROWS)
    rd.save({"embed": array, "head": array, "norm": np.ones(8, np.float32)}, tmp_path)
    loaded = rd.load(tmp_path, WHOLE, rename={"head": "lm_head", "embed": "tokens"})
    assert list(loaded) == ["lm_head", "norm", "tokens"]
    assert loaded["lm_head"] is loaded["tokens"]
    assert list(rd.load(tmp_path, WHOLE, rename={"embed": None})) == ["head", "norm"]


@jax.tree_util.register_dataclass
@dataclass
class Box:
    """As `flax.nnx.Variable` has its array."""

    value: Any


@jax.tree_util.register_dataclass
@dataclass
class Pair:
    key: Any
    value: Any


def test_names_are_those_of_boxes_and_fields_named_value_keep_theirs(tmp_path: Path) -> None:
    array = np.ones((8, 8), np.float32)
    rd.save({"wq": Box(array), "attn": Pair(array, Box(2 * array))}, tmp_path)
    names = ["attn.key", "attn.value", "wq"]
    assert list(rd.load(tmp_path, WHOLE)) == names
    loaded = rd.load(tmp_path, {"wq": Box(ROWS), "attn": Pair(ROWS, Box(WHOLE))})
    assert loaded["attn"].value.value.sharding == WHOLE
    np.testing.assert_array_equal(loaded["attn"].value.value, 2 * array)
    # Files of other programs may have the `value` of boxes in their names, and trees keys that are called so.
    rd.save({"wq.value": array, "attn.value": array, "attn.key": array}, tmp_path / "other")
    assert rd.load(tmp_path / "other", {"wq": Box(ROWS)})["wq"].value.sharding == ROWS
    assert rd.load(tmp_path, {"wq": {"value": ROWS}})["wq"]["value"].sharding == ROWS
    with pytest.raises(WeightsFileError, match="there is no tensor of this name; close names are attn"):
        rd.load(tmp_path / "other", {"attn": ROWS})


def test_the_patterns_of_reshard_are_those_of_load(tmp_path: Path) -> None:
    tree = {"layers": [{"wq": np.ones((8, 8), np.float32), "norm": np.ones(8, np.float32)}]}
    patterns = {"layers/*/wq": P("x"), "*": P()}
    rd.save(rd.reshard(tree, patterns, mesh=MESH), tmp_path)
    loaded = rd.load(tmp_path, patterns, mesh=MESH)
    assert {name: array.sharding for name, array in loaded.items()} == {"layers.0.norm": WHOLE, "layers.0.wq": ROWS}


def test_save_renames_from_the_tree_to_the_file(tmp_path: Path) -> None:
    folder = written(tmp_path, TENSORS, 2)
    tree = rd.load(folder, {"blocks": [{"wq": ROWS}, {"wq": ROWS}]}, rename=short)
    back = {path: name for name, path in SHORT.items() if path}
    rd.save({**tree, "step": np.zeros(3)}, folder, rename={**back, "step": None}, shard_bytes=256)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert sorted(index["weight_map"]) == [FIRST, SECOND]
    assert len(set(index["weight_map"].values())) == 2
    assert all((folder / name).exists() for name in index["weight_map"].values())
    again = rd.load(folder, WHOLE)
    np.testing.assert_array_equal(again[SECOND], TENSORS[SECOND])
    rd.save(tree, tmp_path / "one.safetensors", rename=lambda path: f"model.{path}")
    assert list(rd.load(tmp_path / "one.safetensors", WHOLE)) == ["model.blocks.0.wq", "model.blocks.1.wq"]


@pytest.mark.parametrize(
    ("rename", "why"),
    [
        ({FIRST: "a", SECOND: "a"}, f"leaf {SECOND}: rename= makes it 'a', and {FIRST} too"),
        ({NORM: FIRST}, f"leaf {FIRST}: rename= makes it {FIRST!r}, and {NORM} too"),
        ({FIRST: 3}, f"leaf {FIRST}: rename= makes it 3; give a text, or None to leave it out"),
        ({FIRST: "a\ud800"}, "half of a surrogate pair"),
        ({"model.layer": "a"}, "leaf model.layer: rename= has this name, and there is none such"),
        (["a"], "rename=['a'] is no mapping of names and no function of a name"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path: Path, rename: Any, why: str) -> None:
    folder = written(tmp_path, TENSORS, 2)
    for call in (
        lambda: rd.load(folder, WHOLE, rename=rename),
        lambda: rd.load_plan(folder, WHOLE, rename=rename),
        lambda: rd.save(TENSORS, tmp_path / "new", rename=rename),
    ):
        with pytest.raises(LeafError, match=re.escape(why)):
            call()
    assert not (tmp_path / "new").exists()
