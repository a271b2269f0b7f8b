"""Memory that the ranks of one host share, and steps as copies straight into it.

Every rank writes its boxes where they belong in the receiver's tile, so each element is read once and written
once: no packing, no staging, no copy inside the MPI library. Results are handed out as NumPy arrays over that
memory, and their place is used again when the last reference to it is gone.

Kept because 4 and 8 ranks of one host take 0.4 to 0.6 of the time of the packed transport and 0.7 to 0.8 of that of
datatypes, in medians of paired ratios (docs/mpi.md).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi.barrier import SharedMemoryBarrier
from redistrib.backends.mpi.transports import Runner
from redistrib.backends.stages import Stage
from redistrib.plans.strided import Bytes, Strided, copy, runs_in_both

# Where Linux keeps shared memory; a container may allow little of it, and writing beyond that kills the process.
SHARED_MEMORY = "/dev/shm"


def free_shared_memory() -> int | None:
    """Bytes of shared memory that this host has left; None where that cannot be told."""
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


class Block:
    """Memory for one result at a time, lent out as arrays.

    Attributes:
        own: the memory.
        free: whether no array over it is in use.
    """

    def __init__(self, own: Bytes) -> None:
        self.own = own
        self.free = True

    def lease(self) -> Bytes:
        """The memory as an array; it counts as in use until the array and all views of it are gone."""
        holder = _Lease(self, self.own)
        self.free = False
        weakref.finalize(holder, setattr, self, "free", True)
        return np.asarray(holder)


class _Lease:
    def __init__(self, block: Block, memory: Bytes) -> None:
        self.block = block  # keeps the memory for as long as anyone looks at it
        self.__array_interface__: dict[str, Any] = dict(memory.__array_interface__)


class SharedTile(Block):
    """One block of memory per rank of a host, which all of them can write.

    Args:
        host: the ranks.
        barrier: to wait in.
        nbytes: of every block.
        own: of these, what this rank has use for, from the first on; by default all.

    Attributes:
        tiles: the block of every rank of the host, by host rank.
    """

    def __init__(self, host: MPI.Intracomm, barrier: SharedMemoryBarrier, nbytes: int, own: int | None = None) -> None:
        self.host = host
        self.barrier = barrier
        self.window = MPI.Win.Allocate_shared(64 + nbytes, 1, comm=host)
        # No lock is ever contended: epochs here only make Sync legal, and NOCHECK keeps them free of messages.
        self.window.Lock_all(MPI.MODE_NOCHECK)
        self.tiles: list[Bytes] = []
        for rank in range(host.size):
            memory = np.asarray(self.window.Shared_query(rank)[0]).view(np.uint8)
            start = -memory.ctypes.data % 64  # a cache line of its own
            self.tiles.append(memory[start : start + nbytes])
        super().__init__(self.tiles[host.rank][:own])

    def put(self, rank: int, to: Strided, source: Bytes, of: Strided) -> None:
        """Write a box into the block of a host rank: the one way in which data leaves a rank here."""
        copy(self.tiles[rank], to, source, of)

    def wait(self) -> None:
        """Make what every rank of the host wrote before this call visible to all after it."""
        self.window.Sync()
        self.barrier.agree(0)
        self.window.Sync()

    def close(self) -> None:
        """Give the memory back; on all ranks of the host together."""
        self.tiles.clear()
        self.window.Unlock_all()
        self.window.Free()


class SharedCopies(Runner):
    """A stage as copies into the other ranks' tiles.

    `place` gives the memory that the stage writes, chosen anew for every call.
    """

    name = "shared"

    def __init__(
        self, stage: Stage, host_rank: Callable[[int], int], place: Callable[[], SharedTile], wait: bool
    ) -> None:
        super().__init__(stage)
        self.place = place
        self.wait = wait
        count = stage.step.devices
        ring = sorted(stage.sends, key=lambda move: (move[0] - stage.device) % count)  # no two start at one
        self.puts: list[tuple[int, Strided, Strided]] = []
        for device, box in ring:
            of, to = runs_in_both(box, stage.source, stage.target(device), stage.itemsize)
            self.puts.append((host_rank(device), of, to))

    def run(self, source: Bytes, target: Bytes) -> None:
        place = self.place()
        if self.wait:  # until the others have sent what they read from the memory written here
            place.wait()
        for rank, of, to in self.puts:
            place.put(rank, to, source, of)
        self._keep(source, target)
        place.wait()
