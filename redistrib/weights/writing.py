"""The files of a save, and the boxes of tensors that each process writes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from redistrib.errors import LeafError
from redistrib.plans.dtypes import itemsize_of
from redistrib.weights.headers import DTYPES, PREFIX_BYTES, StoredTensor
from redistrib.weights.runs import Box, box_of, shape_of

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


@dataclass(frozen=True)
class NewTensor:
    """A tensor to be written.

    Attributes:
        stored: its place in a file.
        value: the array.
    """

    stored: StoredTensor
    value: Any


def new_files(
    leaves: Sequence[tuple[str, Any]], tied: dict[str, str], metadata: dict[str, str], shard_bytes: int, alone: str
) -> tuple[list[NewFile], list[NewTensor], str]:
    """The files of tensors, filled one after the other, and the text of the index, empty if there is one file.

    Args:
        leaves: arrays with their names.
        tied: further names, each with the name of the tensor that it shares.
        metadata: texts for the headers.
        shard_bytes: bytes of tensors in a file, unless one tensor has more.
        alone: the name of the file if there is only one.
    """
    sizes = {name: math.prod(np.shape(value)) * itemsize_of(str(value.dtype)) for name, value in leaves}
    shards: list[list[tuple[str, Any]]] = [[]]
    filled = 0
    for name, value in leaves:
        if shards[-1] and filled + sizes[name] > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append((name, value))
        filled += sizes[name]
    files, tensors = [], []
    index: dict[str, str] = {}
    for number, shard in enumerate(shards):
        file = alone if len(shards) == 1 else f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        # The larger elements come first, so that every tensor is aligned.
        ordered = sorted(shard, key=lambda leaf: -itemsize_of(str(leaf[1].dtype)))
        header: dict[str, Any] = {}
        texts = metadata | {name: other for name, other in tied.items() if other in dict(shard)}
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
            index[name] = file
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGNED)
        head = len(text).to_bytes(PREFIX_BYTES, "little") + text
        files.append(NewFile(file, head, len(head) + place))
        for name, value in ordered:
            start = len(head) + header[name]["data_offsets"][0]
            stored = StoredTensor(name, number, start, tuple(np.shape(value)), str(value.dtype))
            tensors.append(NewTensor(stored, value))
    if len(files) == 1:
        return files, tensors, ""
    whole = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": index}
    return files, tensors, json.dumps(whole, indent=2) + "\n"


def owned_boxes(tensors: Iterable[NewTensor], processes: Sequence[int]) -> list[list[Box]]:
    """For each tensor the boxes that this process writes; over all processes every element occurs once.

    Each holder of a large box writes a part of it; the holder with least to write so far writes a small box.
    """
    busy = dict.fromkeys(processes, 0)
    result = []
    for tensor in tensors:
        written = []
        for box, holders in _holders(tensor, processes):
            for part, process in _shared(box, holders, busy, tensor.stored.itemsize):
                busy[process] += math.prod(shape_of(part)) * tensor.stored.itemsize
                if process == jax.process_index():
                    written.append(part)
        result.append(written)
    return result


def _holders(tensor: NewTensor, processes: Sequence[int]) -> list[tuple[Box, list[int]]]:
    """The distinct boxes of a tensor, each with the processes that hold it."""
    shape = tensor.stored.shape
    if not isinstance(tensor.value, jax.Array):
        return [(tuple((0, size) for size in shape), [min(processes)])]
    holders: dict[Box, set[int]] = {}
    device: Any
    for device, index in tensor.value.sharding.devices_indices_map(shape).items():
        holders.setdefault(box_of(index or (), shape), set()).add(device.process_index)
    return [(box, sorted(holders[box])) for box in sorted(holders)]


def _shared(box: Box, holders: Sequence[int], busy: dict[int, int], itemsize: int) -> list[tuple[Box, int]]:
    size = math.prod(shape_of(box)) * itemsize
    if size < SPLIT_BYTES or len(holders) == 1 or not box:
        return [(box, min(holders, key=lambda process: (busy[process], process)))]
    dim = max(range(len(box)), key=lambda k: (min(shape_of(box)[k], len(holders)), -k))
    start, stop = box[dim]
    edges = [start + (stop - start) * k // len(holders) for k in range(len(holders) + 1)]
    return [
        ((*box[:dim], (edges[k], edges[k + 1]), *box[dim + 1 :]), process)
        for k, process in enumerate(holders)
        if edges[k] < edges[k + 1]
    ]


def check_leaf(name: str, value: Any) -> None:
    """Refuse a value that safetensors cannot store.

    Raises:
        LeafError: with the name.
    """
    if isinstance(value, jax.core.Tracer) or not isinstance(value, jax.Array | np.ndarray | np.generic):
        raise LeafError(name, f"{type(value).__name__} is no array with values; save arrays, outside jit")
    if isinstance(value, jax.Array) and value.is_deleted():
        raise LeafError(name, "the array has been donated or deleted; pass one that is alive")
    if str(value.dtype) not in NAMES:
        raise LeafError(name, f"safetensors has no element type {value.dtype}; convert it to one of {', '.join(NAMES)}")
    if getattr(getattr(getattr(value, "sharding", None), "spec", None), "unreduced", None):
        raise LeafError(name, "its tiles are partial sums; reshard it to a sharding without unreduced= first")
