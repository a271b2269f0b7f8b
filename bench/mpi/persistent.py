"""Whether persistent collectives help: paired times of `Alltoall` and `Neighbor_alltoallw` against their `_init` kin.

    mpiexec -n 4 python -m mpi4py bench/mpi/persistent.py

Printed are medians of ratios, persistent over plain: below 1 is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

PAIRS = 31


def seconds(comm: MPI.Intracomm, run: Callable[[], object]) -> float:
    comm.Barrier()
    start = time.perf_counter()
    run()
    return float(comm.allreduce(time.perf_counter() - start, MPI.MAX))


def restarted(request: MPI.Prequest) -> Callable[[], object]:
    def run() -> None:
        request.Start()
        request.Wait()

    return run


def main() -> None:
    comm = MPI.COMM_WORLD
    n = comm.size
    others = [r for r in range(n) if r != comm.rank]
    graph = comm.Create_dist_graph_adjacent(others, others)
    for block in (64, 4096, 262144):
        a, b = np.zeros(n * block, np.uint8), np.zeros(n * block, np.uint8)
        kind = MPI.BYTE.Create_vector(block // 16, 8, 16).Commit()
        starts = [r * block for r in others]
        message = [a, [1] * (n - 1), starts, [kind] * (n - 1)], [b, [1] * (n - 1), starts, [kind] * (n - 1)]
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "Alltoall": (restarted(comm.Alltoall_init(a, b)), lambda a=a, b=b: comm.Alltoall(a, b)),
            "Neighbor_alltoallw": (
                restarted(graph.Neighbor_alltoallw_init(*message)),
                lambda message=message: graph.Neighbor_alltoallw(*message),
            ),
        }
        for name, (persistent, plain) in pairs.items():
            ratios = [seconds(comm, persistent) / seconds(comm, plain) for _ in range(PAIRS)]
            if comm.rank == 0:
                print(f"{n} ranks, {block:7} bytes a rank, {name:18} {np.median(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()
