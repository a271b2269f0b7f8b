"""Where the ranks of a communicator run."""

from __future__ import annotations

from typing import cast

from mpi4py import MPI

from redistrib.theory.topology import Topology


def topology(comm: MPI.Intracomm | None = None) -> Topology:
    """The hosts of the ranks of a communicator; ranks that can share memory are on one host; collective.

    It is the `topology` argument of `redistrib.synthesize`.

    Args:
        comm: the communicator; `COMM_WORLD` by default.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    host = split(comm)
    numbers = hosts(comm, host)
    host.Free()
    return Topology.of(numbers)


def split(comm: MPI.Intracomm) -> MPI.Intracomm:
    """The ranks that share this rank's memory; collective."""
    return cast(MPI.Intracomm, comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank))


def hosts(comm: MPI.Intracomm, host: MPI.Intracomm) -> list[int]:
    """`[ranks]` the host of every rank, numbered by its lowest rank; collective over both communicators."""
    lowest: int = host.allreduce(comm.rank, MPI.MIN)
    return comm.allgather(lowest)
