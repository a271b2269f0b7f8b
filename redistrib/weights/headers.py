"""Headers of safetensors files: the place, shape and dtype of every tensor, checked before use.

The rules are those of the package `safetensors`, and names may not be repeated. That package maps a file into memory,
which ends the process if the file shrinks meanwhile, and it opens the file by its name, where another may be by then.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from redistrib.errors import WeightsFileError
from redistrib.errors.base import shown
from redistrib.plans.dtypes import itemsize_of
from redistrib.report import counted
from redistrib.weights.names import Rename, renamed
from redistrib.weights.open_files import LocalFile, whole

# Element types by their names in safetensors. Those below one byte (F4, F6) are refused.
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "C64": "complex64",
}  # fmt: skip
MOST_HEADER_BYTES = 100_000_000  # safetensors refuses longer headers
_BOX = ".value"  # ends the names of leaves in boxes, in files of other programs
PREFIX_BYTES = 8  # the length of the header, little endian
RESERVED = "redistrib."  # begins the keys of metadata that are the library's
TIED = f"{RESERVED}tied"  # a JSON object: names without a tensor of their own, with the names whose tensors they share


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
        unreadable: names whose tensor cannot be read, each with the reason: an error only if it is asked for.
        metadata: texts of the headers, by key, without those of the library; where files disagree, those of the first.
        indexed: whether an index names the files.
    """

    folder: Path
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    tensors: Mapping[str, StoredTensor]
    tied: Mapping[str, str]
    unreadable: Mapping[str, str]
    metadata: Mapping[str, str]
    indexed: bool

    def path(self, file: int) -> Path:
        """The path of a file by its number."""
        return self.folder / self.files[file]

    def __getitem__(self, name: str) -> StoredTensor:
        own = self._own(name)
        if own in self.unreadable:
            raise WeightsFileError(self.shown, name, self.unreadable[own])
        if own not in self.tensors:
            close = difflib.get_close_matches(name, self.names, 3)
            others = counted(len(self.names), "tensor of another name", "tensors of other names")
            hint = f"close names are {', '.join(close)}" if close else f"the files have {others}"
            raise WeightsFileError(self.shown, name, f"there is no tensor of this name; {hint}")
        return self.tensors[own]

    @property
    def names(self) -> list[str]:
        """All names, ascending, those of tensors that cannot be read included."""
        return sorted({*self.tensors, *self.tied, *self.unreadable})

    def is_readable(self, name: str) -> bool:
        """Whether a name is of a tensor that can be read."""
        return self._own(name) in self.tensors

    def _own(self, name: str) -> str:
        """The name of a tensor in its file; a file may have the `value` of boxes in its names, or not."""
        own = self.tied.get(name, name)
        if own in self.tensors or own in self.unreadable:
            return own
        below = [other for other in self.names if other.startswith(f"{name}.")]
        if below == [f"{name}{_BOX}"] or (name.endswith(_BOX) and name.removesuffix(_BOX) in self.names):
            return self._own(below[0] if below else name.removesuffix(_BOX))
        return name

    def renamed(self, rename: Rename) -> WeightFiles:
        """The same tensors by the names that a caller of `load` gives them.

        Raises:
            LeafError: as `renamed` does.
        """
        if rename is None:
            return self
        names = renamed(self.names, rename)
        tensors = {new: self[name] for name, new in names.items() if self.is_readable(name)}
        reasons = {
            new: f"as {name} in the files: {self.unreadable[self._own(name)]}"
            for name, new in names.items()
            if not self.is_readable(name)
        }
        return replace(self, tensors=tensors, tied={}, unreadable=reasons)

    @property
    def shown(self) -> str:
        """The file, or the folder if there are several, or an index."""
        return str(self.folder if self.indexed or len(self.files) != 1 else self.path(0))

    def to_json(self) -> str:
        """The headers as text, for other processes, which rename for themselves."""
        tensors = [(t.name, t.file, t.start, t.shape, t.dtype) for t in self.tensors.values()]
        ties, reasons = dict(self.tied), dict(self.unreadable)
        return json.dumps([self.files, self.sizes, tensors, ties, reasons, dict(self.metadata), self.indexed])

    @staticmethod
    def from_json(folder: Path, text: str) -> WeightFiles:
        """The headers as another process wrote them by `to_json`."""
        files, sizes, tensors, *others = json.loads(text)
        stored = [StoredTensor(name, file, start, tuple(shape), dtype) for name, file, start, shape, dtype in tensors]
        return WeightFiles(folder, tuple(files), tuple(sizes), {t.name: t for t in stored}, *others)


def ties_by_others(metadata: Mapping[str, str], tensors: Iterable[str]) -> dict[str, str]:
    """The texts of metadata that name tied tensors as other programs write them: one name as key, the other as text.

    `format` is no such name: it says which library wrote the file.
    """
    names = set(tensors)
    return {
        name: other for name, other in metadata.items() if other in names and name not in names and name != "format"
    }


def ties_of(path: Path, metadata: Mapping[str, str], tensors: Iterable[str]) -> dict[str, str]:
    """The tied names of a file, each with the name of the tensor that it shares."""
    if TIED not in metadata:
        return ties_by_others(metadata, tensors)
    tied = parsed_object(path, metadata[TIED].encode(), f"the text of {TIED}")
    for name, other in tied.items():
        if name in tensors or not isinstance(other, str) or other not in tensors:
            raise WeightsFileError(
                str(path), name, f"{TIED} ties it to {other!r}; the first may be no tensor, the second must be one"
            )
    return tied


def bytes_of(path: Path, file: LocalFile, start: int, size: int) -> bytes:
    try:
        return whole(file, start, size)
    except OSError as error:
        raise WeightsFileError(str(path), "", f"cannot be read: {error.strerror or error}") from None


def read_header(
    path: Path, file: LocalFile, size: int
) -> tuple[dict[str, tuple[int, tuple[int, ...], str]], dict[str, str]]:
    """First byte, shape and dtype of each tensor of a file, as it names the dtype; and its metadata."""
    length = int.from_bytes(bytes_of(path, file, 0, PREFIX_BYTES), "little")
    if size < PREFIX_BYTES or length > min(size - PREFIX_BYTES, MOST_HEADER_BYTES):
        raise WeightsFileError(
            str(path),
            "",
            f"the file has {size:,} bytes and says that its header has {length:,}, of {MOST_HEADER_BYTES:,} "
            "allowed; it is truncated, or no safetensors file",
        )
    text = bytes_of(path, file, PREFIX_BYTES, length)
    parsed = parsed_object(path, text, "the header")
    metadata = parsed.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise WeightsFileError(str(path), "", "its metadata are no texts; the file is damaged, write it again")
    tensors = {}
    place = 0
    for name, entry in sorted(parsed.items(), key=lambda item: _offsets(path, *item)):
        start, stop = _offsets(path, name, entry)
        shape, dtype = _shape_and_dtype(path, name, entry)
        expected = math.prod(shape) * itemsize_of(DTYPES[dtype]) if dtype in DTYPES else max(stop - start, 0)
        if start != place or stop - start != expected:
            raise WeightsFileError(
                str(path),
                name,
                f"its bytes are {start:,} to {stop:,}, and a {DTYPES.get(dtype, dtype)} of shape {shape} from "
                f"{place:,} on is expected; the file is damaged, write it again",
            )
        tensors[name] = PREFIX_BYTES + length + start, shape, dtype
        place = stop
    if PREFIX_BYTES + length + place != size:
        raise WeightsFileError(
            str(path),
            "",
            f"the file has {size:,} bytes, and its tensors end at {PREFIX_BYTES + length + place:,}; it is truncated "
            "or damaged, write it again",
        )
    return tensors, metadata


def _offsets(path: Path, name: str, entry: Any) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise WeightsFileError(str(path), name, "it has no data_offsets; the file is damaged, write it again")
    return offsets[0], offsets[1]


def _shape_and_dtype(path: Path, name: str, entry: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    shape, dtype = entry.get("shape"), entry.get("dtype")
    if not _are_sizes(shape):
        raise WeightsFileError(str(path), name, "its shape is no list of sizes; the file is damaged, write it again")
    if not isinstance(dtype, str):
        raise WeightsFileError(str(path), name, f"its dtype {shown(dtype)} is no text; the file is damaged")
    return tuple(shape), dtype


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**64 for size in value)


def parsed_object(path: Path, text: bytes, subject: str) -> dict[str, Any]:
    """A JSON object in UTF-8, without repeated names."""

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in pairs:
            for text in (name, value) if isinstance(value, str) else (name,):
                text.encode()  # half of a surrogate pair is no text
            if name in result:
                raise WeightsFileError(str(path), name, f"{subject} has this name twice; write the file again")
            result[name] = value
        return result

    def refused(number: str) -> None:
        raise ValueError(f"{number} is no number")

    try:
        parsed = json.loads(text.decode(), object_pairs_hook=once, parse_constant=refused)
    except (ValueError, RecursionError) as error:
        if isinstance(error, WeightsFileError):
            raise
        raise WeightsFileError(
            str(path), "", f"{subject} is no JSON: {error}; the file is damaged, write it again"
        ) from None
    if not isinstance(parsed, dict):
        raise WeightsFileError(str(path), "", f"{subject} is no JSON object; the file is damaged, write it again")
    return parsed
