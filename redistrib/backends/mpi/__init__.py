"""Plans as MPI programs, through mpi4py: `to_mpi` makes one, `scatter` and `gather` bring arrays in and out."""

from redistrib.backends.mpi.executor import Executor, to_mpi

__all__ = ["Executor", "to_mpi"]
