"""Rows of the thesis on ranks: one of them is named; prints what was called and received as JSON on rank 0."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from typing import Any

import numpy as np
import program_cases
from counting import Counting, Tally, received
from mpi4py import MPI

import redistrib as rd
from redistrib.programs.ir.program import Program
from tests.programs.ir.root_calls import gather_calls, scatter_calls

comm = MPI.COMM_WORLD
rank = comm.rank
ENDS = {"Scatterv", "Bcast", "Reduce", "Gatherv"}


def counted(run: Any, *arrays: Any, **options: Any) -> tuple[Any, list[str], int]:
    """What comes of a call, what any rank called of MPI, each as often as the rank that did so most, and bytes."""
    Tally.clear()
    found = run(*arrays, **options)
    most: Counter[str] = Counter()
    for calls in comm.allgather(Counter(name for name in Tally.calls if name in ENDS | {"Neighbor_alltoallw"})):
        most |= calls
    return found, sorted(most.elements()), comm.allreduce(received(comm))


def root_calls() -> dict[str, Any]:
    """T14: every grid of a product on 8 ranks, at the ends of a program and inside it."""
    a, b = program_cases.drawn(4, 8), program_cases.drawn(8, 4)
    seen, inside = set(), set()
    nest = rd.nest("ij,jk->ik", (4, 8, 4))
    for grid in itertools.product((1, 2), repeat=3):
        summed = rd.partition(nest, {"matmul": grid}, dtype="int64")
        made = summed.ops[0].outs[0][1]  # type: ignore[union-attr]  # as the product makes it, summands and all
        bare = Program(summed.inputs, summed.ops[:1], (made.name,))
        with rd.to_mpi(bare, Counting(comm)) as execute:
            for root in (0, comm.size - 1) if grid == (2, 2, 2) else (0,):
                tiles, calls, _ = counted(execute.scatter, *([a, b] if rank == root else []), root=root)
                named = [scatter_calls(value) for value in bare.inputs]
                seen.update(named)
                assert root or calls == sorted(itertools.chain(*named)), (grid, calls)
                assert len(calls) <= 4, (grid, calls)
                (found,), calls, _ = counted(execute.gather, *execute(*tiles), root=root)
                seen.add(gather_calls(made))
                assert root or calls == sorted(gather_calls(made)), (grid, calls)
                assert len(calls) <= 2, (grid, calls)
                if rank == root:
                    np.testing.assert_array_equal(found, a @ b)
        if grid not in ((2, 1, 1), (1, 2, 1), (2, 2, 2)):
            continue
        through = rd.partition(nest, {"matmul": grid}, dtype="int64", root=True)
        with rd.to_mpi(through, Counting(comm), transport="packed") as execute:
            (out,), calls, nbytes = counted(execute, *execute.scatter(*([a, b] if rank == 0 else [])))
            assert nbytes == through.received_bytes, grid
            for name, used in execute.calls.items():
                assert len(used) <= 2, (grid, name, used)
            inside.update(calls)
            if rank == 0:
                np.testing.assert_array_equal(out, a @ b)
    return {"seen": sorted(seen), "inside": sorted(inside)}


def overlapping() -> dict[str, Any]:
    """T15: tiles that overlap, scattered by one call, or exchanged with those that hold the rest."""
    x = program_cases.drawn(14, 13)
    y = np.array([[x[i : i + 3, j : j + 2].sum() for j in range(12)] for i in range(12)])
    found: dict[str, Any] = {}
    for name, options in (("root", {"root": True}), ("exchange", {"inputs": {"x": "[7{r0}14, 13]"}})):
        nest = program_cases.blur("x", i=12, j=12)
        program = rd.partition(nest, {"blur": (2, 2)}, dtype="int64", **options)  # type: ignore[arg-type]
        move = program.moves[0]
        with rd.to_mpi(program, Counting(comm)) as execute:
            tiles = execute.scatter(*([x] if rank == 0 else []))
            outs, calls, nbytes = counted(execute, *tiles)
            (whole,), _, _ = counted(execute.gather, *outs)
        if rank == 0:
            np.testing.assert_array_equal(whole, y)
        received_by = program.received(move)
        found[name] = {"calls": calls, "form": move.out.form, "tile": move.out.tile, "elements": received_by}
        assert nbytes == program.received_bytes
    held = rd.partition(program_cases.blur("x", i=12, j=12), {"blur": (4, 1)}, dtype="int64")
    assert not held.moves
    with rd.to_mpi(held, Counting(comm)) as execute:
        tiles, calls, nbytes = counted(execute.scatter, *([x] if rank == 0 else []))
        (whole,) = execute.gather(*execute(*tiles))
        np.testing.assert_array_equal(tiles[0], x[3 * rank : 3 * rank + 5])
        if rank == 0:
            np.testing.assert_array_equal(whole, y)
    return found | {"held": {"calls": calls, "bytes": nbytes}}


def irregular() -> dict[str, Any]:
    """T16: boxes of unequal size, from tiles of one number of devices to those of another, by one call each."""
    found = {}
    for case in program_cases.between(comm.size):
        with rd.to_mpi(case.program, Counting(comm)) as execute:
            tiles = execute.scatter(*(case.arrays if rank == 0 else []))
            outs, calls, nbytes = counted(execute, *tiles)
            (whole,) = execute.gather(*outs)
        if rank == 0:
            np.testing.assert_array_equal(whole, case.expected[0])
        assert nbytes == case.program.received_bytes
        found[case.name] = calls
    return found


def spmv() -> dict[str, Any]:
    """T18: schedule (2,), rows of the matrix overlapping by one."""
    nest, arrays, expected = program_cases.spmv(16, 12)
    program = rd.partition(nest, {"spmv": (2,)}, root=True, dtype=program_cases.SPARSE)
    with rd.to_mpi(program, Counting(comm)) as execute:
        (b,), calls, nbytes = counted(execute, *execute.scatter(*(arrays if rank == 0 else [])))
        by_move = dict(execute.calls)
    assert nbytes == program.received_bytes
    if rank == 0:
        np.testing.assert_array_equal(b, expected)
    rows = next(move.out for move in program.moves if move.value == "A_row")
    boxes = [[box.start[0], box.start[0] + box.size[0]] for box in rows.boxes.rows()]
    return {"calls": calls, "by_move": by_move, "rows": boxes}


def scaled() -> dict[str, Any]:
    """T21: the schedule that was planned on 128 ranks, on as many as there are; sizes that these cut."""
    grid = program_cases.LADDER[comm.size]
    sizes = tuple(24 * parts for parts in grid)
    a, b = program_cases.drawn(sizes[0], sizes[1]), program_cases.drawn(sizes[1], sizes[2])
    program = rd.partition(rd.nest("ij,jk->ik", sizes), {"matmul": grid}, dtype="int64", root=True)
    with rd.to_mpi(program, Counting(comm), transport="packed") as execute:
        (out,), calls, nbytes = counted(execute, *execute.scatter(*([a, b] if rank == 0 else [])))
    if rank == 0:
        np.testing.assert_array_equal(out, a @ b)
    return {"calls": calls, "bytes": nbytes, "predicted": program.received_bytes}


result = {"t14": root_calls, "t15": overlapping, "t16": irregular, "t18": spmv, "t21": scaled}[sys.argv[1]]()
if rank == 0:
    print(json.dumps(result))
