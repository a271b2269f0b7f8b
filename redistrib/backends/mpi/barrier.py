"""Where the ranks of one host wait for one another: flags in memory that they share.

An MPI barrier is several rounds of messages, and a rank that waits in it may keep its core while others need it. Here
every rank writes one word and waits, yielding its core, until it sees those of all others.

Kept because whole redistributions take 0.7 to 0.8 of the time they take with `Allreduce` in its place, on 4 and 8 ranks
that share 2 cores, in medians of paired ratios (docs/mpi.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

_yield: Callable[[], object] = getattr(os, "sched_yield", lambda: time.sleep(0))

# Looks at the flags between two calls that let MPI make progress: others may wait for a message that is under way.
_LOOKS = 32

# Words of a rank: epoch and message of even barriers, then of odd ones, and the rest of two cache lines.
_ROW = 16


class SharedMemoryBarrier:
    """A barrier of the ranks of a communicator that share memory; made, used and closed by all together."""

    def __init__(self, host: MPI.Intracomm) -> None:
        self.host = host
        self.window = MPI.Win.Allocate_shared(8 * _ROW * host.size if host.rank == 0 else 0, 1, comm=host)
        self.window.Lock_all(MPI.MODE_NOCHECK)
        memory = np.asarray(self.window.Shared_query(0)[0]).view(np.int64).reshape(host.size, _ROW)
        if host.rank == 0:
            memory[:] = 0
        self.window.Sync()
        host.Barrier()
        self.window.Sync()
        self._memory = memory
        self._own = memory[host.rank]
        self._epoch = 0

    def agree(self, word: int) -> int:
        """Wait for all ranks, and return the bitwise and of their words.

        What a rank wrote to shared memory before is seen by all after. Even and odd barriers have flags of their own:
        no rank can be two barriers ahead of one that still reads.
        """
        self._epoch += 1
        at = self._epoch % 2 * 2
        self._own[at + 1] = word
        self.window.Sync()
        self._own[at] = self._epoch
        arrived = self._memory[:, at]
        looks = 0
        while int(arrived.min()) < self._epoch:
            looks += 1
            if looks % _LOOKS == 0:
                self.host.Iprobe()
            _yield()
        self.window.Sync()
        return int(np.bitwise_and.reduce(self._memory[:, at + 1]))

    def close(self) -> None:
        """Give the memory back."""
        del self._own, self._memory
        self.window.Unlock_all()
        self.window.Free()
