"""Random files of weights: trees with hostile names and metadata, saves that die, and headers and indexes that lie.

What is saved is what `load`, and safetensors, reads; what is refused has changed nothing. After a death at any call of
the operating system a load gives the tree before it or the tree of it, whole. What `load` reads of a file that
somebody else made, safetensors reads alike.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, deserialize

import redistrib as rd
from redistrib.errors import RedistribError
from redistrib.weights import open_files
from tests.fuzz.guard import Failure, attempted
from tests.weights.deaths import CALLS, Mortal
from tests.weights.files import read_by_safetensors, same_bits

NAMES = (
    "",
    "a",
    "b",
    "a.b",
    "format",
    "pt",
    "__metadata__",
    "__metadata",
    "..",
    "/",
    "a\0",
    "\n",
    '"',
    "\ud800",
    "é",
    "\U0001f600",
)
SIZES = (0, 1, 3, 2**31, 2**63 - 1, 2**63, 2**64, -1, 1.5, True, None, "1", 10**30)
DTYPES = ("F32", "BOOL", "U8", "F64", "F4", "F31", "", None, 3)


def check(seed: int, index: int) -> str:
    """Make the case of this number; what became of it.

    Raises:
        Failure: where it is not right.
    """
    rng = random.Random(f"files/{seed}/{index}")
    open_files.TICK = 0  # nothing here is rewritten in its place
    with tempfile.TemporaryDirectory() as folder:
        return rng.choice((_tree, deaths, _header, _index))(rng, Path(folder))


def _load(path: Path) -> Any:
    return attempted(lambda: rd.load(path, jax.devices()[0]))


# ------------------------------------------------------------------------------------------------------------ trees


def _leaf(rng: random.Random) -> Any:
    shape = tuple(rng.choice((0, 1, 2, 5)) for _ in range(rng.randint(0, 3)))
    numbers = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, shape)
    kind = rng.choice(("jax", "numpy", "scalar", "bool", "strided"))
    if rng.random() < 0.06:
        kind = rng.choice(("swapped", "masked", "text"))
    if kind == "jax":
        return jnp.asarray(numbers).astype(rng.choice(("bfloat16", "int32", "float8_e4m3fn")))
    if kind == "scalar":
        return np.float32(rng.random())
    if kind == "bool":
        return numbers.astype(np.uint8).view(np.bool_)
    if kind == "masked":
        return np.ma.masked_array(numbers.astype(np.float32), numbers > 9)
    if kind == "text":
        return rng.choice(("text", 3, None, np.array(["text"])))
    values = numbers.astype(">f4" if kind == "swapped" else np.float32)
    return values.T if kind == "strided" else values


def _tree(rng: random.Random, folder: Path) -> str:
    names = NAMES if rng.random() < 0.3 else [name for name in NAMES if name not in ("__metadata__", "\ud800")]
    tree = {name: _leaf(rng) for name in rng.sample(names, rng.randint(1, 4))}
    if len(tree) > 1 and rng.random() < 0.3:
        first, second, *_ = tree
        tree[second] = tree[first]
    options: dict[str, Any] = {"shard_bytes": rng.choice((1, 20, "5GB"))}
    if rng.random() < 0.5:
        texts = (*names, 3, None, b"a") if rng.random() < 0.2 else names
        options["metadata"] = {rng.choice(texts): rng.choice(texts) for _ in range(rng.randint(0, 2))}
    rd.save({"before": np.arange(3, dtype=np.float32)}, folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    error = attempted(lambda: rd.save(tree, folder, **options))
    if error is not None:
        if files != {path.name: path.read_bytes() for path in folder.iterdir()}:
            raise Failure("wrong", f"refused, and files have changed: {error}")
        return "refused"
    arrays = _load(folder)
    expected = {name: np.asarray(value) for name, value in tree.items() if value is not None}
    if isinstance(arrays, RedistribError) or arrays.keys() != expected.keys():
        raise Failure("wrong", f"saved {sorted(expected)}, and read {arrays}")
    read: dict[str, Any] = {}
    for path in folder.glob("*.safetensors"):
        read |= read_by_safetensors(path)
    for name, value in expected.items():
        value = value != 0 if value.dtype == np.bool_ else value
        if not same_bits(arrays[name], value) or (name in read and not same_bits(read[name], value)):
            raise Failure("wrong", f"{name!r} has other values")
    return "came back"


# ------------------------------------------------------------------------------------------------------------ deaths


def deaths(rng: random.Random, folder: Path) -> str:
    possible: set[int | None] = {None}
    count, shard_bytes = 3, 1
    for version in range(rng.randint(2, 7)):
        if rng.random() < 0.4:
            count, shard_bytes = rng.randint(1, 3), rng.choice((1, 32, 2**30))
        tree = {name: np.full(4, version, np.float32) for name in ("a", "b", "c")[:count]}
        among = rng.choice((("rename", "replace", "unlink"), CALLS))
        process = Mortal(rng.choice((None, rng.randint(0, 60 if among is CALLS else 5))), among)
        with process.alive():
            rd.save(tree, folder / "weights", shard_bytes=shard_bytes)
        possible = possible | {version} if process.is_dead else {version}
        arrays = _load(folder / "weights")
        if isinstance(arrays, RedistribError):
            found = None
        else:
            found = int(next(iter(arrays.values()))[0])
            values = [float(value) for array in arrays.values() for value in array]
            if set(values) != {found}:
                raise Failure("wrong", f"a mixed tree: {values}")
        if found not in possible:
            raise Failure("wrong", f"version {found} after the death, where {possible} may be")
        possible = {found}
    return "whole"


# ------------------------------------------------------------------------------------------------------- other files


def _header(rng: random.Random, folder: Path) -> str:
    count = rng.randint(0, 3)
    header: dict[str, Any] = {
        name: {"dtype": "F32", "shape": [2], "data_offsets": [8 * k, 8 * k + 8]}
        for k, name in enumerate(rng.sample(NAMES[:6], count))
    }
    if rng.random() < 0.5:
        header["__metadata__"] = rng.choice(({"format": "pt"}, {"b": "a"}, {"a": 3}, None, [], "text"))
    for _ in range(rng.choice((0, 0, 1, 2))):
        entry = header.get(rng.choice([*header, ""]))
        if isinstance(entry, dict) and "shape" in entry:
            change = rng.randrange(5)
            if change == 0:
                entry["shape"] = [rng.choice(SIZES) for _ in range(rng.choice((0, 1, 2, 3, 71)))]
            elif change == 1:
                entry["dtype"] = rng.choice(DTYPES)
            elif change == 2:
                entry["data_offsets"] = [rng.choice((*SIZES, 8, 16)) for _ in range(rng.randint(1, 3))]
            elif change == 3:
                entry[rng.choice(("shape", "dtype", "data_offsets", "more"))] = None
            else:
                entry.pop(rng.choice(("shape", "dtype", "data_offsets")), None)
    text = bytearray(json.dumps(header).encode() + b" " * rng.randint(0, 3))
    if rng.random() < 0.2:
        text[rng.randrange(len(text))] = rng.randrange(256)
    data = rng.randbytes(max(0, 8 * count + rng.choice((0, 0, 0, 0, 0, 1, -1))))
    whole = len(text).to_bytes(8, "little") + bytes(text) + data
    path = folder / "file.safetensors"
    path.write_bytes(whole)
    arrays = _load(path)
    if isinstance(arrays, RedistribError):
        return "refused"
    try:
        stored = dict(deserialize(whole))
    except SafetensorError as error:
        raise Failure("wrong", f"read, though safetensors refuses it: {error}") from error
    if not stored.keys() <= arrays.keys():
        raise Failure("wrong", f"read {sorted(arrays)}, and {sorted(stored)} are there")
    for name, tensor in stored.items():
        if np.asarray(arrays[name]).tobytes() != bytes(tensor["data"]):
            raise Failure("wrong", f"{name!r} has other values")
    return "read"


def _index(rng: random.Random, folder: Path) -> str:
    files = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    rd.save({"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)}, folder, shard_bytes=1)
    strange = ("", ".", "..", "/", "x" * 5000, "a\0", "\ud800", "folder", "../up.safetensors", "pipe", 3, None)
    (folder / "folder").mkdir()
    weight_map: Any = dict(zip("ab", files, strict=True))
    for _ in range(rng.randint(0, 2)):
        weight_map[rng.choice("abc")] = rng.choice((*files, *strange))
    index = rng.choice(({"weight_map": weight_map}, {"weight_map": weight_map}, {"weight_map": [3]}, {}, [], None))
    path = folder / "model.safetensors.index.json"
    if rng.random() < 0.1:
        path.unlink()
        path.mkdir()
    else:
        path.write_text(json.dumps(index))
    if rng.random() < 0.1:
        (folder / rng.choice(files)).unlink()
    arrays = _load(folder)
    if isinstance(arrays, RedistribError):
        return "refused"
    if weight_map != dict(zip("ab", files, strict=True)) or [arrays[name].tolist() for name in "ab"] != [
        [0, 0],
        [1, 1],
    ]:
        raise Failure("wrong", f"read {arrays} by {index}")
    return "read"
