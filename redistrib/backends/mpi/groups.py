"""The communicators of a plan: hosts, groups and neighbourhoods, each made once."""

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
    """Sub-communicators of one communicator.

    Attributes:
        host: the ranks that share this rank's memory.
        hosts: number of every rank's host: the lowest rank on it.
        barrier: where the ranks of this host wait for one another.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.host = hosts.split(comm)
        self._host_rank = {rank: k for k, rank in enumerate(self.host.allgather(comm.rank))}
        self.hosts = hosts.hosts(comm, self.host)
        self._made: dict[object, MPI.Intracomm] = {}
        self.barrier = SharedMemoryBarrier(self.host)

    def agree(self, word: int) -> int:
        """Wait for all ranks, and return the bitwise and of their words, of at most 63 bits; collective."""
        if self.host.size == self.comm.size:
            return self.barrier.agree(word)
        words = np.array([word], np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, words, MPI.BAND)
        return int(words[0])

    def host_rank(self, rank: int) -> int:
        """A rank's number among the ranks of this host."""
        return self._host_rank[rank]

    def of(self, step: AllGather | AllToAll | AllReduce | ReduceScatter, device: int) -> MPI.Intracomm:
        """This rank's group in a step over groups; collective. Steps over the same groups share one communicator."""
        key = step.groups.shape, step.groups.tobytes()
        if key not in self._made:
            order = step.group_of(device)
            self._made[key] = cast(MPI.Intracomm, self.comm.Split(min(order), order.index(device)))
        return self._made[key]

    def around(self, stage: Stage) -> MPI.Distgraphcomm:
        """The ranks that this rank sends to and receives from in a stage, as neighbours; collective."""
        key = stage.step
        if key not in self._made:
            self._made[key] = self.comm.Create_dist_graph_adjacent(*neighbours(stage))
        return cast(MPI.Distgraphcomm, self._made[key])

    def among(self, groups: Sequence[Sequence[int]]) -> MPI.Intracomm | None:
        """The communicator of this rank's group, of several disjoint ones; None if it is in none; collective.

        Its ranks are the members, in their order.
        """
        key = tuple(map(tuple, groups))
        if key not in self._made:
            rank = self.comm.rank
            found = next(((k, group.index(rank)) for k, group in enumerate(key) if rank in group), None)
            color, order = found or (MPI.UNDEFINED, 0)
            self._made[key] = cast(MPI.Intracomm, self.comm.Split(color, order))
        made = self._made[key]
        return None if made == MPI.COMM_NULL else made

    def free(self) -> None:
        """Release them all; collective."""
        for made in self._made.values():
            if made != MPI.COMM_NULL:
                made.Free()
        self._made.clear()
        self.barrier.close()
        self.host.Free()
