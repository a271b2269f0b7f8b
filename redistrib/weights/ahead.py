"""Batches on devices under the layouts of reading; a thread puts the next one there while the caller moves the last."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from functools import partial
from types import TracebackType

import jax
import numpy as np

from redistrib.backends.jax.meetings import Meeting
from redistrib.errors import CommunicatorError
from redistrib.plans.dtypes import dtype_of
from redistrib.weights.batches import Batch, CutTensor, SmallTensors
from redistrib.weights.reading import PieceReader

ReadBatch = tuple[list[jax.Array], jax.Array | None]  # tensors that are cut, and the bytes of small ones


class BatchesAhead:
    """Batches as arrays under the layouts of reading, in order.

    A thread takes pieces from the reader and meets the other processes, one batch ahead of the caller. A batch is there
    once every process has read its part of it.

    Args:
        meeting: of the processes, in a channel of its own.
        batches: in the order of the reader's pieces.
        reader: of these pieces.
    """

    def __init__(self, meeting: Meeting, batches: Sequence[Batch], reader: PieceReader) -> None:
        self._meeting, self._batches, self._reader = meeting, batches, reader
        self._wide = jax.dtypes.canonicalize_dtype("float64") == "float64"
        self._stopped = False
        self._room = threading.Semaphore(1)
        self._ready: queue.SimpleQueue[ReadBatch | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="redistrib-batches", daemon=True)

    def __enter__(self) -> BatchesAhead:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        # Nobody waits for the thread: it tells the other processes, which may arrive much later.
        self._stopped = True
        self._room.release()

    def next(self) -> ReadBatch:
        """The tensors of the next batch that are cut, and the bytes of its small ones.

        Raises:
            RedistribError: the error of the first process that has one, in all of them.
        """
        arrays = self._ready.get()
        self._room.release()
        if isinstance(arrays, BaseException):
            raise arrays
        return arrays

    def _run(self) -> None:
        try:
            with jax.enable_x64(self._wide):  # a setting of each thread
                for batch in self._batches:
                    self._room.acquire()
                    arrays, _ = self._meeting.agreed(partial(self._on_devices, batch))
                    self._ready.put(arrays)
        except BaseException as error:
            self._ready.put(error)

    def _on_devices(self, batch: Batch) -> ReadBatch:
        """The part of a batch that this process has read, on its devices."""
        if self._stopped:
            raise CommunicatorError("the load was broken off in this process; see the error there")
        arrays = [_cut_array(tensor, self._reader) for tensor in batch.cut]
        return arrays, None if batch.small is None else _blob(batch.small, self._reader)


def _cut_array(tensor: CutTensor, reader: PieceReader) -> jax.Array:
    dtype, tiles = dtype_of(tensor.stored.dtype), []
    for device, piece in tensor.pieces.items():
        tiles.append(jax.device_put(reader.next().view(dtype).reshape(piece.shape), device))
        tiles[-1].block_until_ready()
        reader.release(piece.nbytes)
    return jax.make_array_from_single_device_arrays(tensor.layout.shape, tensor.layout.sharding, tiles, dtype=dtype)


def _blob(small: SmallTensors, reader: PieceReader) -> jax.Array:
    tiles = []
    for device, piece in small.pieces.items():
        tiles.append(jax.device_put(reader.next(), device))
        tiles[-1].block_until_ready()
        reader.release(piece.nbytes)
    shape = (small.part * small.sharding.mesh.size,)
    return jax.make_array_from_single_device_arrays(shape, small.sharding, tiles, dtype=np.uint8)
