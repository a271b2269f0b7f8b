"""A sparse matrix times a vector on MPI ranks, from a schedule that says only how the rows are cut.

Row pointers are read two by two, so the ranks' parts of them overlap by one: they are scattered as they are needed. The
entries and the vector are read where the row pointers and the columns say, and every rank gets them whole. Run me:

    mpiexec -n 4 python -m mpi4py examples/sparse_rows.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy import sparse

import redistrib as rd
from redistrib.programs.ir.nest import Access, Nest

ROWS, COLUMNS = 4800, 1000
comm = MPI.COMM_WORLD


def body(at: Mapping[str, range], row: Any, column: Any, entry: Any, x: Any) -> Any:
    """The rows of one rank."""
    mine = slice(row[0], row[-1])
    return sparse.csr_array((entry[mine], column[mine], row - row[0]), (len(at["i"]), len(x))) @ x


draw = np.random.default_rng(0)
matrix = sparse.csr_array(sparse.random(ROWS, COLUMNS, 0.01, random_state=draw))
x = draw.random(COLUMNS)
entries = matrix.nnz
spmv = Nest(
    "spmv",
    {"i": ROWS},
    reads=[
        Access("row", (("i",),), windows=(2,)),  # row[i:i + 2]
        Access("column", ((),), (entries,)),
        Access("entry", ((),), (entries,)),
        Access("x", ((),), (COLUMNS,)),
    ],
    writes=[Access("y", (("i",),))],
    body=body,
)
dtypes = {"row": "int32", "column": "int32"} | dict.fromkeys(["entry", "x", "y"], "float64")
program = rd.partition(spmv, {"spmv": (comm.size,)}, dtype=dtypes)
arrays = [matrix.indptr, matrix.indices, matrix.data, x]

with rd.to_mpi(program, comm) as execute:
    tiles = execute.scatter(*(arrays if comm.rank == 0 else []))
    (y,) = execute.gather(*execute(*tiles))
if comm.rank == 0:
    for value in program.inputs:
        print(f"{value.name:8} {value.form:30} {value.tile_bytes:10,} bytes a rank")
    print("equal to SciPy's:", np.allclose(y, matrix @ x, rtol=1e-12))
