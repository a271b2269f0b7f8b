"""A program on an MPI communicator: NumPy on every rank's tiles, plans and direct moves between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.digests import digest_of
from redistrib.backends.mpi import consistency
from redistrib.backends.mpi.arrays import absent_tile, dtype_of, tile_of
from redistrib.backends.mpi.direct import DirectMove, Gather, Scatter, direct
from redistrib.backends.mpi.executor import Executor
from redistrib.backends.mpi.owner import CommunicatorOwner
from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import MemoryLimitError, ProgramError, RedistribError, TilesError
from redistrib.plans.plan import Plan
from redistrib.programs.inline import inlined
from redistrib.programs.live import aliases, changes, moments, renames
from redistrib.programs.program import Compute, Move, Program, Value
from redistrib.programs.project import TileWork, run_work, works

Tile: TypeAlias = npt.NDArray[Any]
Held: TypeAlias = dict[str, Tile]


def program_to_mpi(
    program: Program,
    comm: MPI.Intracomm,
    *,
    memory_limit: int | None = None,
    profile: LatencyBandwidth | Mapping[str, Any] | str | PathLike[str] | None = None,
    transport: str | None = None,
) -> ProgramExecutor:
    """Prepare a program to run on a communicator; to be called on all its ranks together, with equal arguments.

    Rank r of the communicator is device number r of the program's places; ranks beyond them hold nothing. The bodies of
    nests run on NumPy arrays. That they are the same on all ranks is not looked at beyond their names.

    Args:
        program: the program.
        comm: an mpi4py communicator with at least a rank for each device.
        memory_limit: bytes per rank for all tiles that are held at once and what moves need besides; None for no limit.
        profile, transport: of the plans of moves, see `to_mpi`.

    Raises:
        CommunicatorError: if the communicator is too small, the ranks give different programs or arguments, or the
            transport asked for cannot be had; the same message on every rank.
        ProgramError: if the program is not right, or a nest has no body.
        ProfileError: if the profile is malformed, or does not say what each transport takes; on every rank.
        MemoryLimitError: if the program does not fit the limit; on every rank.
    """
    return ProgramExecutor(program, comm, memory_limit=memory_limit, profile=profile, transport=transport)


class ProgramExecutor(CommunicatorOwner):
    """A program ready to run; see `program_to_mpi`.

    Calling it, `scatter` and `gather` are collective. `free` gives groups, datatypes and shared memory back, on all
    ranks together; used as a context manager it does so at the end of the block.

    Attributes:
        program: what it runs.
        calls: for every move that this rank has a part in, by the name of the value that it makes, what carries it
            out, in order: the transports of a plan's steps, or the MPI calls of a move without a plan.
    """

    def __init__(
        self,
        program: Program,
        comm: MPI.Intracomm,
        *,
        memory_limit: int | None = None,
        profile: Any = None,
        transport: str | None = None,
    ) -> None:
        model = consistency.check_program(program, comm, memory_limit, profile, transport)
        self.program = program
        self.calls: dict[str, tuple[str, ...]] = {}
        self._flat = inlined(program)
        self._beside = _beside(self._flat, memory_limit)
        super().__init__(comm)
        self._plans: dict[tuple[str, tuple[int, ...], int | None], Executor] = {}
        self._direct: list[DirectMove] = []
        self._ends: dict[tuple[str, Value, int], DirectMove] = {}
        self._options = (memory_limit, model, transport)
        self._steps: list[tuple[Callable[[Held], None], tuple[str, ...]]] = []
        problem = self._prepare()
        problems = self.comm.allgather(problem)
        found = next((one for one in problems if one is not None), None)
        if found is not None:
            self.free()
            raise found
        staging = np.empty(max((plan.staging_bytes for plan in self._plans.values()), default=0), np.uint8)
        for plan in self._plans.values():
            plan.bind(staging)

    # ------------------------------------------------------------------------------------------- running

    def __call__(self, *tiles: Any) -> list[Tile | None]:
        """Run the program: this rank's tile of every input in, its tile of every output out.

        Args:
            tiles: for every input an array of shape `value.tile` and the value's element type, or None where this rank
                holds nothing of it. They are never written. A donated one is let go after its last reader.

        Returns:
            A tile for every output, None where this rank holds nothing of it.

        Raises:
            TilesError: on every rank, with one message, if any rank passes a wrong array.
            CommunicatorError: if the executor was freed.
        """
        held = self._accepted(tiles, self.program.inputs, self._tile)
        del tiles
        for step, ended in self._steps:
            step(held)
            for name in ended:
                held.pop(name, None)
        return [held.get(name) for name in self.program.outputs]

    def scatter(self, *arrays: Any, root: int = 0) -> list[Tile | None]:
        """Every rank's tiles of the inputs, from whole arrays on one rank; `Scatterv` and `Bcast`, each once at most.

        Args:
            arrays: on the root an array for every input; elsewhere nothing, or anything.
            root: the rank that has them.

        Raises:
            TilesError: on every rank, with one message, if the arrays do not fit.
            CommunicatorError: if there is no such root, or the executor was freed.
        """
        consistency.require_root(self.comm, root)
        given = arrays if self.comm.rank == root else (None,) * len(self.program.inputs)
        held = self._accepted(given, self.program.inputs, partial(self._whole, root=root))
        return [self._end(Scatter, value, root).run(held.pop(value.name, None)) for value in self.program.inputs]

    def gather(self, *tiles: Any, root: int = 0) -> list[Tile | None]:
        """Whole arrays on one rank from every rank's tiles of the outputs; `Reduce` and `Gatherv`, each once at most.

        Args:
            tiles: what a call has returned.
            root: the rank that gets them.

        Returns:
            An array for every output on the root, None for each elsewhere. Summands are reduced, bfloat16 and float16
            in float32.

        Raises:
            TilesError: on every rank, with one message, if any tile does not fit.
            CommunicatorError: if there is no such root, or the executor was freed.
        """
        consistency.require_root(self.comm, root)
        values = [self.program.values[name] for name in self.program.outputs]
        held = self._accepted(tiles, values, self._tile)
        return [self._end(Gather, value, root).run(held.get(value.name)) for value in values]

    def _accepted(
        self, given: Sequence[Any], values: Sequence[Value], read: Callable[[Any, Value], Tile | None]
    ) -> Held:
        """The arrays by name, once all ranks are found to have the right ones."""
        self._require_open()
        problem, held = "", {}
        try:
            if len(given) != len(values):
                names = ", ".join(value.name for value in values) or "none"
                raise TilesError(f"{len(given)} arrays are given for {len(values)}: {names}")
            for one, value in zip(given, values, strict=True):
                array = read(one, value)
                if array is not None:
                    held[value.name] = array
        except RedistribError as error:
            problem = str(error)
        if not self._groups.agree(0 if problem else 1):
            raise consistency.first_problem(self.comm, problem)
        return held

    def _tile(self, given: Any, value: Value) -> Tile | None:
        what, dtype = f"the tile of {value.name!r}", dtype_of(value.dtype)
        if self.comm.rank not in value.place.devices:
            absent_tile(given, what, dtype)
            return None
        return tile_of(given, what, value.tile, dtype, writable=False)

    def _whole(self, given: Any, value: Value, root: int) -> Tile | None:
        if self.comm.rank != root:
            return None
        what, dtype = f"the array of {value.name!r}", dtype_of(value.dtype)
        return tile_of(given, what, value.shape, dtype, writable=False, whole=True)

    def _end(self, kind: type[Scatter] | type[Gather], value: Value, root: int) -> DirectMove:
        key = (kind.__name__, value, root)
        if key not in self._ends:
            self._ends[key] = kind(value, root, self._groups)
        return self._ends[key]

    # -------------------------------------------------------------------------------------------- making

    def _prepare(self) -> RedistribError | None:
        """Make what every operation needs, in order on all ranks; the first problem, if there is one."""
        problem: RedistribError | None = None
        ended = _ended(self._flat)
        for k, op in enumerate(self._flat.ops):
            step: Callable[[Held], None] | None = None
            try:
                match op:
                    case Compute():
                        step = self._compute(op)
                    case Move():
                        step = self._move(op, k)
            except RedistribError as error:  # the others go on, and so does this rank, to make what is made together
                problem = problem or error
            if step is not None:
                self._steps.append((step, ended[k]))
        return problem

    def _compute(self, op: Compute) -> Callable[[Held], None] | None:
        work = dict(works(op)).get(self.comm.rank)
        dtypes = {value.name: dtype_of(value.dtype) for _, value in op.outs}
        return None if work is None else partial(_work, work, dtypes)

    def _move(self, op: Move, number: int) -> Callable[[Held], None] | None:
        value, out = self._flat.values[op.value], op.out
        here = self.comm.rank in (*value.place.devices, *out.place.devices)
        if renames(op, self._flat):
            return partial(_rename, value.name, out.name) if here else None
        if op.plan is not None:
            plan = self._plan(op.plan, value.place.devices, number)
            if plan is None:
                return None
            self.calls[out.name] = tuple(plan.transports)
            return partial(_by_plan, plan, value.name, out)
        made = direct(value, out, self._groups)
        self._direct.append(made)
        if not here:
            return None
        self.calls[out.name] = made.calls
        return partial(_by_itself, made, value.name, out.name)

    def _plan(self, plan: Plan, members: tuple[int, ...], number: int) -> Executor | None:
        """The executor of a plan on its members, made once for all moves that are alike."""
        group = self._groups.among([members])
        if group is None:
            return None
        limit, model, transport = self._options
        beside = 0 if self._beside is None else self._beside[number]
        room = None if limit is None else limit - beside
        key = (digest_of(plan), members, room)
        if key not in self._plans:
            try:
                self._plans[key] = Executor(
                    plan, group, memory_limit=room, profile=model, transport=transport, lasting=limit is None
                )
            except MemoryLimitError as error:
                raise _too_little(limit or 0, error.least + beside) from None
        return self._plans[key]

    # ------------------------------------------------------------------------------------------- freeing

    def _release(self) -> None:
        self._steps.clear()
        for plan in self._plans.values():
            plan.free()
        for move in (*self._direct, *self._ends.values()):
            move.free()


# ------------------------------------------------------------------------------------------------ operations


def _rename(value: str, out: str, held: Held) -> None:
    held[out] = held[value]


def _work(work: TileWork, dtypes: Mapping[str, np.dtype[Any]], held: Held) -> None:
    for name, made in run_work(work, held).items():
        dtype = dtypes[name]
        if made.dtype != dtype and not np.can_cast(made.dtype, dtype, "same_kind"):
            raise ProgramError(work.name, name, "Nest", f"the body makes {made.dtype}, and the value is of {dtype}")
        held[name] = np.ascontiguousarray(made, dtype).reshape(made.shape)


def _by_plan(plan: Executor, value: str, out: Value, held: Held) -> None:
    into = None if "shared" in plan.transports else np.empty(out.tile, plan.dtype)
    held[out.name] = plan(held[value], out=into)


def _by_itself(move: DirectMove, value: str, out: str, held: Held) -> None:
    made = move.run(held.get(value))
    if made is not None:
        held[out] = made


# ---------------------------------------------------------------------------------------------------- memory


def _ended(program: Program) -> list[tuple[str, ...]]:
    """For every operation the names of what is not held any more after it."""
    names: dict[str, list[str]] = {}
    for name, root in aliases(program).items():
        names.setdefault(root, []).append(name)
    return [tuple(name for value in change.died for name in names[value.name]) for change in changes(program)]


def _beside(program: Program, limit: int | None) -> list[int] | None:
    """For every operation the most bytes that a device holds beside what it reads and makes, if there is a limit.

    Raises:
        MemoryLimitError: if what is held and computed does not fit.
    """
    if limit is None:
        return None
    beside, least = [], 0
    for op, devices, held, scratch in moments(program):
        most, own = max((held[device] for device in devices), default=0), 0
        if isinstance(op, Move) and op.plan is not None:  # its executor finds out what it takes
            own = program.values[op.value].tile_bytes + op.out.tile_bytes
        else:
            least = max(least, most + scratch)
        beside.append(most - own)
    if least > limit:
        raise _too_little(limit, least)
    return beside


def _too_little(limit: int, least: int) -> MemoryLimitError:
    return MemoryLimitError(
        limit,
        least,
        f"the program needs {least:,} bytes on a device at its worst moment and memory_limit is {limit:,}; give that "
        f"much, cut its work further, or give values up earlier",
    )
