"""The executor of a program on an MPI communicator: operations by NumPy on tiles, and moves between ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.digests import digest_of
from redistrib.backends.mpi import consistency
from redistrib.backends.mpi.arrays import absent_tile, dtype_of, tile_of
from redistrib.backends.mpi.executor import Executor
from redistrib.backends.mpi.owner import CommunicatorOwner
from redistrib.cost.presets import MachineLike
from redistrib.errors import CommunicatorError, MemoryLimitError, ProgramError, RedistribError, TilesError
from redistrib.plans.plan import Plan
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import aliases, changes, moments
from redistrib.programs.ir.program import Compute, Loop, Move, Program, Value
from redistrib.programs.ir.project import TileWork, run_work, works
from redistrib.programs.ir.reference import cropped, zero_padded
from redistrib.programs.run.mpi.direct import DirectMove, Gather, Scatter, direct
from redistrib.programs.run.mpi.doors import check
from redistrib.renamed import renamed

_Reader: TypeAlias = "Callable[[Any, Value], Tile | None]"
_CALLS = "call", "scatter", "gather"
_MOST = 2**24 - 1  # the highest number of a call and its root in the word on which ranks agree

Tile: TypeAlias = npt.NDArray[Any]
Tiles: TypeAlias = dict[str, Tile]  # of this rank, by value
Steps: TypeAlias = list[tuple[Callable[[Tiles], None], tuple[str, ...]]]  # operations, each with the values it ends


@renamed("profile", "machine")
def program_to_mpi(
    program: Program,
    comm: MPI.Intracomm,
    *,
    memory_limit: int | str | None = None,
    machine: MachineLike | None = None,
    transport: str | None = None,
) -> ProgramExecutor:
    """Prepare a program to run on a communicator; collective, with equal arguments on all ranks.

    Rank r of the communicator is device number r of the program's places; ranks beyond them have no tiles. The bodies
    of nests run on NumPy arrays. Only the names of bodies are compared between ranks.

    Args:
        program: the program.
        comm: an mpi4py communicator with at least a rank for each device.
        memory_limit: bytes per rank for all live tiles and the scratch of moves, or a text such as `"2GiB"`; or None.
        machine, transport: of the plans of moves, see `to_mpi`.

    Raises:
        CommunicatorError: if the communicator is too small, the ranks give different programs or arguments, or the
            transport cannot run on these ranks; the same message on every rank.
        ProgramError: if the program is invalid, or a nest has no body.
        ProfileError: if the profile is malformed or lacks the figures of a transport; on every rank.
        MemoryLimitError: if the program does not fit the limit; on every rank.
    """
    return ProgramExecutor(program, comm, memory_limit=memory_limit, machine=machine, transport=transport)


class ProgramExecutor(CommunicatorOwner):
    """A prepared program; see `program_to_mpi`.

    A call, `scatter` and `gather` are collective. `free` releases communicators, datatypes and shared memory, on all
    ranks together; as a context manager the executor does so at the end of the block.

    Attributes:
        program: the program.
        calls: for every move in which this rank takes part, by the name of its result: the transports of the plan's
            steps, or the MPI calls of a move without a plan, in order.
    """

    def __init__(
        self,
        program: Program, comm: MPI.Intracomm, *, memory_limit: int | str | None = None, machine: Any = None,
        transport: str | None = None
    ) -> None:  # fmt: skip
        model, limit = check(program, comm, memory_limit, machine, transport)
        self.program = program
        self.calls: dict[str, tuple[str, ...]] = {}
        self._flat = inlined(program)
        self._beside = _beside(self._flat, limit)
        super().__init__(comm)
        self._plans: dict[tuple[str, tuple[int, ...], int | None], Executor] = {}
        self._direct: list[DirectMove] = []
        self._ends: dict[tuple[type, Value, int], DirectMove] = {}
        self._options = (limit, model, transport)
        self._steps: Steps = []
        try:
            consistency.require_no_problem(self.comm, self._prepare())
        except RedistribError:
            self.free()
            raise
        staging = np.empty(max((plan.staging_bytes for plan in self._plans.values()), default=0), np.uint8)
        for plan in self._plans.values():
            plan.bind(staging)

    # ------------------------------------------------------------------------------------------- running

    def __call__(self, *tiles: Any) -> list[Tile | None]:
        """Run the program, from this rank's tile of every input to its tile of every output.

        Args:
            tiles: for every input an array of shape `value.tile` and the value's element type, or None if this rank has
                no tile of it. They are never written. A donated tile is released after its last reader.

        Returns:
            A tile for every output, None if this rank has no tile of it.

        Raises:
            TilesError: on every rank, with one message, if any rank passes a wrong array.
            CommunicatorError: if the executor was freed.
        """
        env = self._accepted("call", tiles, self.program.inputs, self._tile)
        del tiles
        _run_steps(self._steps, env)
        return [env.get(name) for name in self.program.outputs]

    def scatter(self, *arrays: Any, root: int = 0) -> list[Tile | None]:
        """The tiles of the inputs from whole arrays on one rank, by at most one `Scatterv` and one `Bcast` each.

        Args:
            arrays: on the root an array for every input; ignored on other ranks.
            root: the rank that has the arrays.

        Raises:
            TilesError: on every rank, with one message, if the arrays do not fit.
            CommunicatorError: if the communicator has no such root, or the executor was freed.
        """
        inputs = arrays if self.comm.rank == root else (None,) * len(self.program.inputs)
        env = self._accepted("scatter", inputs, self.program.inputs, partial(self._whole, root=root), root)
        return [self._end(Scatter, value, root).run(env.pop(value.name, None)) for value in self.program.inputs]

    def gather(self, *tiles: Any, root: int = 0) -> list[Tile | None]:
        """Whole arrays on one rank from the tiles of the outputs, by at most one `Reduce` and one `Gatherv` each.

        Args:
            tiles: the result of a call.
            root: the rank that gets the arrays.

        Returns:
            An array for every output on the root, None for each on other ranks. Partial sums are reduced, bfloat16 and
            float16 in float32.

        Raises:
            TilesError: on every rank, with one message, if any tile does not fit.
            CommunicatorError: if the communicator has no such root, or the executor was freed.
        """
        values = [self.program.values[name] for name in self.program.outputs]
        env = self._accepted("gather", tiles, values, self._tile, root)
        whole = ((self._end(Gather, value, root).run(env.get(value.name)), value) for value in values)
        return [None if array is None else cropped(array, value) for array, value in whole]

    def _accepted(
        self, function: str, arrays: Sequence[Any], values: Sequence[Value], read: _Reader, root: int = 0
    ) -> Tiles:
        """The arrays by name; on every rank the first error of any rank, also if they make different calls."""
        self._require_open()
        problem: RedistribError | None = None
        tiles, word = dict[str, Tile](), 0
        try:
            consistency.require_root(self.comm, root)
            word = 1 | (call := 3 * root + _CALLS.index(function)) << 1 | (_MOST - call) << _MOST.bit_length() + 1
            if len(arrays) != len(values):
                names = ", ".join(value.name for value in values) or "none"
                raise TilesError(f"{len(arrays)} arrays are given for {len(values)}: {names}")
            for array, value in zip(arrays, values, strict=True):
                tile = read(array, value)
                if tile is not None:
                    tiles[value.name] = tile
        except RedistribError as error:
            problem, word = error, 0
        agreed = self._groups.agree(word)
        if not agreed & 1:
            consistency.require_no_problem(self.comm, problem)
        if agreed != word:  # a bit of the number, or of its complement, is 0 on some rank and 1 here
            raise CommunicatorError("the ranks make different calls, or name different roots; make one on all")
        return tiles

    def _tile(self, array: Any, value: Value) -> Tile | None:
        subject, dtype = f"the tile of {value.name!r}", dtype_of(value.dtype)
        if self.comm.rank not in value.place.devices:
            absent_tile(array, subject, dtype)
            return None
        return tile_of(array, subject, value.tile, dtype, writable=False)

    def _whole(self, array: Any, value: Value, root: int) -> Tile | None:
        if self.comm.rank != root:
            return None
        subject, dtype = f"the array of {value.name!r}", dtype_of(value.dtype)
        return zero_padded(tile_of(array, subject, value.array_shape, dtype, writable=False, whole=True), value)

    def _end(self, kind: type[Scatter] | type[Gather], value: Value, root: int) -> DirectMove:
        key = (kind, value, root)
        if key not in self._ends:
            self._ends[key] = kind(value, root, self._groups)
        return self._ends[key]

    # ---------------------------------------------------------------------------------------- preparing

    def _prepare(self) -> RedistribError | None:
        """Prepare every operation, in order on all ranks; return the first error, or None."""
        problems: list[RedistribError] = []
        self._steps = self._prepared(self._flat, problems)
        return problems[0] if problems else None

    def _prepared(self, program: ProgramData, problems: list[RedistribError]) -> Steps:
        """The operations of a program, or of a step of a loop, each with the values that it ends."""
        steps: Steps = []
        for op, ended in zip(program.ops, _ended(program), strict=True):
            step: Callable[[Tiles], None] | None = None
            try:
                match op:
                    case Compute():
                        step = self._compute(op)
                    case Move():
                        step = self._move(op, program.values)
                    case Loop():
                        inner = [self._prepared(body, problems) for body in op.programs]
                        takes_part = any(self.comm.rank in body.devices for body in op.programs)
                        step = partial(_run_loop, op, inner) if takes_part else None
            except RedistribError as error:  # go on: preparing the other operations is collective
                problems.append(error)
            if step is not None:
                steps.append((step, ended))
        return steps

    def _compute(self, op: Compute) -> Callable[[Tiles], None] | None:
        work = dict(works(op)).get(self.comm.rank)
        dtypes = {value.name: dtype_of(value.dtype) for _, value in op.outs}
        return None if work is None else partial(_work, work, dtypes)

    def _move(self, op: Move, values: Mapping[str, Value]) -> Callable[[Tiles], None] | None:
        value, out = values[op.value], op.out
        takes_part = self.comm.rank in (*value.place.devices, *out.place.devices)
        if op.plan is None and value.means(out):
            return partial(_rename, value.name, out.name) if takes_part else None
        if op.plan is not None:
            plan = self._plan(op.plan, value.place.devices, self._beside.get(id(op), 0))
            if plan is None:
                return None
            self.calls[out.name] = tuple(plan.transports)
            return partial(_run_plan, plan, value.name, out)
        move = direct(value, out, self._groups)
        self._direct.append(move)
        if not takes_part:
            return None
        self.calls[out.name] = move.calls
        return partial(_run_direct, move, value.name, out.name)

    def _plan(self, plan: Plan, members: tuple[int, ...], beside: int) -> Executor | None:
        """The executor of a plan on its members; equal moves share one."""
        group = self._groups.among([members])
        if group is None:
            return None
        limit, model, transport = self._options
        plan_limit = None if limit is None else limit - beside
        key = (digest_of(plan), members, plan_limit)
        if key not in self._plans:
            try:
                self._plans[key] = Executor(
                    plan, group, memory_limit=plan_limit, machine=model, transport=transport, lasting=limit is None
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


def _rename(value: str, out: str, tiles: Tiles) -> None:
    tiles[out] = tiles[value]


def _work(work: TileWork, dtypes: Mapping[str, np.dtype[Any]], tiles: Tiles) -> None:
    for name, result in run_work(work, tiles).items():
        dtype = dtypes[name]
        if result.dtype != dtype and not np.can_cast(result.dtype, dtype, "same_kind"):
            raise ProgramError(work.name, name, "Nest", f"the body makes {result.dtype}, and the value is of {dtype}")
        tiles[name] = np.ascontiguousarray(result, dtype).reshape(result.shape)


def _run_steps(steps: Steps, tiles: Tiles) -> None:
    for step, ended in steps:
        step(tiles)
        for name in ended:
            tiles.pop(name, None)


def _run_loop(op: Loop, parts: Sequence[Steps], tiles: Tiles) -> None:
    """Run a loop; `parts` are the operations of this rank in a step and in the condition."""
    form = op.form
    fixed, state, arrays = form.operands([tiles.get(name) for name in op.ins])  # None where this rank has no tile
    stacked = {out.name: np.empty(out.tile, dtype_of(out.dtype)) for out in form.results(op.outs)[1]}

    def run(program: ProgramData, part: Steps, entries: Sequence[Tile | None]) -> list[Tile | None]:
        values = zip(program.inputs, [*fixed, *state, *entries], strict=True)
        env = {value.name: tile for value, tile in values if tile is not None}
        _run_steps(part, env)
        return [env.get(name) for name in program.outputs]

    if op.condition is not None:
        while run(op.condition, parts[1], ())[0]:
            state = run(op.program, parts[0], ())
    else:
        for step in form.order:
            entries = [None if array is None else np.array(array[step]) for array in arrays]
            state, made = form.results(run(op.program, parts[0], entries))
            for tiles_of_steps, entry in zip(stacked.values(), made, strict=True):
                if entry is not None:
                    tiles_of_steps[step] = entry
    left = zip(op.outs, [*state, *stacked.values()], strict=True)
    tiles.update({out.name: tile for out, tile in left if tile is not None})


def _run_plan(plan: Executor, value: str, out: Value, tiles: Tiles) -> None:
    target = None if "shared" in plan.transports else np.empty(out.tile, plan.dtype)
    tiles[out.name] = plan(tiles[value], out=target)


def _run_direct(move: DirectMove, value: str, out: str, tiles: Tiles) -> None:
    result = move.run(tiles.get(value))
    if result is not None:
        tiles[out] = result


# ---------------------------------------------------------------------------------------------------- memory


def _ended(program: ProgramData) -> list[tuple[str, ...]]:
    """For every operation the names of the values whose lives it ends."""
    names: dict[str, list[str]] = {}
    for name, root in aliases(program).items():
        names.setdefault(root, []).append(name)
    return [tuple(name for value in change.died for name in names[value.name]) for change in changes(program)]


def _beside(program: Program, limit: int | None) -> dict[int, int]:
    """For every move with a plan, by id, the most bytes of other values on a device; empty without a limit.

    Raises:
        MemoryLimitError: if live values and the scratch of computations do not fit.
    """
    if limit is None:
        return {}
    beside: dict[int, int] = {}
    least = _count_beside(program, 0, beside)
    if least > limit:
        raise _too_little(limit, least)
    return beside


def _count_beside(program: ProgramData, outside: int, beside: dict[int, int]) -> int:
    """Fill in `beside`, with `outside` bytes held besides; returns the most bytes of all but moves by plans."""
    least = 0
    for op, devices, live, scratch in moments(program):
        most = outside + max((live[device] for device in devices), default=0)
        if isinstance(op, Move) and op.plan is not None:  # its executor checks its own memory
            beside[id(op)] = most - program.values[op.value].tile_bytes - op.out.tile_bytes
        elif isinstance(op, Loop):
            for inner in op.programs:  # its inputs count constants and carried values once more
                again = sum(value.tile_bytes for value in inner.inputs[: op.form.held])
                least = max(least, _count_beside(inner, most - again, beside))
        else:
            least = max(least, most + scratch)
    return least


def _too_little(limit: int, least: int) -> MemoryLimitError:
    return MemoryLimitError(
        limit,
        least,
        f"the program needs {least:,} bytes on a device at its worst moment and memory_limit is {limit:,}; give that "
        f"much, cut its work further, or give values up earlier",
    )
