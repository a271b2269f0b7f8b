"""Where the ranks of a communicator run."""

from __future__ import annotations

from typing import cast

from mpi4py import MPI

from redistrib.theory.topology import Topology


def topology(comm: MPI.Intracomm | None = None) -> Topology:
    """The ranks of a communicator by the hosts that they run on, ranks that can share memory on one; collective.

    Hand it to `redistrib.synthesize(topology=...)`.

    Args:
        comm: the communicator; `COMM_WORLD` by default.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    host = split(comm)
    found = hosts(comm, host)
    host.Free()
    return Topology.of(found)


def split(comm: MPI.Intracomm) -> MPI.Intracomm:
    """The ranks that share this rank's memory; collective."""
    return cast(MPI.Intracomm, comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank))


def hosts(comm: MPI.Intracomm, host: MPI.Intracomm) -> list[int]:
    """Number of every rank's host, the lowest rank on it; collective over both communicators."""
    lowest: int = host.allreduce(comm.rank, MPI.MIN)
    return comm.allgather(lowest)
