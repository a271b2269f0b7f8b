"""Programs on ranks: values as both interpreters and NumPy have them, bytes as predicted; prints JSON on rank 0.

`programs.py every 4` runs every fourth program of those that there are for this number of ranks.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import program_cases
from counting import Counting, Tally, received
from mpi4py import MPI

import redistrib as rd
from redistrib.programs.ir.reference import distribute, run_by_rank, run_whole

comm = MPI.COMM_WORLD
rank = comm.rank


def run(case: program_cases.Case, transport: str | None) -> tuple[set[str], set[str]]:
    """Whole arrays in and out; the MPI calls that there were while the program ran, and at its ends."""
    program, arrays, expected = case.program, case.arrays, case.expected
    for reference in (run_whole, run_by_rank):
        for one, wanted in zip(reference(program, arrays), expected, strict=True):
            np.testing.assert_array_equal(one, wanted, case.name)
    with rd.to_mpi(program, Counting(comm), transport=transport) as execute:
        Tally.clear()
        tiles = execute.scatter(*(arrays if rank == 0 else []))
        for tile, array, value in zip(tiles, arrays, program.inputs, strict=True):
            if value.type.partial == () and rank in value.place.devices:
                np.testing.assert_array_equal(tile, distribute(array, value)[rank], case.name)
        ends = {*Tally.calls}
        for _ in range(2):
            Tally.clear()
            outs = execute(*tiles)
            calls = {*Tally.calls}
            assert comm.allreduce(received(comm)) == program.received_bytes, (case.name, transport)
        Tally.clear()
        whole = execute.gather(*outs)
        ends |= {*Tally.calls}
        for one, wanted in zip(whole, expected, strict=True):
            assert (one is None) == (rank > 0)
            if one is not None:
                np.testing.assert_array_equal(one, wanted, case.name)
    return calls, ends


ran, step = 0, int(sys.argv[2]) if len(sys.argv) > 2 else 1
seen: tuple[set[str], set[str]] = (set(), set())
for k, case in enumerate(getattr(program_cases, sys.argv[1])(comm.size)):
    if k % step == 0:
        for known, calls in zip(seen, run(case, (None, "packed", "datatypes")[k % 3]), strict=True):
            known.update(calls)
        ran += 1
if rank == 0:
    print(json.dumps({"ran": ran, "calls": sorted(seen[0]), "ends": sorted(seen[1])}))
