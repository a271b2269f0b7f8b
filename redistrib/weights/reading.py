"""Pieces of tensors, read from files by a thread ahead of their use, within a budget of host memory."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from redistrib.errors import CommunicatorError, MemoryLimitError, WeightsFileError
from redistrib.theory.boxes import Box, runs_of
from redistrib.weights.headers import StoredTensor
from redistrib.weights.open_files import LocalFile
from redistrib.weights.opening import OpenWeights

AHEAD_BYTES = 256 * 2**20  # bytes that are read before they are taken, by default
JOINED_GAP = 64 * 2**10  # runs with gaps of at most so many bytes are read at once
JOINED_BYTES = 8 * 2**20  # of runs that are read at once, gaps included


Opened = Callable[[int], LocalFile]  # a file by its number


@dataclass(frozen=True)
class BoxPiece:
    """A box of a tensor that this process reads.

    Attributes:
        tensor: the tensor in its file.
        box: the part of it.
        shape: of the array that begins with the box; zeros fill the rest.
    """

    tensor: StoredTensor
    box: Box
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.tensor.itemsize

    @property
    def read_bytes(self) -> int:
        """Bytes of the box."""
        return self.box.volume * self.tensor.itemsize

    @property
    def scratch_bytes(self) -> int:
        """Bytes of memory besides the array: the box if it is padded, and runs read at once with their gaps."""
        padded = 0 if self.box.size == self.shape else self.read_bytes
        starts, length = runs_of(self.tensor.shape, self.box)
        stride = self.tensor.itemsize * (int(starts[1] - starts[0]) if len(starts) > 1 else 0)
        return padded + runs_at_once(len(starts), length * self.tensor.itemsize, stride) * stride

    def read(self, opened: Opened) -> np.ndarray:
        """The bytes of the array, as a flat array.

        Raises:
            EOFError, OSError: if the file ends too early, or cannot be read.
        """
        return _read_box(opened(self.tensor.file), self)

    def by_tensor(self, buffer: np.ndarray) -> Iterator[tuple[StoredTensor, np.ndarray]]:
        """The tensor, and its bytes in what was read."""
        yield self.tensor, buffer


@dataclass(frozen=True)
class PartsPiece:
    """Parts of several tensors that this process reads end to end.

    Attributes:
        parts: for each part the tensor, the first byte within it, and the number of bytes.
        nbytes: of the array; zeros fill the rest.
    """

    parts: tuple[tuple[StoredTensor, int, int], ...]
    nbytes: int

    @property
    def scratch_bytes(self) -> int:
        """None: parts are read to their places."""
        return 0

    @property
    def tensor(self) -> StoredTensor:
        """The first tensor, for messages."""
        return self.parts[0][0]

    @property
    def read_bytes(self) -> int:
        """Bytes of the parts."""
        return sum(length for _, _, length in self.parts)

    def read(self, opened: Opened) -> np.ndarray:
        """The bytes of the parts; raises as `BoxPiece.read` does."""
        buffer, place = np.zeros(self.nbytes, np.uint8), 0
        for tensor, start, length in self.parts:
            _fill(opened(tensor.file), buffer[place : place + length], tensor.start + start)
            place += length
        return buffer

    def by_tensor(self, buffer: np.ndarray) -> Iterator[tuple[StoredTensor, np.ndarray]]:
        """Each tensor, and its bytes in what was read."""
        place = 0
        for tensor, _, length in self.parts:
            yield tensor, buffer[place : place + length]
            place += length


Piece = BoxPiece | PartsPiece


class PieceReader:
    """Reads pieces in order, in a thread, while earlier pieces are taken.

    Args:
        weights: the files of the tensors, open until the reader ends.
        pieces: to read, in order.
        memory_limit: the most bytes that are read and not yet released; None for `AHEAD_BYTES`.

    Raises:
        MemoryLimitError: if one piece is larger than the limit.
    """

    def __init__(self, weights: OpenWeights, pieces: Sequence[Piece], memory_limit: int | None) -> None:
        largest = max((piece.nbytes + piece.scratch_bytes for piece in pieces), default=0)
        if memory_limit is not None and largest > memory_limit:
            raise MemoryLimitError(memory_limit, largest)
        self._weights, self._pieces = weights, pieces
        self._most_bytes = max(AHEAD_BYTES if memory_limit is None else memory_limit, largest)
        self._used = 0
        self._changed = threading.Condition()
        self._stopped = False
        self._ready: queue.SimpleQueue[np.ndarray | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="redistrib-reader", daemon=True)

    def __enter__(self) -> PieceReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def next(self) -> np.ndarray:
        """The bytes of the next piece; waits until they have been read.

        Raises:
            WeightsFileError: if they cannot be read.
        """
        result = self._ready.get()
        if isinstance(result, BaseException):
            self._ready.put(result)  # for the next call too
            raise result
        return result

    def release(self, size: int) -> None:
        """Report that so many bytes are no longer in host memory."""
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            for buffer in self._buffers():
                self._ready.put(buffer)
                del buffer  # so that its taker can free it
            if self._stopped:  # ends the wait of `next`
                raise CommunicatorError("reading was broken off in this process; see the error there")
        except BaseException as error:
            self._ready.put(error)

    def _buffers(self) -> Iterator[np.ndarray]:
        for piece in self._pieces:
            scratch = piece.scratch_bytes
            if not self._reserve(piece.nbytes + scratch):
                return
            try:
                buffer = piece.read(self._weights.__getitem__)
                self._check(piece, buffer)
                self.release(scratch)
                yield buffer
                del buffer
            except EOFError:
                raise self._error(piece.tensor, "the file ends before it does; it shrank while it was read") from None
            except OSError as error:
                raise self._error(piece.tensor, f"cannot be read: {error.strerror or error}") from None

    def _check(self, piece: Piece, buffer: np.ndarray) -> None:
        """Refuse what was read from another version of a file than its header, and bytes that are no values."""
        for number in {tensor.file for tensor, _ in piece.by_tensor(buffer)}:
            self._weights.check_unchanged(number)
        for tensor, data in piece.by_tensor(buffer):
            if tensor.dtype == "bool" and data.size and data.max() > 1:
                raise self._error(
                    tensor, f"it is of booleans and has a byte {data.max()}; write 0 or 1, or store it as U8"
                )

    def _error(self, tensor: StoredTensor, reason: str) -> WeightsFileError:
        return WeightsFileError(str(self._weights.files.path(tensor.file)), tensor.name, reason)

    def _reserve(self, size: int) -> bool:
        """Wait until there is room for so many bytes; False if reading was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._used + size <= self._most_bytes)
            self._used += size
            return not self._stopped


def _read_box(file: LocalFile, piece: BoxPiece) -> np.ndarray:
    size, inside = piece.tensor.itemsize, piece.box.size
    starts, length = runs_of(piece.tensor.shape, piece.box)
    is_front = inside == piece.shape
    buffer = (np.empty if is_front else np.zeros)(piece.nbytes, np.uint8)
    target = buffer if is_front else np.empty(piece.read_bytes, np.uint8)
    _read_runs(file, target, piece.tensor.start + starts * size, length * size)
    if not is_front:
        front = tuple(slice(count) for count in inside)
        rows = buffer.reshape(*piece.shape[:-1], piece.shape[-1] * size)
        rows[(*front[:-1], slice(inside[-1] * size))] = target.reshape(*inside[:-1], inside[-1] * size)
    return buffer


def runs_at_once(count: int, length: int, stride: int) -> int:
    """The number of runs that are read at once with their gaps; 0 if each is read to its place by itself.

    Args:
        count: number of runs.
        length: bytes of a run.
        stride: bytes from the start of a run to the start of the next.
    """
    if count < 2 or not 0 < stride - length <= JOINED_GAP:
        return 0
    return max(1, min(JOINED_BYTES, count * length) // stride)


def _read_runs(file: LocalFile, buffer: np.ndarray, starts: np.ndarray, length: int) -> None:
    """Fill a buffer with runs of one length."""
    if not length:
        return
    together = runs_at_once(len(starts), length, int(starts[1] - starts[0]) if len(starts) > 1 else 0)
    if not together:
        for k, start in enumerate(starts.tolist()):
            _fill(file, buffer[k * length : (k + 1) * length], start)
        return
    rows = buffer.reshape(len(starts), length)
    for k in range(0, len(starts), together):
        group = starts[k : k + together]
        span = np.empty(int(group[-1] - group[0]) + length, np.uint8)
        _fill(file, span, int(group[0]))
        offsets = (group - group[0]).tolist()
        for row, offset in zip(rows[k : k + together], offsets, strict=True):
            row[:] = span[offset : offset + length]
        del span


def _fill(file: LocalFile, buffer: np.ndarray, start: int) -> None:
    view, place = buffer.data, 0
    while place < len(view):
        count = file.read_into(view[place:], start + place)
        if count == 0:
            raise EOFError
        place += count
