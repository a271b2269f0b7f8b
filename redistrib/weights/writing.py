"""The files of a save, and the boxes of tensors that each process writes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from redistrib.errors import LeafError, WeightsFileError
from redistrib.errors.base import GONE, MASKED, shown
from redistrib.plans.dtypes import itemsize_of
from redistrib.theory.boxes import Box, boxes_of
from redistrib.weights.folders import shard_names
from redistrib.weights.headers import (
    DTYPES,
    MOST_HEADER_BYTES,
    PREFIX_BYTES,
    RESERVED,
    TIED,
    StoredTensor,
    ties_by_others,
)
from redistrib.weights.names import is_unicode

NAMES = {dtype: name for name, dtype in DTYPES.items()}
SPLIT_BYTES = 2**20  # boxes of at least so many bytes are split among their holders
_ALIGNED = 8  # a header is filled with blanks to a multiple of so many bytes


@dataclass(frozen=True)
class NewFile:
    """A file to be written.

    Attributes:
        name: its name.
        head: the header, with its length before it.
        size: bytes of the whole file.
    """

    name: str
    head: bytes
    size: int


def new_files(
    leaves: Sequence[tuple[str, Any]],
    tied: Mapping[str, str],
    metadata: Mapping[str, str],
    shard_bytes: int,
    path: Path,
    alone: str,
) -> tuple[list[NewFile], list[tuple[StoredTensor, Any]]]:
    """The files of tensors, filled one after the other, and each tensor's place in them with its array.

    Args:
        leaves: arrays with their names.
        tied: further names, each with the name of the tensor that it shares.
        metadata: texts for the headers.
        shard_bytes: bytes of tensors in a file, unless one tensor has more.
        path: of the save, for errors.
        alone: the name of the file if there is only one.

    Raises:
        WeightsFileError: if a header is longer than readers allow.
    """
    sizes = {name: math.prod(np.shape(value)) * itemsize_of(str(value.dtype)) for name, value in leaves}
    # Readers take other texts for tied names too, unless the library's own key says which are.
    says_ties = bool(tied or ties_by_others(metadata, sizes))
    shards: list[list[tuple[str, Any]]] = [[]]
    filled = 0
    for name, value in leaves:
        if shards[-1] and filled + sizes[name] > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append((name, value))
        filled += sizes[name]
    names = [alone] if len(shards) == 1 else shard_names(len(shards), "")
    files: list[NewFile] = []
    tensors: list[tuple[StoredTensor, Any]] = []
    for number, (file, shard) in enumerate(zip(names, shards, strict=True)):
        # The larger elements come first, so that every tensor is aligned.
        ordered = sorted(shard, key=lambda leaf: -itemsize_of(str(leaf[1].dtype)))
        header: dict[str, Any] = {}
        texts = dict(metadata)
        if says_ties:
            texts[TIED] = json.dumps({name: other for name, other in tied.items() if other in dict(shard)})
        if texts:
            header["__metadata__"] = texts
        place = 0
        for name, value in ordered:
            header[name] = {
                "dtype": NAMES[str(value.dtype)],
                "shape": list(np.shape(value)),
                "data_offsets": [place, place + sizes[name]],
            }
            place += sizes[name]
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGNED)
        _check_length(path, f"the header of {file}", len(text))
        head = len(text).to_bytes(PREFIX_BYTES, "little") + text
        files.append(NewFile(file, head, len(head) + place))
        for name, value in ordered:
            start = len(head) + header[name]["data_offsets"][0]
            stored = StoredTensor(name, number, start, tuple(np.shape(value)), str(value.dtype))
            tensors.append((stored, value))
    if len(files) > 1:
        _check_length(
            path, "the index", len(index_of([stored for stored, _ in tensors], shard_names(len(files), "0" * 16)))
        )
    return files, tensors


def index_of(tensors: Iterable[StoredTensor], names: Sequence[str]) -> bytes:
    """The index of files with these names."""
    in_order = sorted(tensors, key=lambda tensor: (tensor.file, tensor.start))
    whole = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in in_order)},
        "weight_map": {tensor.name: names[tensor.file] for tensor in in_order},
    }
    return (json.dumps(whole, indent=2) + "\n").encode()


def _check_length(path: Path, subject: str, length: int) -> None:
    if length > MOST_HEADER_BYTES:
        reason = f"{subject} would have {length:,} bytes, of {MOST_HEADER_BYTES:,} that readers allow"
        raise WeightsFileError(str(path), "", f"{reason}; save fewer tensors, under shorter names or in more files")


def checked_metadata(path: Path, metadata: object) -> dict[str, str]:
    """Texts for the headers, as a caller gives them.

    Raises:
        WeightsFileError: for keys and values that are no texts, or are the library's own.
    """
    if not isinstance(metadata, Mapping):
        raise WeightsFileError(str(path), "", f"metadata {shown(metadata)} is no dict of texts; give one")
    for key, value in metadata.items():
        for text in (key, value):
            if not isinstance(text, str) or not is_unicode(text):
                reason = f"metadata has {shown(key)}: {shown(value)}, and safetensors stores texts alone"
                raise WeightsFileError(str(path), "", f"{reason}; write numbers by str() and others by json.dumps()")
        if key.startswith(RESERVED):
            reason = f"metadata has {shown(key)}, and keys that begin with {RESERVED!r} are the library's"
            raise WeightsFileError(str(path), "", f"{reason}; take another key")
    return dict(metadata)


def owned_boxes(tensors: Iterable[tuple[StoredTensor, Any]], processes: Sequence[int]) -> list[list[Box]]:
    """For each tensor the boxes that this process writes; over all processes every element occurs once.

    Each holder of a large box writes a part of it; the holder with least to write so far writes a small box.
    """
    busy = dict.fromkeys(processes, 0)
    result = []
    for stored, value in tensors:
        written = []
        for box, holders in _holders(value, stored.shape, processes):
            for part, process in _shared(box, holders, busy, stored.itemsize):
                busy[process] += part.volume * stored.itemsize
                if process == jax.process_index():
                    written.append(part)
        result.append(written)
    return result


def _holders(value: Any, shape: tuple[int, ...], processes: Sequence[int]) -> list[tuple[Box, list[int]]]:
    """The distinct boxes of an array, each with the processes that hold it."""
    if not isinstance(value, jax.Array):
        return [(Box.whole(shape), [min(processes)])]
    holders: dict[Box, set[int]] = {}
    for device, box in boxes_of(value.sharding, shape).items():
        holders.setdefault(box, set()).add(device.process_index)
    return [(box, sorted(holders[box])) for box in sorted(holders, key=lambda box: box.start)]


def _shared(box: Box, holders: Sequence[int], busy: dict[int, int], itemsize: int) -> list[tuple[Box, int]]:
    if box.volume * itemsize < SPLIT_BYTES or len(holders) == 1 or not box.size:
        return [(box, min(holders, key=lambda process: (busy[process], process)))]
    dim = max(range(len(box.size)), key=lambda k: (min(box.size[k], len(holders)), -k))
    edges = [box.start[dim] + box.size[dim] * k // len(holders) for k in range(len(holders) + 1)]
    return [
        (box.with_edge(dim, (edges[k], edges[k + 1])), process)
        for k, process in enumerate(holders)
        if edges[k] < edges[k + 1]
    ]


def check_leaf(path: str, name: str, value: Any) -> None:
    """Refuse a value that safetensors cannot store under a name.

    Raises:
        LeafError: with the path of the leaf.
    """
    if isinstance(value, jax.core.Tracer) or not isinstance(value, jax.Array | np.ndarray | np.generic):
        raise LeafError(path, f"{type(value).__name__} is no array with values; save arrays, outside jit")
    if name == "__metadata__":
        raise LeafError(path, "safetensors keeps this name for the texts of a file; rename the leaf")
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise LeafError(
            path, f"safetensors has no keys of random numbers, {value.dtype}; save jax.random.key_data(key)"
        )
    if isinstance(value, np.ma.MaskedArray):
        raise LeafError(path, f"safetensors cannot store a mask; {MASKED}")
    if isinstance(value, jax.Array) and value.is_deleted():
        raise LeafError(path, GONE)
    if str(value.dtype) not in NAMES:
        raise LeafError(path, f"safetensors has no element type {value.dtype}; convert it to one of {', '.join(NAMES)}")
    if getattr(getattr(getattr(value, "sharding", None), "spec", None), "unreduced", None):
        raise LeafError(path, "its tiles are partial sums; reshard it to a sharding without unreduced= first")
