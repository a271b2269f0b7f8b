"""A product of 8192^3 on 1 to 128 ranks: the best grid for each number of ranks, and a small one run by MPI.

For every number of ranks all grids of powers of two are simulated, once with inputs on the root and the result back
there, and once with arrays that stay cut. Run me alone for the table, of a machine by name, and on ranks for a product
of 256^3 by its best grid:

    python examples/products.py cpu
    mpiexec -n 4 python -m mpi4py examples/products.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import redistrib as rd

SIZE, SMALL = 8192, 256


class Best(NamedTuple):
    """The grid of a number of ranks that takes the least time."""

    grid: tuple[int, int, int]
    seconds: float
    received: int  # bytes, by the rank that receives most


def grids(ranks: int) -> Iterator[tuple[int, int, int]]:
    """Parts of `i`, `j` and `k` that make so many ranks, in powers of two."""
    powers = [1 << n for n in range(ranks.bit_length())]
    return ((i, j, ranks // (i * j)) for i in powers for j in powers if ranks % (i * j) == 0)


def program_of(size: int, grid: tuple[int, int, int], root: bool) -> rd.Program:
    """A product, its work cut by a grid."""
    return rd.partition(rd.nest("ij,jk->ik", (size,) * 3), {"matmul": grid}, root=root)


def best(size: int, ranks: int, machine: str, *, root: bool) -> Best:
    """The fastest grid; of equal ones that which receives least."""

    def simulated(grid: tuple[int, int, int]) -> Best:
        simulation = rd.simulate(program_of(size, grid, root), machine)
        return Best(grid, simulation.seconds, max(simulation.received_bytes.values()))

    return min(map(simulated, grids(ranks)), key=lambda found: (found.seconds, found.received))


def table(machine: str) -> None:
    """Print the best grids of 1 to 128 ranks."""
    print(f"{SIZE} x {SIZE} x {SIZE} in float32 on {machine}, parts of i, j and k")
    print(f"{'ranks':>5}  {'from the root and back':^38}  {'where the arrays are cut':^38}")
    one = None
    for ranks in (1 << n for n in range(8)):
        cells = []
        for root in (True, False):
            found = best(SIZE, ranks, machine, root=root)
            one = one or found.seconds
            grid = " x ".join(map(str, found.grid))
            cells.append(f"{grid:>11}  {1e3 * found.seconds:8.2f} ms  {one / found.seconds:5.1f} times")
        print(f"{ranks:5}  {cells[0]:>38}  {cells[1]:>38}")


def run(ranks: int) -> None:
    """Run a small product on ranks, from the root and back."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    found = best(SMALL, ranks, "cpu", root=True)
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-8, 8, (SMALL, SMALL)).astype("float32") for _ in range(2))
    with rd.to_mpi(program_of(SMALL, found.grid, root=True), comm) as execute:
        (out,) = execute(*execute.scatter(*((a, b) if comm.rank == 0 else ())))
        if comm.rank == 0:
            print(f"{SMALL} x {SMALL} x {SMALL} on {ranks} ranks, grid {found.grid}: {execute.calls}")
            print("equal to NumPy's:", np.array_equal(out, a @ b))


def main(machine: str = "cpu") -> None:
    """Run a product where there are ranks; else print the table."""
    try:
        from mpi4py import MPI

        ranks = MPI.COMM_WORLD.size
    except ImportError:
        ranks = 1
    if ranks > 1:
        run(ranks)
    else:
        table(machine)


if __name__ == "__main__":
    main(*sys.argv[1:])
