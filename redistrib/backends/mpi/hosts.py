"""Where the ranks of a communicator run."""

from __future__ import annotations

from mpi4py import MPI

from redistrib.theory.topology import Topology


def topology(comm: MPI.Intracomm | None = None) -> Topology:
    """The ranks of a communicator by the hosts that they run on, ranks that can share memory on one; collective.

    Hand it to `redistrib.synthesize(topology=...)`.

    Args:
        comm: the communicator; `COMM_WORLD` by default.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    host = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    lowest: int = host.allreduce(comm.rank, MPI.MIN)
    host.Free()
    return Topology.of(comm.allgather(lowest))
