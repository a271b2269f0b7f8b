"""The executor of a plan on an MPI communicator: created once, run any number of times."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi import consistency, reductions, selection, shared
from redistrib.backends.mpi.arrays import absent_tile, dtype_of, flat, tile_of
from redistrib.backends.mpi.owner import CommunicatorOwner
from redistrib.backends.mpi.shared import Block, SharedCopies, SharedTile
from redistrib.backends.mpi.transports import TypedNeighbours
from redistrib.backends.mpi.wire import MpiWire
from redistrib.backends.ranks.host_memory import HostMemory
from redistrib.backends.ranks.move import MIDDLE, RankMove, finish
from redistrib.backends.ranks.runners import Packed, Runner, kind_of_runner, runner_of
from redistrib.backends.stages import Memory, Stage, StagedPlan, staged, staged_directly
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import MachineLike
from redistrib.errors import CommunicatorError, MemoryLimitError, RedistribError, TilesError
from redistrib.plans.data import Short
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllReduce, Step, Unreduce
from redistrib.plans.strided import Bytes
from redistrib.renamed import renamed

# The bit of a call's word that accepts the arrays; the bits below name the shared blocks that a rank has free.
_ACCEPTS = 62

DIRECT = "direct"  # the transport of a plan without its steps


@renamed("profile", "machine")
def to_mpi(
    plan: Plan,
    comm: MPI.Intracomm,
    *,
    memory_limit: int | str | None = None,
    machine: MachineLike | None = None,
    transport: str | None = None,
) -> Executor:
    """Prepare a plan to run on a communicator; collective, with equal arguments on all ranks.

    Rank r of the communicator is device number r of the plan's meshes. Ranks without a tile pass None and get None.
    Communicators of groups, datatypes and staging memory are created here, once.

    Args:
        plan: the plan, synthesized here or read from JSON.
        comm: an mpi4py communicator with one rank per device.
        memory_limit: bytes per rank for source, target and all memory between, an integer or a text such as
            `"2GiB"`; None for no limit.
        machine: a profile of `redistrib calibrate --backend mpi`, by which transports are chosen: the path of its JSON,
            the parsed JSON, or the profile itself; None for the default order.
        transport: "shared" (copies through memory that ranks of one host share), "packed" (contiguous collectives
            around local copies) or "datatypes" (`Alltoallw` without staging), for all steps.

    Raises:
        CommunicatorError: if the communicator does not have one rank per device, the ranks give different plans or
            arguments, or the transport cannot run on these ranks; the same message on every rank.
        ProfileError: if the profile is malformed or lacks the figures of a transport; on every rank.
        MemoryLimitError: if no transport fits the limit.
    """
    return Executor(plan, comm, memory_limit=memory_limit, machine=machine, transport=transport)


class Executor(CommunicatorOwner):
    """A prepared plan; see `to_mpi`.

    A call is collective. `free` releases communicators, datatypes and shared memory, on all ranks together; as a
    context manager the executor does so at the end of the block. Without `lasting` it allocates no memory that remains
    between calls, and so uses no shared memory.

    Attributes:
        plan: the plan.
        steps: its steps that move data; or one exchange from source to target, where the memory limit has no room for
            tiles between.
        transports: the transport of each of these steps.
        scratch_bytes: bytes of staging memory and accumulators on this rank, besides source, target and `middle_bytes`.
        staging_bytes: bytes of the part of it that all steps use in turn.
        middle_bytes: bytes of the tiles between source and target.
        sent_bytes, received_bytes: bytes that this rank sends to other ranks, and receives from them, in one call.
    """

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        *,
        memory_limit: int | str | None = None,
        machine: Any = None,
        transport: str | None = None,
        lasting: bool = True,
    ) -> None:
        model, limit = consistency.check(plan, comm, memory_limit, machine, transport)
        self.plan = plan
        self.dtype = dtype_of(plan.dtype)
        super().__init__(comm)
        self._staged: StagedPlan = staged(plan, comm.rank)
        ends = plan.before, plan.after
        self._source_shape, self._target_shape = (end.box(comm.rank).size for end in ends)
        self._has_source, self._has_target = (not end.nowhere[comm.rank] for end in ends)
        self._target_bytes = plan.after.tile_size * plan.itemsize  # of the largest tile: shared blocks have one size
        self._own_bytes = plan.after.box(comm.rank).volume * plan.itemsize
        self._lasting = lasting
        self.transports = self._choose(limit, model, transport)
        self._blocks: list[SharedTile] = []
        self._private: list[Block] = []
        self._current: SharedTile | None = None
        self._shared_middle: dict[Memory, SharedTile] = {}
        self._allocate()
        self._memory, self._wire = HostMemory(self.dtype), MpiWire(self._groups)
        runners = [self._runner(stage, k) for k, stage in enumerate(self._staged.stages)]
        self._move = RankMove(self._staged, comm.rank, runners, self._memory, plan.itemsize)
        self.staging_bytes = self._move.staging
        self.bind(np.empty(self.staging_bytes, np.uint8))
        self._middle: dict[Memory, Bytes] = {name: block.memory for name, block in self._shared_middle.items()}
        self._middle |= self._move.between(self._staging, self._shared_middle)
        self.scratch_bytes, self.middle_bytes = self._move.scratch_bytes, self._move.middle_bytes
        self.sent_bytes, self.received_bytes = self._move.sent_bytes, self._move.received_bytes

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(stage.step for stage in self._staged.stages)

    def bind(self, staging: Bytes) -> None:
        """Use this staging memory, of at least `staging_bytes`, in every call."""
        self._staging = staging

    # ------------------------------------------------------------------------------------------- running

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Redistribute: this rank's source tile in, its target tile out.

        Args:
            x: the tile, of shape `plan.before.box(rank).size`; never written, and not copied if it is C-contiguous.
                None on a rank without a source tile. Where tiles have unequal sizes, a tile may be empty.
            out: an array for the target tile, of shape `plan.after.box(rank).size`, C-contiguous; a new array by
                default. A new array may lie in memory shared between ranks, which saves a copy; it belongs to the
                caller.

        Returns:
            The target tile, a NumPy array; None on a rank without a target tile.

        Raises:
            TilesError: on every rank, with one message, if any rank passes a wrong array.
            CommunicatorError: if the executor was freed.
        """
        self._require_open()
        problem, source, out = self._check(x, out)
        block: Block | None = self._agree(problem, out)
        if block is not None:
            target = block.memory
        elif out is not None:
            target = flat(out)
        else:
            block = self._private_block()
            target = block.memory
        memory: dict[Memory, Bytes] = {"source": flat(source), "target": target, **self._middle}
        finish(self._move.run(memory, self._staging))
        if not self._has_target:
            return None
        if out is None:
            assert block is not None
            return block.lease().view(self.dtype).reshape(self._target_shape)
        if block is not None and not _same_memory(flat(out), target):
            np.copyto(flat(out), target)
        return out

    def _check(self, x: Any, out: Any) -> tuple[RedistribError | None, npt.NDArray[Any], npt.NDArray[Any] | None]:
        """The error in the arguments, None if there is none, and the arrays."""
        result = None
        try:
            if self._has_source:
                source = tile_of(x, "the array", self._source_shape, self.dtype, writable=False)
            else:
                source = absent_tile(x, "an array", self.dtype)
            if out is not None and not self._has_target:
                absent_tile(out, "out", self.dtype)
            elif out is not None:
                result = tile_of(out, "out", self._target_shape, self.dtype, writable=True)
                if result.size and np.may_share_memory(source, result):
                    raise TilesError("out overlaps the array that is redistributed; pass memory of its own")
        except RedistribError as error:
            return error, np.empty(0, self.dtype), None
        return None, source, result

    def _agree(self, problem: RedistribError | None, out: npt.NDArray[Any] | None) -> SharedTile | None:
        """Raise the first problem of any rank on all ranks; else a shared block for the result that all have free."""
        free = 0
        for k, block in enumerate(self._blocks):
            free |= (block.free or (out is not None and _same_memory(flat(out), block.memory))) << k
        agreed = self._groups.agree(free | (0 if problem else 1 << _ACCEPTS))
        if not agreed >> _ACCEPTS & 1:
            consistency.require_no_problem(self.comm, problem)
        if not self._shares_target:
            return None
        agreed &= (1 << _ACCEPTS) - 1
        if agreed:
            self._current = self._blocks[(agreed & -agreed).bit_length() - 1]
        else:
            self._current = self._new_block()
        return self._current

    # ---------------------------------------------------------------------------------------- preparing

    def _choose(self, limit: int | None, profile: LatencyBandwidth | None, forced: str | None) -> list[str]:
        """The transport of every stage; equal on all ranks, since it depends on the maxima over the ranks."""
        stages, hosts = self._staged.stages, self._groups.hosts
        size = self.plan.itemsize
        source_bytes = self.plan.before.tile_size * size
        middle = sum(self._staged.middle)
        # Pages of another rank that a rank writes count as its resident memory, and so does the shared block behind a
        # private `out`.
        behind = self._target_bytes
        free_bytes = shared.free_shared_memory()
        in_staging = sum(stage.received_bytes for stage in stages if reductions.adds(stage))
        needed = self._groups.host.size * (2 * self._target_bytes + middle + in_staging) if stages else 0
        fits = self._lasting and self.comm.allreduce(free_bytes is None or needed * 1.1 < free_bytes, MPI.LAND)
        rows = np.zeros((len(stages), 6), np.int64)
        for k, stage in enumerate(stages):
            partners = stage.partners
            away = any(hosts[device] != hosts[self.comm.rank] for device in partners)
            packed, typed, shares = (_kind(stage, name).most_bytes(stage) for name in ("packed", "datatypes", "shared"))
            rows[k] = packed, shares + behind, stage.received_bytes, len(partners) + 1, away, typed
        self.comm.Allreduce(MPI.IN_PLACE, rows, MPI.MAX)
        self._received = rows[:, 2].tolist()
        table = []
        for k, stage in enumerate(stages):
            scratch = {"packed": int(rows[k, 0]), "datatypes": int(rows[k, 5])}
            if fits and not rows[k, 4]:
                scratch["shared"] = int(rows[k, 1])
            if isinstance(stage.step, AllReduce | Unreduce):
                scratch = {"packed" if isinstance(stage.step, AllReduce) else "local": int(rows[k, 0])}
            elif forced is not None:
                if forced not in scratch:
                    raise CommunicatorError(
                        f"step {stage.step.kind} cannot run through shared memory: its ranks are on different hosts, "
                        f"or {shared.SHARED_MEMORY} has less than {needed:,} bytes left; leave transport out"
                    )
                scratch = {forced: scratch[forced]}
            seconds = {name: selection.predicted(profile, name, int(rows[k, 3]), int(rows[k, 2])) for name in scratch}
            table.append({name: (seconds[name], scratch[name]) for name in scratch})
        ends = source_bytes + self._target_bytes
        found = selection.choose(table, ends + middle, limit, frozenset({"shared"}))
        if not isinstance(found, Short):
            return found
        moves_only = max(self.plan.before.summands, self.plan.after.summands) == 1
        if not middle or forced is not None or self.plan.leaves_devices_out or not moves_only:
            raise MemoryLimitError(limit or 0, found.least)
        if limit is not None and limit < ends:
            raise MemoryLimitError(limit, ends)
        self._staged = staged_directly(self.plan, self.comm.rank)
        return [DIRECT]

    def _allocate(self) -> None:
        stages = zip(self._staged.stages, self.transports, strict=True)
        in_shared_memory = {stage.writes for stage, name in stages if name == "shared"}
        self._shares_target = "target" in in_shared_memory
        for memory, nbytes in zip(MIDDLE, self._staged.middle, strict=True):
            if nbytes and memory in in_shared_memory:
                self._shared_middle[memory] = SharedTile(self._groups.host, self._groups.barrier, nbytes)
        if self._shares_target:
            self._new_block()

    def _new_block(self) -> SharedTile:
        free_bytes = shared.free_shared_memory()
        short = free_bytes is not None and free_bytes < self._groups.host.size * self._target_bytes
        if self.comm.allreduce(short or len(self._blocks) >= _ACCEPTS, MPI.LOR):
            raise CommunicatorError(
                f"no shared memory is left for another result of {self._target_bytes:,} bytes beside the "
                f"{len(self._blocks)} in use; drop results no longer needed, or take transport='packed'"
            )
        block = SharedTile(self._groups.host, self._groups.barrier, self._target_bytes, self._own_bytes)
        self._blocks.append(block)
        return block

    def _private_block(self) -> Block:
        """Memory for a result that no other rank writes; memory used before has no page faults."""
        block = next((b for b in self._private if b.free), None)
        if block is None:
            block = Block(np.empty(self._own_bytes, np.uint8))
            self._private.append(block)
        return block

    def _runner(self, stage: Stage, k: int) -> Runner:
        name, groups, memory = self.transports[k], self._groups, self._memory
        kind = _kind(stage, name)
        if kind is reductions.SharedSum:
            return reductions.SharedSum(
                stage, memory, groups.host_rank, lambda nbytes: SharedTile(groups.host, groups.barrier, nbytes),
                self._received[k],
            )  # fmt: skip
        if kind is SharedCopies:
            mixed = k > 0 and (self.transports[k - 1] != "shared" or reductions.adds(self._staged.stages[k - 1]))
            return SharedCopies(stage, memory, groups.host_rank, self._place(stage.writes), mixed)
        if kind is reductions.TypedSum:
            return reductions.TypedSum(stage, memory, self.comm)
        if kind is TypedNeighbours:
            return TypedNeighbours(stage, memory, groups.around(stage))
        return runner_of(stage, self._wire, memory)

    def _place(self, memory: Memory) -> Any:
        if memory == "target":
            executor = weakref.proxy(self)  # without a cycle, results are released once they are dropped
            return lambda: executor._current
        block = self._shared_middle[memory]
        return lambda: block

    # ------------------------------------------------------------------------------------------- freeing

    def _release(self) -> None:
        self._private.clear()
        self._wire.free()
        for runner in self._move.runners:
            runner.free()
        for block in [*self._shared_middle.values(), *self._blocks]:
            if self.comm.allreduce(block.free, MPI.LAND):
                block.close()


def _kind(stage: Stage, transport: str) -> type[Runner]:
    """The class of the runner of a stage, by a transport."""
    adds = reductions.adds(stage)
    if transport == "shared":
        return reductions.SharedSum if adds else SharedCopies
    if transport in ("datatypes", DIRECT):
        return reductions.TypedSum if adds else TypedNeighbours
    return Packed if reductions.is_native(stage) else kind_of_runner(stage)


def _same_memory(a: Bytes, b: Bytes) -> bool:
    return a.nbytes == b.nbytes and a.__array_interface__["data"] == b.__array_interface__["data"]
