"""Headers of safetensors files: the place, shape and dtype of every tensor, checked before use.

The package `safetensors` checks the dtypes of a header, and that its tensors cover the file without gap or overlap. It
accepts repeated names and does not show offsets, so this module reads the header's JSON as well.
"""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redistrib.errors import WeightsFileError
from redistrib.extras import need
from redistrib.plans.dtypes import itemsize_of

# Element types by their names in safetensors. Those below one byte (F4, F6) are refused.
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "C64": "complex64",
}  # fmt: skip
MOST_HEADER_BYTES = 100_000_000  # safetensors refuses longer headers
INDEX = "model.safetensors.index.json"
PREFIX_BYTES = 8  # the length of the header, little endian


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file.

    Attributes:
        name: its name in the file.
        file: number of the file.
        start: its first byte, from the beginning of the file.
        shape: in elements.
        dtype: element type, as NumPy, ml_dtypes and JAX name it.
    """

    name: str
    file: int
    start: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return itemsize_of(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True)
class WeightFiles:
    """Files of weights whose headers have been read and checked.

    Attributes:
        folder: where the files are.
        files: their names in the folder.
        sizes: their sizes in bytes.
        tensors: the tensors by name.
        tied: names without a tensor of their own, each with the name of the tensor that it shares.
        metadata: texts of the headers, by key; where files disagree, those of the first.
    """

    folder: Path
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    tensors: Mapping[str, StoredTensor]
    tied: Mapping[str, str]
    metadata: Mapping[str, str]

    def path(self, file: int) -> Path:
        """The path of a file by its number."""
        return self.folder / self.files[file]

    def __getitem__(self, name: str) -> StoredTensor:
        tensor = self.tensors.get(name) or self.tensors.get(self.tied.get(name, ""))
        if tensor is None:
            close = difflib.get_close_matches(name, [*self.tensors, *self.tied], 3)
            hint = f"close names are {', '.join(close)}" if close else f"there are {len(self.tensors)} others"
            raise WeightsFileError(self.shown, name, f"there is no tensor of this name; {hint}")
        return tensor

    @property
    def shown(self) -> str:
        """The file, or the folder if there are several."""
        return str(self.path(0) if len(self.files) == 1 else self.folder)

    def to_json(self) -> str:
        """The headers as text, for other processes."""
        tensors = [(t.name, t.file, t.start, t.shape, t.dtype) for t in self.tensors.values()]
        return json.dumps([self.files, self.sizes, tensors, dict(self.tied), dict(self.metadata)])

    @staticmethod
    def from_json(folder: Path, text: str) -> WeightFiles:
        """The headers as another process wrote them by `to_json`."""
        files, sizes, tensors, tied, metadata = json.loads(text)
        stored = [StoredTensor(name, file, start, tuple(shape), dtype) for name, file, start, shape, dtype in tensors]
        return WeightFiles(folder, tuple(files), tuple(sizes), {t.name: t for t in stored}, tied, metadata)


def folder_of(path: Path) -> Path:
    """The folder of the files that a path names: a folder, or the folder of a file."""
    return path if path.is_dir() else path.parent


def read_headers(path: Path) -> WeightFiles:
    """Find the files of a path, and read and check their headers.

    Args:
        path: a safetensors file, an index (`*.safetensors.index.json`), or a folder. A folder has one index, or only
            files that make up one set of weights.

    Raises:
        WeightsFileError: for a file that is missing, truncated or malformed, or that the index contradicts.
    """
    folder, names, index = _files_of(path)
    sizes: list[int] = []
    tensors: dict[str, StoredTensor] = {}
    metadata: dict[str, str] = {}
    for number, name in enumerate(names):
        size, header, texts = _read_header(folder / name)
        sizes.append(size)
        metadata = {**texts, **metadata}
        for tensor, (start, shape, dtype) in header.items():
            if tensor in tensors:
                other = names[tensors[tensor].file]
                raise WeightsFileError(str(folder), tensor, f"{other} and {name} both have it; give one of the files")
            tensors[tensor] = StoredTensor(tensor, number, start, shape, dtype)
    for tensor, name in index.items():
        if tensor not in tensors or names[tensors[tensor].file] != name:
            raise WeightsFileError(
                str(folder), tensor, f"the index says that {name} has it, which has not; write the index again"
            )
    tied = {name: other for name, other in metadata.items() if other in tensors and name not in tensors}
    return WeightFiles(folder, tuple(names), tuple(sizes), tensors, tied, metadata)


def _files_of(path: Path) -> tuple[Path, list[str], dict[str, str]]:
    """The folder, the files in it, and for each tensor of the index its file."""
    if path.is_file() and path.name.endswith(".json"):
        return path.parent, *_read_index(path)
    if path.is_file():
        return path.parent, [path.name], {}
    if not path.is_dir():
        raise WeightsFileError(
            str(path),
            "",
            "there is no such file or folder; give the path of a safetensors file, or of a folder of them",
        )
    indexes = sorted(path.glob("*.safetensors.index.json"))
    if len(indexes) > 1:
        raise WeightsFileError(
            str(path), "", f"there are {len(indexes)} indexes here; give the path of one, such as {indexes[0].name}"
        )
    if indexes:
        return path, *_read_index(indexes[0])
    names = sorted(file.name for file in path.glob("*.safetensors"))
    if not names:
        raise WeightsFileError(str(path), "", "there is no safetensors file in this folder")
    return path, names, {}


def _read_index(path: Path) -> tuple[list[str], dict[str, str]]:
    if path.stat().st_size > MOST_HEADER_BYTES:
        raise WeightsFileError(str(path), "", f"an index has at most {MOST_HEADER_BYTES:,} bytes")
    parsed = _parsed(path, path.read_bytes(), "the index")
    files = parsed.get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise WeightsFileError(str(path), "", 'the index has no "weight_map" from tensors to files')
    names = sorted(set(files.values()))
    for name in names:
        if Path(name).name != name or not (path.parent / name).is_file():
            raise WeightsFileError(str(path), "", f"the index names {name!r}, which is no file in its folder")
    if not names:
        raise WeightsFileError(str(path), "", "the index names no file")
    return names, files


def _read_header(path: Path) -> tuple[int, dict[str, tuple[int, tuple[int, ...], str]], dict[str, str]]:
    """Size of a file in bytes; first byte, shape and dtype of each tensor in it; its metadata."""
    try:
        size = path.stat().st_size
        with path.open("rb", buffering=0) as file:
            length = int.from_bytes(file.read(PREFIX_BYTES), "little")
            if size < PREFIX_BYTES or length > min(size - PREFIX_BYTES, MOST_HEADER_BYTES):
                raise WeightsFileError(
                    str(path),
                    "",
                    f"the file has {size:,} bytes and says that its header has {length:,}, of {MOST_HEADER_BYTES:,} "
                    "allowed; it is truncated, or no safetensors file",
                )
            text = file.read(length)
    except OSError as error:
        raise WeightsFileError(str(path), "", f"cannot be read: {error.strerror}") from None
    _check(path)
    tensors: dict[str, tuple[int, tuple[int, ...], str]] = {}
    parsed = _parsed(path, text, "the header")
    metadata = parsed.pop("__metadata__", None) or {}
    for name, entry in parsed.items():
        if entry["dtype"] not in DTYPES:
            names = ", ".join(sorted(DTYPES))
            raise WeightsFileError(str(path), name, f"its dtype {entry['dtype']} is none of {names}; convert it first")
        start = PREFIX_BYTES + length + int(entry["data_offsets"][0])
        tensors[name] = start, tuple(map(int, entry["shape"])), DTYPES[entry["dtype"]]
    return size, tensors, metadata


def _check(path: Path) -> None:
    """Check a file by safetensors."""
    need("safetensors")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="np"):
            pass
    except SafetensorError as error:
        raise WeightsFileError(str(path), "", f"{error}; the file is truncated or damaged, write it again") from None


def _parsed(path: Path, text: bytes, subject: str) -> dict[str, Any]:
    """A JSON object without repeated names."""

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in pairs:
            if name in result:
                raise WeightsFileError(str(path), name, f"{subject} has this name twice; write the file again")
            result[name] = value
        return result

    try:
        parsed = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, WeightsFileError):
            raise
        raise WeightsFileError(str(path), "", f"{subject} is no JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise WeightsFileError(str(path), "", f"{subject} is no JSON object")
    return parsed
