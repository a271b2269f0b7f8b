"""A plan on an MPI communicator: made once, run any number of times."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi import agreement, choice, messages, replacing, shared
from redistrib.backends.mpi.arrays import dtype_of, flat, tile_of
from redistrib.backends.mpi.groups import Groups
from redistrib.backends.mpi.messages import Runner
from redistrib.backends.mpi.replacing import Replacement
from redistrib.backends.mpi.shared import Block, Shared, SharedTile
from redistrib.backends.mpi.stage import Memory, Route, Stage, route
from redistrib.errors import ArrayMismatchError, CommunicatorError, MemoryLimitError, RedistribError
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll
from redistrib.plans.strided import Bytes, Strided, copy, inside, pair

# Bits of the word that all ranks agree on before a call: all is well; the result goes to memory of the caller's own.
# The bits below say which shared blocks a rank has free.
_FINE = 62
_OWN_OUT = 61


def to_mpi(
    plan: Plan,
    comm: MPI.Intracomm,
    *,
    memory_limit: int | None = None,
    profile: Mapping[str, Any] | None = None,
    realisation: str | None = None,
) -> Executor:
    """Prepare a plan to run on a communicator; to be called on all its ranks together, with equal arguments.

    Rank r of the communicator is device number r of the plan's meshes. Groups, datatypes and staging memory are made
    here, once.

    Args:
        plan: the plan, synthesized here or read from JSON.
        comm: an mpi4py communicator with one rank per device.
        memory_limit: bytes per rank for source, target and everything between; None for no limit.
        profile: what `calibrate.run` returned, to choose between realisations; None for the usual order.
        realisation: "shared" (copies through memory that ranks of one host share), "packed" (contiguous collectives
            around local copies) or "datatypes" (`Alltoallw` without any staging), to insist on one.

    Raises:
        CommunicatorError: if the communicator does not have one rank per device, the ranks give different plans or
            arguments, or the realisation asked for cannot be had; the same message on every rank.
        MemoryLimitError: if nothing fits the limit.
    """
    return Executor(plan, comm, memory_limit=memory_limit, profile=profile, realisation=realisation)


class Executor:
    """A plan ready to run; see `to_mpi`.

    Calling it is collective. `free` gives groups, datatypes and shared memory back, on all ranks together; used
    as a context manager it does so at the end of the block.

    Attributes:
        plan: what it runs.
        realisations: the realisation of every step that moves data, in order.
        scratch_bytes: staging memory on this rank, beside source, target and `middle_bytes`.
        middle_bytes: memory for tiles between source and target.
        sent_bytes, received_bytes: what this rank sends to and receives from other ranks in one call.
    """

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        *,
        memory_limit: int | None = None,
        profile: Mapping[str, Any] | None = None,
        realisation: str | None = None,
    ) -> None:
        agreement.check(plan, comm, memory_limit, profile, realisation)
        plan.require_whole("to_mpi")
        self.plan = plan
        self.dtype = dtype_of(plan.dtype)
        self.comm: MPI.Intracomm = comm.Dup()
        self._groups = Groups(self.comm)
        self._route: Route = route(plan, comm.rank)
        self._source_shape, self._target_shape = plan.before.tile, plan.after.tile
        self._target_bytes = plan.after.tile_size * plan.itemsize
        self._replacement: Replacement | None = None
        self.realisations = self._choose(memory_limit, profile, realisation)
        self._blocks: list[SharedTile] = []
        self._private: list[Block] = []
        self._current: SharedTile | None = None
        self._shared_middle: dict[Memory, SharedTile] = {}
        self._middle: dict[Memory, Bytes] = {}
        self._make_memory()
        self._runners = [self._runner(k, name) for k, name in enumerate(self.realisations)]
        self._straight = self._straight_runners() if realisation is None else None
        staging = max((r.scratch for r in self._runners), default=0)
        scratch = np.empty(staging, np.uint8)
        for runner in self._runners:
            runner.bind(scratch)
        self.scratch_bytes = staging
        self.middle_bytes = sum(self._route.middle)
        self.sent_bytes = sum(stage.sent_bytes for stage in self._route.stages)
        self.received_bytes = sum(stage.received_bytes for stage in self._route.stages)
        self._open = True

    # ------------------------------------------------------------------------------------------- running

    def __call__(self, x: Any, out: Any = None) -> npt.NDArray[Any]:
        """Redistribute: this rank's source tile in, its target tile out.

        Args:
            x: the tile, of shape `plan.before.tile`; never written. A C-contiguous one is not copied.
            out: where to put the target tile, of shape `plan.after.tile`, C-contiguous; a new array by default. New
                arrays may lie in memory shared between ranks, which saves a copy; they are the caller's to keep.

        Raises:
            ArrayMismatchError: on every rank, with one message, if any rank passes a wrong array.
            CommunicatorError: if the executor was freed.
        """
        if not self._open:
            raise CommunicatorError("this executor was freed; make another with to_mpi")
        problem, source, given = self._accept(x, out)
        block: Block | None = self._agree(problem, given)
        if block is not None:
            target = block.own
        elif given is not None:
            target = flat(given)
        else:
            block = self._private_block()
            target = block.own
        memory = {"source": flat(source), "target": target, **self._middle}
        runners = self._runners if block is not None or self._straight is None else self._straight
        for stage, runner in zip(self._route.stages, runners, strict=True):
            runner.run(memory[stage.reads], memory[stage.writes])
        if self._route.last != "target":
            box = self.plan.after.box(self.comm.rank)
            if box.volume:
                of, to = pair(box, self._route.held.box(self.comm.rank), box, self.plan.itemsize)
                copy(target, to, memory[self._route.last], of)
        if given is None:
            assert block is not None
            return block.lease().view(self.dtype).reshape(self._target_shape)
        if not _same_memory(flat(given), target):
            copy(flat(given), whole := Strided(target.nbytes, (), (), 0), target, whole)
        return given

    def _accept(self, x: Any, out: Any) -> tuple[str, npt.NDArray[Any], npt.NDArray[Any] | None]:
        """What is wrong with the arrays, if anything, and the arrays themselves."""
        given = None
        try:
            source = tile_of(x, "the array", self._source_shape, self.dtype, writable=False)
            if out is not None:
                given = tile_of(out, "out", self._target_shape, self.dtype, writable=True)
                if given.size and np.may_share_memory(source, given):
                    raise ArrayMismatchError("out overlaps the array that is redistributed; pass memory of its own")
        except RedistribError as error:
            return str(error), np.empty(0, self.dtype), None
        return "", source, given

    def _agree(self, problem: str, given: npt.NDArray[Any] | None) -> SharedTile | None:
        """One word from every rank: whether all is well, and a shared block that all have free for the result."""
        free, own_out = 0, given is not None
        for k, block in enumerate(self._blocks):
            lent = given is not None and _same_memory(flat(given), block.own)
            free |= (block.free or lent) << k
            own_out = own_out and not lent
        free |= own_out << _OWN_OUT
        agreed = self._groups.agree(free | (0 if problem else 1 << _FINE))
        if not agreed >> _FINE & 1:
            problems = self.comm.allgather(problem)
            rank = next(r for r, text in enumerate(problems) if text)
            raise ArrayMismatchError(f"rank {rank}: {problems[rank]}")
        if not self._shares_target or (self._straight is not None and agreed >> _OWN_OUT & 1):
            return None
        agreed &= (1 << _OWN_OUT) - 1
        if agreed:
            self._current = self._blocks[(agreed & -agreed).bit_length() - 1]
        else:
            self._current = self._new_block()
        return self._current

    # -------------------------------------------------------------------------------------------- making

    def _choose(self, limit: int | None, profile: Mapping[str, Any] | None, forced: str | None) -> list[str]:
        """The realisation of every stage; equal on all ranks, since the figures are those of the worst rank."""
        stages, hosts = self._route.stages, self._groups.hosts
        size = self.plan.itemsize
        source_bytes = self.plan.before.tile_size * size
        middle = sum(self._route.middle)
        # Pages of other ranks' memory that a rank writes count as its own resident memory, as does the block that
        # stands behind a private `out`.
        behind = self._target_bytes
        room = shared.free_shared_memory()
        wanted = self._groups.host.size * (2 * self._target_bytes + middle) if stages else 0
        fits = self.comm.allreduce(room is None or wanted * 1.1 < room, MPI.LAND)
        rows = np.zeros((len(stages), 5), np.int64)
        for k, stage in enumerate(stages):
            partners = {device for device, _ in stage.sends + stage.receives}
            away = any(hosts[device] != hosts[self.comm.rank] for device in partners)
            figures = _packed_scratch(stage), stage.sent_bytes + behind, stage.received_bytes, len(partners) + 1, away
            rows[k] = figures
        self.comm.Allreduce(MPI.IN_PLACE, rows, MPI.MAX)
        table = []
        for k, stage in enumerate(stages):
            scratch = {"packed": int(rows[k, 0]), "datatypes": 0}
            if fits and not rows[k, 4]:
                scratch["shared"] = int(rows[k, 1])
            if forced is not None:
                if forced not in scratch:
                    raise CommunicatorError(
                        f"step {stage.step.kind} cannot run through shared memory: its ranks are on different hosts, "
                        f"or {shared.SHARED_MEMORY} has less than {wanted:,} bytes left; leave realisation out"
                    )
                scratch = {forced: scratch[forced]}
            seconds = {name: choice.predicted(profile, name, int(rows[k, 3]), int(rows[k, 2])) for name in scratch}
            table.append({name: (seconds[name], scratch[name]) for name in scratch})
        ends = source_bytes + self._target_bytes
        try:
            return choice.choose(table, ends + middle, limit, frozenset({"shared"}))
        except MemoryLimitError:
            if not middle or forced is not None or limit is None:
                raise
            replacement = replacing.replacement(self.plan, self.comm.rank)
            if not self.comm.allreduce(replacement is not None, MPI.LAND):
                raise
        assert replacement is not None
        return self._replace(replacement, limit, ends)

    def _replace(self, replacement: Replacement, limit: int, ends: int) -> list[str]:
        """Run in source and target memory alone, with what the limit leaves for staging."""
        share = 2 * self.comm.allreduce(replacement.share, MPI.MAX)
        if limit - ends < min(share, replacing.LEAST):
            raise MemoryLimitError(limit, ends + min(share, replacing.LEAST))
        self._replacement, self._staging = replacement, min(share, replacing.MOST, limit - ends)
        self._route = Route(replacement.stages, "target", self.plan.after, (0, 0))
        replaced = len(replacement.stages) - replacement.gathers
        return ["replacing"] * replaced + ["datatypes"] * replacement.gathers

    def _make_memory(self) -> None:
        self._shares_target = any(
            name == "shared" and stage.writes == "target"
            for stage, name in zip(self._route.stages, self.realisations, strict=True)
        )
        memories: tuple[Memory, Memory] = ("middle 0", "middle 1")
        for memory, nbytes in zip(memories, self._route.middle, strict=True):
            if not nbytes:
                continue
            if any(
                name == "shared" and stage.writes == memory
                for stage, name in zip(self._route.stages, self.realisations, strict=True)
            ):
                block = SharedTile(self._groups.host, self._groups.meeting, nbytes)
                self._shared_middle[memory] = block
                self._middle[memory] = block.own
            else:
                self._middle[memory] = np.empty(nbytes, np.uint8)
        if self._shares_target:
            self._new_block()

    def _new_block(self) -> SharedTile:
        room = shared.free_shared_memory()
        short = room is not None and room < self._groups.host.size * self._target_bytes
        if self.comm.allreduce(short or len(self._blocks) >= _OWN_OUT, MPI.LOR):
            raise CommunicatorError(
                f"no shared memory is left for another result of {self._target_bytes:,} bytes beside the "
                f"{len(self._blocks)} in use; drop results no longer needed, or take realisation='packed'"
            )
        block = SharedTile(self._groups.host, self._groups.meeting, self._target_bytes)
        self._blocks.append(block)
        return block

    def _private_block(self) -> Block:
        """Memory for a result that no other rank writes; memory seen before costs no page faults."""
        block = next((b for b in self._private if b.free), None)
        if block is None:
            block = Block(np.empty(self._target_bytes, np.uint8))
            self._private.append(block)
        return block

    def _runner(self, k: int, name: str) -> Runner:
        stage = self._route.stages[k]
        if self._replacement is not None and name == "replacing":
            return self._replacement.runner(k, self.comm, self._staging)
        if name == "shared":
            mixed = k > 0 and self.realisations[k - 1] != "shared"
            return Shared(stage, self._groups.host_rank, self._place(stage.writes), mixed)
        make = messages.packed if name == "packed" else messages.typed
        return make(stage, self.comm, lambda: self._groups.of(stage))

    def _straight_runners(self) -> list[Runner] | None:
        """Runners that write memory of the caller's own, where MPI does so in one copy and shared memory takes two.

        So it is for gathers and permutes, and where what is sent is contiguous: MPI takes that from one rank's memory
        straight to another's.
        """
        last = [k for k, stage in enumerate(self._route.stages) if stage.writes == "target"]
        if not last or not all(self.realisations[k] == "shared" and _one_copy(self._route.stages[k]) for k in last):
            return None
        return [self._runner(k, "datatypes") if k in last else runner for k, runner in enumerate(self._runners)]

    def _place(self, memory: Memory) -> Any:
        if memory == "target":
            executor = weakref.proxy(self)  # no cycle: results must be released as soon as they are dropped
            return lambda: executor._current
        block = self._shared_middle[memory]
        return lambda: block

    # ------------------------------------------------------------------------------------------- freeing

    def free(self) -> None:
        """Give everything back; collective. Results already handed out stay valid. A second call does nothing."""
        if not self._open:
            return
        self._open = False
        self._private.clear()
        for runner in {*self._runners, *(self._straight or [])}:
            runner.free()
        for block in [*self._shared_middle.values(), *self._blocks]:
            if self.comm.allreduce(block.free, MPI.LAND):
                block.close()
        self._groups.free()
        self.comm.Free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:  # after an error the ranks may not be together any more
            self.free()


def _one_copy(stage: Stage) -> bool:
    """Whether MPI moves this stage between two ranks' own memories in one copy; alike on all ranks."""
    if isinstance(stage.step, AllGather | AllPermute):
        return True
    if not isinstance(stage.step, AllToAll):
        return False
    moves = [inside(box, stage.source, stage.itemsize) for _, box in stage.sends]
    return all(runs.contiguous for runs in moves)


def _packed_scratch(stage: Stage) -> int:
    """An upper bound on the staging of the packed realisation, without making it."""
    own = sum(box.volume for box in stage.kept) * stage.itemsize
    return stage.sent_bytes + stage.received_bytes + 2 * own


def _same_memory(a: Bytes, b: Bytes) -> bool:
    return a.nbytes == b.nbytes and a.ctypes.data == b.ctypes.data
