"""Which process writes which box of which tensor, and where in the files that is."""

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
SPLIT_BYTES = 2**20  # of a box from which on its holders each write a part of it
_ALIGNED = 8  # bytes to a multiple of which a header is filled up with blanks


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
    """Files for tensors, filled one after the other, and the index; an empty text where one file has them all.

    Args:
        leaves: arrays with their names.
        tied: names that stand for one of these.
        metadata: texts for the headers.
        shard_bytes: bytes of tensors in a file, unless one tensor has more.
        alone: the name of the file where it is the only one.
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
        texts = metadata | {name: kept for name, kept in tied.items() if kept in dict(shard)}
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
    """For each tensor the boxes of it that this process writes; those of all processes have every element once.

    The holders of a large box write a part of it each; a small one is written by that which has least to write.
    """
    busy = dict.fromkeys(processes, 0)
    result = []
    for tensor in tensors:
        mine = []
        for box, holders in _holders(tensor, processes):
            for part, process in _shared(box, holders, busy, tensor.stored.itemsize):
                busy[process] += math.prod(shape_of(part)) * tensor.stored.itemsize
                if process == jax.process_index():
                    mine.append(part)
        result.append(mine)
    return result


def _holders(tensor: NewTensor, processes: Sequence[int]) -> list[tuple[Box, list[int]]]:
    """The different boxes of a tensor, with the processes that have each."""
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
    """Refuse what a safetensors file cannot have.

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
