"""Checks that all ranks prepare the same plan or program with the same arguments, before anything is allocated."""

from __future__ import annotations

import numbers
from typing import Any

from mpi4py import MPI

from redistrib.backends.mpi import selection
from redistrib.backends.ranks.arguments import compared_arguments
from redistrib.backends.refusals import require_bodies
from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import CommunicatorError, ProfileError, ProgramError, RedistribError
from redistrib.launches.call_errors import of_ranks
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.plan import Plan
from redistrib.programs.check import check as checked
from redistrib.programs.data import ProgramData
from redistrib.programs.inline import with_steps
from redistrib.programs.program import Compute, Program


def check(
    plan: Plan, comm: MPI.Intracomm, limit: int | str | None, machine: Any, transport: str | None
) -> tuple[LatencyBandwidth | None, int | None]:
    """Refuse a plan or arguments that cannot be prepared, on every rank with the same message.

    Returns:
        The profile of the machine, and the limit in bytes.

    Raises:
        CommunicatorError, ProfileError: as `to_mpi` says.
    """
    options = _require_equal("plan", plan, Plan, comm, limit, machine, transport)
    if comm.size != plan.devices:
        raise CommunicatorError(
            f"the plan is for {plan.devices} devices and the communicator has {comm.size} ranks; give it one rank per "
            f"device, for example with mpiexec -n {plan.devices} or comm.Split"
        )
    return options


def check_program(
    program: Program, comm: MPI.Intracomm, limit: int | str | None, machine: Any, transport: str | None
) -> tuple[LatencyBandwidth | None, int | None]:
    """As `check`, for a program. Of the bodies of its nests, only the names are compared.

    Raises:
        CommunicatorError, ProfileError, ProgramError: as `program_to_mpi` says.
    """
    options = _require_equal("program", program, ProgramData, comm, limit, machine, transport)
    ranks = max(program.devices, default=-1) + 1
    if comm.size < ranks:
        raise CommunicatorError(
            f"the program runs on devices up to number {ranks - 1} and the communicator has {comm.size} ranks; give it "
            f"a rank for each, for example with mpiexec -n {ranks}"
        )
    require(program)
    return options


def require(runnable: Plan | Program) -> None:
    """Refuse a plan or a program that no communicator can carry out.

    Raises:
        DtypeError, MissingPackageError: if NumPy cannot hold the plan's elements.
        ProgramError: if the program is invalid, or a nest has no body or has an effect.
    """
    if not isinstance(runnable, ProgramData):
        dtype_of(runnable.dtype)
        return
    require_bodies(checked(runnable))
    for op in (op for inner in with_steps(runnable) for op in inner.ops):
        if isinstance(op, Compute) and any(part.nest.effectful for part in op.parts):
            raise ProgramError(
                op.name, "", "Effect", "every rank would have the effect of the operation once; leave the operation "
                "out, and show the values that it reads after the call",
            )  # fmt: skip


def _require_equal(
    kind: str,
    runnable: Any,
    sort: type,
    comm: MPI.Intracomm,
    limit: Any,
    machine: Any,
    transport: str | None,
) -> tuple[LatencyBandwidth | None, int | None]:
    """Refuse arguments that differ between ranks, and return the profile and the limit."""
    require_communicator(comm)
    model, room, problem, call = None, None, None, ""
    try:
        model = None if machine is None else selection.profile_of_transports(machine)
        digest, room = compared_arguments(kind, runnable, sort, limit)
        call = f"{kind} {digest}"
    except RedistribError as error:
        problem = error
    everyone = comm.allgather((problem, call, repr(room), repr(model), repr(transport)))
    for rank, (other, *_) in enumerate(everyone):
        if isinstance(other, ProfileError):
            raise ProfileError(f"rank {rank}: {other}")
        if other:
            raise other
    names = ("problem", everyone[0][1].partition(" ")[0], "memory_limit", "machine", "transport")
    for rank, other in enumerate(everyone):
        for name, a, b in zip(names, everyone[0], other, strict=True):
            if a != b:
                raise CommunicatorError(
                    f"rank {rank} gives another {name} than rank 0; give the same on all ranks, a plan for example by "
                    f"comm.bcast(plan.to_json())"
                )
    if transport is not None and transport not in selection.TRANSPORTS:
        raise CommunicatorError(
            f"no transport {transport!r}; give one of {', '.join(map(repr, selection.TRANSPORTS))}, or leave it out"
        )
    return model, room


def require_communicator(comm: Any) -> None:
    """Refuse what ranks cannot meet on."""
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise CommunicatorError(f"{comm!r} is no intra-communicator of mpi4py; pass one such as MPI.COMM_WORLD")


def first_problem(comm: MPI.Intracomm, problem: RedistribError | None) -> RedistribError:
    """The error for all ranks, at least one of which has a problem with its arrays or with the call; collective."""
    refusal = of_ranks(comm.allgather(problem))
    assert refusal is not None
    return refusal


def require_root(comm: MPI.Intracomm, root: Any) -> None:
    """Refuse a root that is not a rank of the communicator."""
    if not isinstance(root, numbers.Integral) or root not in range(comm.size):
        raise CommunicatorError(f"there is no rank {root!r} among {comm.size}; give a root from 0 to {comm.size - 1}")
