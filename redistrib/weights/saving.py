"""`save`: arrays into safetensors files; a process that holds a byte writes it, once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from redistrib.backends.jax.meetings import Meeting, processes_of, raised_in_all
from redistrib.digests import digest_of_parts
from redistrib.errors import LeafError, WeightsFileError
from redistrib.resharding.sharing import buffers
from redistrib.sizes import parse_size
from redistrib.theory.boxes import Box, boxes_of, rows_around, runs_of
from redistrib.weights.folders import ALONE, path_of
from redistrib.weights.headers import StoredTensor
from redistrib.weights.names import Rename, named_leaves, renamed
from redistrib.weights.placing import NewFiles, saying_path, temporary_folder
from redistrib.weights.writing import (
    NewFile,
    check_leaf,
    checked_metadata,
    index_of,
    new_files,
    owned_boxes,
)

JOINED_BYTES = 256 * 2**20  # of the boxes of a tensor that are joined on the host and written as whole rows


def save(
    tree: Any,
    path: str | Path,
    *,
    rename: Rename = None,
    shard_bytes: int | str = "5GB",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Save arrays in safetensors files.

    A process that holds a byte writes it, once, to its place in the file: nothing is gathered. Files take their places
    when all of them are complete, so a crash leaves the earlier weights of the path, or the new ones. With several
    processes of a `jax.distributed` job, each process that owns a device of the arrays makes the same call, and all see
    the folder; a process that owns none returns at once. See docs/weights.md.

    Args:
        tree: any pytree of arrays. The name of a tensor is the keys on the path to its leaf, joined by dots. Leaves
            that are the same array, or share a buffer, are written once; the metadata name the tensor that they share.
        path: a file whose name ends in `.safetensors`, or a folder, which is created if it does not exist. A folder
            gets `model.safetensors`, or several files and their index, in the place of such files that it has.
        rename: from the name of a leaf to that of its tensor in the files: a mapping, beside which other names stay, or
            a function of the name. None leaves a leaf out. It is the inverse of the `rename` of `load`.
        shard_bytes: bytes of the tensors in one file, unless one has more: an integer or a text such as `"5GB"`.
        metadata: texts for the headers; by default `{"format": "pt"}`, which some readers require.

    Raises:
        LeafError: for a leaf that is no array, has a mask, or is of an element type or a name that the format lacks; if
            `rename` makes two names one.
        WeightsFileError: for metadata that are no texts; in every process, if a file cannot be written. No file has
            changed then, unless the error says so.
        CommunicatorError: if processes make different calls, or a process makes none.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save({"w": jnp.ones((8, 8))}, f"{folder}/w.safetensors")
    ...     print([path.name for path in Path(folder).iterdir()])
    ['w.safetensors']
    """
    with raised_in_all("save", lambda: processes_of(tree)):
        leaves, _ = named_leaves(tree)
        names = renamed([name for name, _, _ in leaves], rename)
        for name, where, value in leaves:
            if name in names:
                check_leaf(where, names[name], value)
        named = [(names[name], value) for name, _, value in leaves if name in names]
        if not named:
            raise LeafError("", "the tree has no arrays; there is nothing to save")
        given = path_of(path)
        texts = {"format": "pt"} if metadata is None else checked_metadata(given, metadata)
        is_file = given.suffix == ".safetensors"
        # Absolute, so that all files of a save go to one folder, though the process changes its own meanwhile.
        folder = Path(os.path.abspath(given.parent if is_file else given))
        distinct, tied = _without_tied(named)
        alone = given.name if is_file else ALONE
        size = parse_size(shard_bytes)
        files, tensors = new_files(distinct, tied, texts, 2**62 if is_file else size, given, alone)
        devices: set[Any] = set()
        for _, value in distinct:
            devices |= value.sharding.device_set if isinstance(value, jax.Array) else set()
        processes = sorted({device.process_index for device in devices})
    if processes and jax.process_index() not in processes:
        return
    meeting = Meeting(processes or [jax.process_index()], "save")
    heads = (file.head for file in files)
    call = digest_of_parts([str(path), *heads, *(_where(value) for _, value in distinct)])
    _, calls = meeting.agreed(lambda: None, note=lambda _: call)
    if len(set(calls)) > 1:
        raise WeightsFileError(str(path), "", "the processes save different arrays; make the same call everywhere")
    boxes = owned_boxes(tensors, meeting.processes)
    index = None if is_file else partial(index_of, [stored for stored, _ in tensors])
    with ExitStack() as stack:  # the first process creates the files and puts them into their places

        def begin() -> NewFiles | None:
            return stack.enter_context(NewFiles(folder, files, index)) if meeting.leads else None

        created, notes = meeting.agreed(begin, note=lambda created: created.token if created else "")
        temporary = temporary_folder(folder, notes[0])
        meeting.agreed(lambda: _write(temporary, folder, files, tensors, boxes))
        meeting.agreed(lambda: created.place() if created else None)


def _write(
    temporary: Path,
    folder: Path,
    files: Sequence[NewFile],
    tensors: Sequence[tuple[StoredTensor, Any]],
    boxes: Sequence[Sequence[Box]],
) -> None:
    """Write the boxes of this process into the files of a temporary folder."""
    for number, file in enumerate(files):
        with saying_path(folder / file.name):
            descriptor = os.open(temporary / file.name, os.O_WRONLY)
            try:
                for (stored, value), parts in zip(tensors, boxes, strict=True):
                    if stored.file == number and parts:
                        _write_tensor(descriptor, stored, value, parts)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _write_tensor(descriptor: int, stored: StoredTensor, value: Any, boxes: Sequence[Box]) -> None:
    hull = rows_around(stored.shape, boxes)
    joined = len(boxes) > 1 and hull.volume == sum(box.volume for box in boxes)
    if joined and hull.volume * stored.itemsize <= JOINED_BYTES:
        whole = np.empty(hull.size, _host_dtype(value))
        for box in boxes:
            whole[box.slices(hull)] = _values(value, box)
        _write_box(descriptor, stored, hull, whole)
        return
    for box in boxes:
        _write_box(descriptor, stored, box, _values(value, box))


def _host_dtype(value: Any) -> Any:
    return np.dtype(value.dtype)


def _values(value: Any, box: Box) -> np.ndarray:
    """A box of an array, on the host."""
    if not isinstance(value, jax.Array):
        return np.asarray(value)[box.slices()]
    for shard in value.addressable_shards:
        tile = Box.at(shard.index, value.shape)
        if box.lies_in(tile):
            return np.asarray(shard.data)[box.slices(tile)]
    raise AssertionError("the box is on a device of this process")


def _write_box(descriptor: int, stored: StoredTensor, box: Box, values: np.ndarray) -> None:
    starts, length = runs_of(stored.shape, box)
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    if stored.dtype == "bool" and data.size and data.max() > 1:  # true in NumPy; readers want 1
        data = (data != 0).view(np.uint8)
    size = length * stored.itemsize
    for k, start in enumerate(starts.tolist()):
        _write_all(descriptor, data[k * size : (k + 1) * size].data, stored.start + start * stored.itemsize)


def _write_all(descriptor: int, data: memoryview, start: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, start)
        data, start = data[count:], start + count


def _without_tied(leaves: Sequence[tuple[str, Any]]) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """Each array once, and for each other name the name of the array that it shares.

    Names share an array if it is one Python object, or, within a process, if the buffers are the same.
    """
    distinct: list[tuple[str, Any]] = []
    first: dict[Any, str] = {}
    tied: dict[str, str] = {}
    for name, value in leaves:
        keys: list[Any] = [id(value)]
        if isinstance(value, jax.Array) and value.is_fully_addressable and value.size:
            keys.append((value.shape, str(value.dtype), tuple(buffers(value))))
        shared = next((first[key] for key in keys if key in first), None)
        if shared is None:
            distinct.append((name, value))
        else:
            tied[name] = shared
        for key in keys:
            first.setdefault(key, shared or name)
    return distinct, tied


def _where(value: Any) -> str:
    """The box of each device, as text."""
    if not isinstance(value, jax.Array):
        return str(np.shape(value))
    boxes = boxes_of(value.sharding, value.shape)
    return str(sorted((device.id, box.edges) for device, box in boxes.items()))
