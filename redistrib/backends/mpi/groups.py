"""The communicators of a plan: hosts, groups and neighbourhoods, each created once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi import hosts
from redistrib.backends.mpi.barrier import SharedMemoryBarrier
from redistrib.backends.mpi.transports import neighbours
from redistrib.backends.stages import Stage
from redistrib.plans.steps import AllGather, AllReduce, AllToAll, ReduceScatter


class Groups:
    """The communicators that steps use, all within one communicator.

    Attributes:
        host: the ranks that share this rank's memory.
        hosts: `[ranks]` the host of every rank, numbered by its lowest rank.
        barrier: of the ranks of this host.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.host = hosts.split(comm)
        self._host_rank = {rank: k for k, rank in enumerate(self.host.allgather(comm.rank))}
        self.hosts = hosts.hosts(comm, self.host)
        self._cache: dict[object, MPI.Intracomm] = {}
        self.barrier = SharedMemoryBarrier(self.host)

    def agree(self, word: int) -> int:
        """A barrier that returns the bitwise and of the ranks' words, of at most 63 bits; collective."""
        if self.host.size == self.comm.size:
            return self.barrier.agree(word)
        words = np.array([word], np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, words, MPI.BAND)
        return int(words[0])

    def host_rank(self, rank: int) -> int:
        """The number of a rank among the ranks of this host."""
        return self._host_rank[rank]

    def of(self, step: AllGather | AllToAll | AllReduce | ReduceScatter, device: int) -> MPI.Intracomm:
        """This rank's group in a step over groups; collective. Steps over the same groups share one communicator."""
        key = step.groups.shape, step.groups.tobytes()
        if key not in self._cache:
            order = step.group_of(device)
            self._cache[key] = cast(MPI.Intracomm, self.comm.Split(min(order), order.index(device)))
        return self._cache[key]

    def around(self, stage: Stage) -> MPI.Distgraphcomm:
        """The graph of the ranks that send to one another in a stage; collective."""
        key = stage.step
        if key not in self._cache:
            self._cache[key] = self.comm.Create_dist_graph_adjacent(*neighbours(stage))
        return cast(MPI.Distgraphcomm, self._cache[key])

    def among(self, groups: Sequence[Sequence[int]]) -> MPI.Intracomm | None:
        """The communicator of the one of these disjoint groups that has this rank, else None; collective.

        Its ranks are the members of the group, in their order.
        """
        key = tuple(map(tuple, groups))
        if key not in self._cache:
            rank = self.comm.rank
            place = next(((k, group.index(rank)) for k, group in enumerate(key) if rank in group), None)
            color, order = place or (MPI.UNDEFINED, 0)
            self._cache[key] = cast(MPI.Intracomm, self.comm.Split(color, order))
        comm = self._cache[key]
        return None if comm == MPI.COMM_NULL else comm

    def free(self) -> None:
        """Release all communicators; collective."""
        for comm in self._cache.values():
            if comm != MPI.COMM_NULL:
                comm.Free()
        self._cache.clear()
        self.barrier.close()
        self.host.Free()
