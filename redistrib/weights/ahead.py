"""Batches on devices under the layouts of reading; a thread puts the next one there while the caller moves the last."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from functools import partial
from types import TracebackType

import jax

from redistrib.backends.jax.meetings import Meeting
from redistrib.errors import CommunicatorError
from redistrib.plans.dtypes import dtype_of
from redistrib.weights.batches import Batch, CutArray
from redistrib.weights.reading import PieceReader


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
        self._ready: queue.SimpleQueue[list[jax.Array] | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="redistrib-batches", daemon=True)

    def __enter__(self) -> BatchesAhead:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        # Nobody waits for the thread: it tells the other processes, which may arrive much later.
        self._stopped = True
        self._room.release()

    def next(self) -> list[jax.Array]:
        """The arrays of the next batch.

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

    def _on_devices(self, batch: Batch) -> list[jax.Array]:
        """The part of a batch that this process has read, on its devices."""
        if self._stopped:
            raise CommunicatorError("the load was broken off in this process; see the error there")
        return [_cut_array(array, self._reader) for array in batch]


def _cut_array(array: CutArray, reader: PieceReader) -> jax.Array:
    sharding, shape = array.layout.sharding, array.layout.shape
    dtype, tile, tiles = dtype_of(array.dtype or "uint8"), sharding.shard_shape(shape), []
    for device, piece in array.pieces.items():
        tiles.append(jax.device_put(reader.next().view(dtype).reshape(tile), device))
        tiles[-1].block_until_ready()
        reader.release(piece.nbytes)
    return jax.make_array_from_single_device_arrays(shape, sharding, tiles, dtype=dtype)
