"""Headers of safetensors files: the place, shape and dtype of every tensor, checked before use.

The rules are those of the package `safetensors`, and names may not be repeated. That package maps a file into memory,
which ends the process if the file shrinks meanwhile, and it opens the file by its name, where another may be by then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from redistrib.errors import WeightsFileError
from redistrib.errors.base import shown
from redistrib.plans.dtypes import itemsize_of
from redistrib.weights.open_files import StorageFile, whole

# Element types by their names in safetensors. Those below one byte (F4, F6) are refused.
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "C64": "complex64",
}  # fmt: skip
MOST_HEADER_BYTES = 100_000_000  # safetensors refuses longer headers
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


def ties_by_others(metadata: Mapping[str, str], tensors: Iterable[str]) -> dict[str, str]:
    """The texts of metadata that name tied tensors as other programs write them: one name as key, the other as text.

    `format` is no such name: it says which library wrote the file.
    """
    names = set(tensors)
    return {
        name: other for name, other in metadata.items() if other in names and name not in names and name != "format"
    }


def ties_of(path: Path, metadata: Mapping[str, str], tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """The tied names of a file, each with the tensor that it shares."""
    if TIED not in metadata:
        return ties_by_others(metadata, tensors)
    tied = parsed_object(path, metadata[TIED].encode(), f"the text of {TIED}")
    for name, other in tied.items():
        if name in tensors or not isinstance(other, str) or other not in tensors:
            raise WeightsFileError(
                str(path), name, f"{TIED} ties it to {other!r}; the first may be no tensor, the second must be one"
            )
    return tied


def bytes_of(path: Path, file: StorageFile, start: int, size: int) -> bytes:
    try:
        return whole(file, start, size)
    except OSError as error:
        raise WeightsFileError(str(path), "", f"cannot be read: {error.strerror or error}") from None


def read_header(
    path: Path, file: StorageFile, size: int
) -> tuple[dict[str, tuple[int, tuple[int, ...], str]], dict[str, str]]:
    """First byte, shape and dtype of each tensor of a file; and its metadata."""
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
        if start != place or stop - start != math.prod(shape) * itemsize_of(dtype):
            raise WeightsFileError(
                str(path),
                name,
                f"its bytes are {start:,} to {stop:,}, and a {dtype} of shape {shape} from {place:,} on is expected; "
                "the file is damaged, write it again",
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
    if not isinstance(dtype, str) or dtype not in DTYPES:
        names = ", ".join(sorted(DTYPES))
        raise WeightsFileError(str(path), name, f"its dtype {shown(dtype)} is none of {names}; convert it first")
    return tuple(shape), DTYPES[dtype]


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
