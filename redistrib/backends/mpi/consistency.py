"""Checks that all ranks prepare the same plan with the same arguments, before anything is allocated."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from redistrib.backends.digests import digest_of
from redistrib.backends.mpi import selection
from redistrib.backends.ranks.arguments import compared_arguments, require_rank_each
from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import CommunicatorError, RedistribError
from redistrib.launches.agreement import agree, of_ranks
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.plan import Plan


def check(
    plan: Plan, comm: MPI.Intracomm, limit: int | str | None, machine: Any, transport: str | None
) -> tuple[LatencyBandwidth | None, int | None]:
    """Refuse a plan or arguments that cannot be prepared, on every rank with the same message.

    Returns:
        The profile of the machine, and the limit in bytes.

    Raises:
        CommunicatorError, ProfileError: as `to_mpi` says.
    """
    options = require_equal("plan", plan, Plan, digest_of, comm, limit, machine, transport)
    way_out = f"mpiexec -n {plan.devices} or comm.Split"
    require_rank_each("the plan is for", plan.devices, "the communicator", comm.size, way_out)
    return options


def require(plan: Plan) -> None:
    """Refuse a plan that no communicator can carry out.

    Raises:
        DtypeError, MissingPackageError: if NumPy cannot hold the plan's elements.
    """
    dtype_of(plan.dtype)


def require_equal(
    kind: str,
    runnable: Any,
    sort: type,
    digest_of: Callable[[Any], str],
    comm: MPI.Intracomm,
    limit: Any,
    machine: Any,
    transport: str | None,
) -> tuple[LatencyBandwidth | None, int | None]:
    """Refuse arguments that differ between ranks, and return the profile and the limit."""
    require_communicator(comm)
    model, limit_bytes, problem, call = None, None, None, dict[str, str]()
    try:
        model = None if machine is None else selection.profile_of_transports(machine)
        digest, limit_bytes = compared_arguments(kind, runnable, sort, digest_of, limit)
        call = {kind: digest, "memory_limit": repr(limit_bytes), "machine": repr(model), "transport": repr(transport)}
    except RedistribError as error:
        problem = error
    agree(comm.allgather, comm.rank, problem, call, way_out=", a plan for example by comm.bcast(plan.to_json())")
    if transport is not None and transport not in selection.TRANSPORTS:
        raise CommunicatorError(
            f"no transport {transport!r}; give one of {', '.join(map(repr, selection.TRANSPORTS))}, or leave it out"
        )
    return model, limit_bytes


def require_communicator(comm: Any) -> None:
    """Refuse what ranks cannot meet on."""
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise CommunicatorError(f"{comm!r} is no intra-communicator of mpi4py; pass one such as MPI.COMM_WORLD")


def require_no_problem(comm: MPI.Intracomm, problem: RedistribError | None) -> None:
    """Raise one error on all ranks if any has a problem with its arrays or with the call; collective."""
    refusal = of_ranks(comm.allgather(problem))
    if refusal is not None:
        raise refusal


def require_root(comm: MPI.Intracomm, root: Any) -> None:
    """Refuse a root that is not a rank of the communicator."""
    if not isinstance(root, numbers.Integral) or root not in range(comm.size):
        raise CommunicatorError(f"there is no rank {root!r} among {comm.size}; give a root from 0 to {comm.size - 1}")
