"""The communicators of a plan: hosts, groups and neighbourhoods, each made once."""

from __future__ import annotations

from functools import cache
from typing import cast

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi import hosts
from redistrib.backends.mpi.barrier import SharedMemoryBarrier
from redistrib.backends.mpi.messages import neighbours
from redistrib.backends.mpi.stage import Stage
from redistrib.plans.steps import AllGather, AllReduce, AllToAll, ReduceScatter


class _Hosts:
    """What plans on one communicator have in common while any of them is open: windows and splits take long to make."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.host = hosts.split(comm)
        self.host_rank = {rank: k for k, rank in enumerate(self.host.allgather(comm.rank))}
        self.hosts = hosts.hosts(comm, self.host)
        self.barrier = SharedMemoryBarrier(self.host)
        self.users = 0

    @classmethod
    def of(cls, comm: MPI.Intracomm) -> _Hosts:
        """Those of a communicator, which remembers them; collective."""
        key = _key()
        found = cast("_Hosts | None", comm.Get_attr(key))
        if found is None or not found.users:
            found = cls(comm)
            comm.Set_attr(key, found)
        found.users += 1
        return found

    def release(self) -> None:
        """Give them back with the last that has use for them; collective."""
        self.users -= 1
        if not self.users:
            self.barrier.close()
            self.host.Free()


@cache
def _key() -> int:
    return MPI.Comm.Create_keyval()


class Groups:
    """Sub-communicators of one communicator.

    Attributes:
        host: the ranks that share this rank's memory.
        hosts: number of every rank's host: the lowest rank on it.
        barrier: where the ranks of this host wait for one another.
    """

    def __init__(self, comm: MPI.Intracomm, given: MPI.Intracomm) -> None:
        """Of a communicator of one's own, a duplicate of that given, which other plans may be for."""
        self.comm = comm
        self._shared = _Hosts.of(given)
        self.host, self.hosts, self.barrier = self._shared.host, self._shared.hosts, self._shared.barrier
        self._made: dict[object, MPI.Intracomm] = {}

    def agree(self, word: int) -> int:
        """Wait for all ranks, and return the bitwise and of their words, of at most 63 bits; collective."""
        if self.host.size == self.comm.size:
            return self.barrier.agree(word)
        words = np.array([word], np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, words, MPI.BAND)
        return int(words[0])

    def host_rank(self, rank: int) -> int:
        """A rank's number among the ranks of this host."""
        return self._shared.host_rank[rank]

    def of(self, stage: Stage, native: bool = False) -> MPI.Intracomm:
        """The group of this rank in a step over groups, or the neighbourhood of an exchange; collective.

        Steps over the same groups share one communicator. Where a reduce-scatter is added up here, its members are
        neighbours.
        """
        step = stage.step
        if isinstance(step, AllGather | AllToAll | AllReduce) or (isinstance(step, ReduceScatter) and native):
            key: object = step.groups.shape, step.groups.tobytes()
            if key not in self._made:
                order = step.group_of(stage.device)
                made = self.comm.Split(min(order), order.index(stage.device))
                self._made[key] = cast(MPI.Intracomm, made)
        else:
            key = step
            if key not in self._made:
                sources, destinations = neighbours(stage)
                self._made[key] = self.comm.Create_dist_graph_adjacent(sources, destinations)
        return self._made[key]

    def free(self) -> None:
        """Release them all; collective."""
        for made in self._made.values():
            made.Free()
        self._made.clear()
        self._shared.release()
