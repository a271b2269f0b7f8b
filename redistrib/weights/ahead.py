"""Batches on devices as they are read, made in a thread while those before them are moved."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from functools import partial
from types import TracebackType

import jax
import numpy as np

from redistrib.errors import CommunicatorError
from redistrib.plans.dtypes import dtype_of
from redistrib.weights.batches import Batch, CutTensor, SmallTensors
from redistrib.weights.meeting import Meeting
from redistrib.weights.reading import PieceReader

Taken = tuple[list[jax.Array], jax.Array | None]  # tensors that are cut, and the bytes of small ones


class BatchesAhead:
    """Batches as arrays under the layouts of reading, in order, each once every process has read its part of it.

    A thread takes what has been read, and meets the other processes, one batch ahead of the caller.

    Args:
        meeting: of the processes.
        batches: in the order of the reader's pieces.
        reader: of these.
    """

    def __init__(self, meeting: Meeting, batches: Sequence[Batch], reader: PieceReader) -> None:
        self._meeting, self._batches, self._reader = meeting, batches, reader
        self._wide = jax.dtypes.canonicalize_dtype("float64") == "float64"
        self._stopped = False
        self._room = threading.Semaphore(1)
        self._done: queue.SimpleQueue[Taken | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="redistrib-batches", daemon=True)

    def __enter__(self) -> BatchesAhead:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        # The thread is not waited for: it tells the other processes, which may be long in coming.
        self._stopped = True
        self._room.release()

    def next(self) -> Taken:
        """The tensors of the next batch that are cut, and the bytes of its small ones.

        Raises:
            RedistribError: the error of the first process that has one, in all of them.
        """
        taken = self._done.get()
        self._room.release()
        if isinstance(taken, BaseException):
            raise taken
        return taken

    def _run(self) -> None:
        try:
            with jax.enable_x64(self._wide):  # such settings are of a thread
                for batch in self._batches:
                    self._room.acquire()
                    taken, _ = self._meeting.agreed(partial(self._taken, batch))
                    self._done.put(taken)
        except BaseException as error:
            self._done.put(error)

    def _taken(self, batch: Batch) -> Taken:
        """What this process has read of a batch."""
        if self._stopped:
            raise CommunicatorError("the load was broken off in this process; see its own error")
        arrays = [_cut_array(each, self._reader) for each in batch.cut]
        return arrays, None if batch.small is None else _blob(batch.small, self._reader)


def _cut_array(each: CutTensor, reader: PieceReader) -> jax.Array:
    dtype, tiles = dtype_of(each.stored.dtype), []
    for device, piece in each.pieces.items():
        tiles.append(jax.device_put(reader.next().view(dtype).reshape(piece.shape), device))
        tiles[-1].block_until_ready()
        reader.release(piece.nbytes)
    return jax.make_array_from_single_device_arrays(each.layout.shape, each.layout.sharding, tiles, dtype=dtype)


def _blob(small: SmallTensors, reader: PieceReader) -> jax.Array:
    tiles = []
    for device, piece in small.pieces.items():
        tiles.append(jax.device_put(reader.next(), device))
        tiles[-1].block_until_ready()
        reader.release(piece.nbytes)
    shape = (small.part * small.sharding.mesh.size,)
    return jax.make_array_from_single_device_arrays(shape, small.sharding, tiles, dtype=np.uint8)
