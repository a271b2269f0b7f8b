"""Rank of `bench.cluster_mpi`: ours through `to_mpi` beside one plain `Alltoallw`, on the same tile.

The first rank gets the tasks and broadcasts them. A rank that fails ends the job, and the parent sees a crash.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.children import serve
from bench.elements import numbered
from bench.library import describe, plan_of
from bench.problems import Problem
from bench.rounds import alternate
from bench.summary import OURS, XLA
from redistrib.backends.mpi import to_mpi

Array = np.ndarray[Any, np.dtype[np.float32]]
Box = tuple[tuple[int, int], ...]
Part = Callable[[dict[str, Any]], None]


def boxes(problem: Problem, after: bool) -> list[Box]:
    """The box of each rank before or after: per dimension the first element and one past the last."""
    cut = problem.target_axes if after else problem.source_axes
    return [
        tuple(part.indices(size)[:2] for part, size in zip(problem.box(cut, rank), problem.shape, strict=True))
        for rank in range(problem.devices)
    ]


def plain(comm: MPI.Intracomm, problem: Problem, x: Array, out: Array) -> Callable[[], None]:
    """One `Alltoallw` of subarrays. A rank that has a tile copies it; others receive it from its holders in turn."""
    source, target = boxes(problem, False), boxes(problem, True)
    holders: dict[Box, list[int]] = {}
    for rank, box in enumerate(source):
        holders.setdefault(box, []).append(rank)

    def types(tile_box: Box, pairs: list[tuple[int, int]]) -> list[MPI.Datatype | None]:
        kinds: list[MPI.Datatype | None] = []
        for sender, receiver in pairs:
            senders = holders[source[sender]]
            chosen = receiver if receiver in senders else senders[receiver % len(senders)]
            ends = zip(source[sender], target[receiver], strict=True)
            both = [(max(a, c), min(b, d)) for (a, b), (c, d) in ends]
            if chosen != sender or any(low >= high for low, high in both):
                kinds.append(None)
                continue
            sizes, extents = [high - low for low, high in tile_box], [high - low for low, high in both]
            starts = [low - first for (low, _), (first, _) in zip(both, tile_box, strict=True)]
            kinds.append(MPI.FLOAT.Create_subarray(sizes, extents, starts).Commit())
        return kinds

    def message(buffer: Array, kinds: list[MPI.Datatype | None]) -> list[Any]:
        counts = [int(kind is not None) for kind in kinds]
        return [buffer, (counts, [0] * len(kinds)), [kind or MPI.FLOAT for kind in kinds]]

    ranks = range(comm.size)
    sent = message(x, types(source[comm.rank], [(comm.rank, other) for other in ranks]))
    received = message(out, types(target[comm.rank], [(other, comm.rank) for other in ranks]))
    return lambda: comm.Alltoallw(sent, received)


def handle(comm: MPI.Intracomm, task: dict[str, Any], part: Part) -> None:
    problem = Problem.from_json(task["problem"])
    x = numbered(problem.shape, problem.box(problem.source_axes, comm.rank))
    expected = numbered(problem.shape, problem.box(problem.target_axes, comm.rank))
    out = np.empty_like(expected)
    plan, seconds = plan_of(problem, task)  # the same on every rank
    part({OURS: describe(plan, seconds, task["topology"])})
    run = to_mpi(plan, comm)
    programs: dict[str, Callable[[], Any]] = {OURS: lambda: run(x, out), XLA: plain(comm, problem, x, out)}
    for name, program in programs.items():
        out[...] = -1
        program()
        if not comm.allreduce(np.array_equal(out, expected), MPI.LAND):
            part({"wrong": {name: "wrong elements"}})
    local = alternate(programs, task["rounds"], comm.Barrier)
    times = {name: [comm.allreduce(seconds, MPI.MAX) for seconds in rounds] for name, rounds in local.items()}
    run.free()
    part({"times": times, "transports": [str(name) for name in run.transports]})


def main() -> None:
    comm = MPI.COMM_WORLD

    def together(task: dict[str, Any] | None, part: Part) -> None:
        try:
            handle(comm, comm.bcast(task), part)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            comm.Abort(1)

    if comm.rank == 0:
        serve(together)
    while comm.rank:
        together(None, lambda _: None)


if __name__ == "__main__":
    main()
