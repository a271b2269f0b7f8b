"""Plans as MPI programs, through mpi4py: `to_mpi` makes one, `scatter` and `gather` bring arrays in and out."""

from redistrib.backends.mpi.command import run_command
from redistrib.backends.mpi.executor import Executor, to_mpi
from redistrib.backends.mpi.roots import gather, scatter

__all__ = ["Executor", "gather", "run_command", "scatter", "to_mpi"]
