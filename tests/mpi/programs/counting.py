"""A communicator that counts the payload bytes handed to MPI, and what goes through shared memory."""

from __future__ import annotations

from typing import Any, ClassVar

from mpi4py import MPI

from redistrib.backends.mpi import shared


class Tally:
    """Bytes that went to, and came from, other ranks."""

    sent = 0
    received = 0
    calls: ClassVar[list[str]] = []
    shared_to: ClassVar[dict[int, int]] = {}

    @classmethod
    def clear(cls) -> None:
        cls.sent = cls.received = 0
        cls.calls = []
        cls.shared_to = {}


def size_of(message: Any) -> int:
    """Bytes of [buffer, count, datatype]."""
    return int(message[1] * message[2].Get_size())


def add(call: str, sent: int, received: int) -> None:
    Tally.calls.append(call)
    Tally.sent += sent
    Tally.received += received


def column(counts: list[int], types: list[MPI.Datatype], skip: int | None) -> int:
    return sum(n * t.Get_size() for k, (n, t) in enumerate(zip(counts, types, strict=True)) if k != skip)


class CountingGraph(MPI.Distgraphcomm):
    def Neighbor_alltoallw(self, send: Any, receive: Any) -> None:
        sources, destinations, _ = self.Get_dist_neighbors()
        assert self.rank not in sources
        assert self.rank not in destinations
        add("Neighbor_alltoallw", column(send[1], send[3], None), column(receive[1], receive[3], None))
        super().Neighbor_alltoallw(send, receive)


class Counting(MPI.Intracomm):
    """Counts; everything made from it counts too."""

    def Dup(self, info: Any = None) -> Counting:
        return Counting(super().Dup())

    def Split(self, color: int = 0, key: int = 0) -> Counting:
        return Counting(super().Split(color, key))

    def Create_dist_graph_adjacent(self, sources: Any, destinations: Any, *rest: Any) -> CountingGraph:
        return CountingGraph(super().Create_dist_graph_adjacent(sources, destinations, *rest))

    def Allgather(self, send: Any, receive: Any) -> None:
        block = size_of(receive)
        add("Allgather", (self.size - 1) * block, (self.size - 1) * block)
        super().Allgather(send, receive)

    def Alltoall(self, send: Any, receive: Any) -> None:
        add("Alltoall", (self.size - 1) * size_of(send), (self.size - 1) * size_of(receive))
        super().Alltoall(send, receive)

    def Alltoallw(self, send: Any, receive: Any) -> None:
        add("Alltoallw", column(send[1][0], send[2], self.rank), column(receive[1][0], receive[2], self.rank))
        super().Alltoallw(send, receive)

    def Scatterv(self, send: Any, receive: Any, root: int = 0) -> None:
        own = self.rank == root
        sent = column(send[1][0], [send[2]] * self.size, root) if own else 0
        add("Scatterv", sent, 0 if own else size_of(receive))
        super().Scatterv(send, receive, root)

    def Gatherv(self, send: Any, receive: Any, root: int = 0) -> None:
        own = self.rank == root
        taken = column(receive[1][0], [receive[2]] * self.size, root) if own else 0
        add("Gatherv", 0 if own else size_of(send), taken)
        super().Gatherv(send, receive, root)

    def Bcast(self, message: Any, root: int = 0) -> None:
        own = self.rank == root
        add("Bcast", (self.size - 1) * size_of(message) if own else 0, 0 if own else size_of(message))
        super().Bcast(message, root)

    def Reduce(self, send: Any, receive: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> None:
        own = self.rank == root
        add("Reduce", 0 if own else send.nbytes, (self.size - 1) * send.nbytes if own else 0)
        super().Reduce(send, receive, op, root)

    def Gather(self, send: Any, receive: Any, root: int = 0) -> None:
        own = self.rank == root
        add("Gather", 0 if own else size_of(send), (self.size - 1) * size_of(send) if own else 0)
        super().Gather(send, receive, root)

    def Recv(self, message: Any, source: int, tag: int = 0) -> None:
        assert source != self.rank
        add("Recv", 0, message[0].nbytes)
        super().Recv(message, source, tag)

    def Alltoallv(self, send: Any, receive: Any) -> None:
        out, into = (column(message[1][0], [message[2]] * self.size, self.rank) for message in (send, receive))
        add("Alltoallv", out, into)
        super().Alltoallv(send, receive)

    def Allgatherv(self, send: Any, receive: Any) -> None:
        (counts, _), unit = receive[1:]
        size = unit.Get_size()
        add("Allgatherv", (self.size - 1) * counts[self.rank] * size, (sum(counts) - counts[self.rank]) * size)
        super().Allgatherv(send, receive)

    def Reduce_scatter_block(self, send: Any, receive: Any, op: MPI.Op = MPI.SUM) -> None:
        add("Reduce_scatter_block", send.nbytes - receive.nbytes, (self.size - 1) * receive.nbytes)
        super().Reduce_scatter_block(send, receive, op)

    def Allreduce(self, send: Any, receive: Any, op: MPI.Op = MPI.SUM) -> None:
        if send is not MPI.IN_PLACE:  # as by parts, each added up by one member; words of agreement do not count
            part, longer = divmod(send.size, self.size)
            nbytes = (send.size + (self.size - 2) * (part + (self.rank < longer))) * send.itemsize
            add("Allreduce", nbytes, nbytes)
        super().Allreduce(send, receive, op)

    def Isend(self, message: Any, dest: int, tag: int = 0) -> MPI.Request:
        assert dest != self.rank
        add("Isend", size_of(message), 0)
        return super().Isend(message, dest, tag)

    def Irecv(self, message: Any, source: int, tag: int = 0) -> MPI.Request:
        assert source != self.rank
        add("Irecv", 0, size_of(message))
        return super().Irecv(message, source, tag)


_put = shared.SharedTile.put


def counted_put(self: shared.SharedTile, rank: int, to: Any, source: Any, of: Any) -> None:
    assert rank != self.host.rank
    nbytes = to.view(self.tiles[rank]).nbytes
    Tally.calls.append("put")
    Tally.sent += nbytes
    Tally.shared_to[rank] = Tally.shared_to.get(rank, 0) + nbytes
    _put(self, rank, to, source, of)


shared.SharedTile.put = counted_put  # type: ignore[method-assign]


def received(comm: MPI.Intracomm) -> int:
    """Bytes that this rank received; those put into its memory are told by who put them. One host only."""
    return Tally.received + sum(comm.alltoall([Tally.shared_to.get(rank, 0) for rank in range(comm.size)]))
