"""Plans through mpi4py: `to_mpi` prepares them, `scatter` and `gather` distribute and collect arrays.

The backend runs every correct plan, with one rank per device, on every dtype of NumPy and ml_dtypes whose elements are
numbers or booleans. A step uses one of the transports:

- `shared`: copies into memory that the ranks of one host share (`shared`, `barrier`);
- `packed`: collectives on contiguous memory, with local copies around them (`wire`);
- `datatypes`: collectives on strided memory, without staging (`transports`, `datatypes`);
- `direct`: one exchange by datatypes in place of the plan's steps, if a memory limit leaves no room for tiles between
  source and target.

`reductions` stages and reduces partial sums where the transport is not `packed`. `selection` chooses the transport by
memory limit and profile; `executor` allocates memory, and runs the steps by `redistrib.backends.ranks`.
"""

from __future__ import annotations

from redistrib.backends.mpi.command import run_command
from redistrib.backends.mpi.doors import can, measure, run
from redistrib.backends.mpi.executor import Executor, to_mpi
from redistrib.backends.mpi.hosts import topology
from redistrib.backends.mpi.scatter_gather import gather, scatter

__all__ = [
    "Executor",
    "can",
    "gather",
    "measure",
    "run",
    "run_command",
    "scatter",
    "to_mpi",
    "topology",
]
