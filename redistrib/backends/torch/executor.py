"""A plan on a process group of `torch.distributed`: prepared once, run any number of times."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from redistrib.backends.digests import digest_of
from redistrib.backends.ranks.arguments import compared_arguments, require_absent, require_rank_each
from redistrib.backends.ranks.move import RankMove, finish
from redistrib.backends.ranks.runners import runner_of
from redistrib.backends.stages import staged
from redistrib.backends.torch.agreement import GroupCall, require_equal, wrong_call
from redistrib.backends.torch.dtypes import source_words, torch_dtype, word_of, words
from redistrib.backends.torch.links import Links
from redistrib.backends.torch.memory import TensorMemory
from redistrib.backends.torch.wire import TensorWire
from redistrib.backends.torch.world import default_group
from redistrib.errors import CommunicatorError, MemoryLimitError, RedistribError, TilesError
from redistrib.plans.data import PlanData
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.plan import Plan

# An executor keeps staging memory of at most so many bytes between calls.
_STAYS = 1 << 16


def to_torch(
    plan: Plan, group: Any = None, *, memory_limit: int | str | None = None, check: bool = True
) -> TorchExecutor:
    """Prepare a plan to run on a process group; all its ranks call this together, with equal arguments.

    Rank r of the group is device number r of the plan's meshes. A rank without a source tile passes None, and a rank
    without a target tile gets None.

    Args:
        plan: the plan, synthesized here or read from JSON.
        group: a process group of `torch.distributed` with one rank per device; the default group if None.
        memory_limit: bytes per rank for source, target and all memory between, an integer or a text such as
            `"2GiB"`; None for no limit.
        check: whether all ranks compare their calls and arrays before data moves, by a short message between each pair
            of ranks. Without it the other ranks wait for a rank that makes another call.

    Raises:
        CommunicatorError: if the group does not have one rank per device, the ranks give different plans or
            arguments, or no plan (PyTorch runs no program). These errors have the same message on every rank, which
            names the first rank with one unless all have it.
        DtypeError: if PyTorch has no such element type.
        ChoiceError: if the limit has no meaning.
        MemoryLimitError: on every rank, if the plan does not fit the limit.
    """
    group = default_group() if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        raise CommunicatorError(f"{group!r} is no process group of this rank; pass one such as dist.group.WORLD")
    links = Links(group)
    limit, problem = None, None
    try:
        digest, limit = compared_arguments("plan", plan, PlanData, digest_of, memory_limit)
        require(plan)
        way_out = f"torchrun --nproc-per-node {plan.devices} or dist.new_group"
        require_rank_each("the plan is for", plan.devices, "the process group", links.size, way_out)
        call = GroupCall(_words(plan), links.size, f"{digest}|{limit}|{check}")
    except RedistribError as error:
        problem, call = error, wrong_call(error, links.size)
    require_equal(links, call, problem)
    executor = TorchExecutor(plan, links, call if check else None)
    if limit is not None:
        executor.require_limit(limit)
    return executor


def require(plan: Plan) -> None:
    """Refuse a plan that no process group can carry out.

    Raises:
        DtypeError, MissingPackageError: if PyTorch lacks the element type, or its name needs ml_dtypes.
    """
    torch_dtype(plan.dtype)
    dtype_of(plan.dtype)


class TorchExecutor:
    """A plan ready to run; see `to_torch`. Calling it is collective.

    Attributes:
        plan: the plan.
        transports: the transport of each step that moves data, in order.
        scratch_bytes: bytes of staging memory and accumulators on this rank, besides source, target and `middle_bytes`.
        middle_bytes: bytes of the tiles between source and target.
        sent_bytes, received_bytes: bytes that this rank sends to other ranks, and receives from them, in one call.
    """

    def __init__(self, plan: Plan, links: Links, call: GroupCall | None = None) -> None:
        """Prepare a plan that all ranks are known to prepare; collective.

        Args:
            plan: the plan.
            links: one process for each of its devices.
            call: the description that all ranks compare before data moves; None to compare nothing.
        """
        self.plan, self._links, self._call = plan, links, call
        self.dtype = torch_dtype(plan.dtype)
        self._word = word_of(self.dtype)
        before, after = (end.box(links.rank) for end in (plan.before, plan.after))
        self._has_source, self._has_target = (not end.nowhere[links.rank] for end in (plan.before, plan.after))
        self._source_shape, self._target_shape = before.size, after.size
        stages, memory, wire = staged(plan, links.rank), TensorMemory(dtype_of(plan.dtype)), TensorWire(links)
        runners = [runner_of(stage, wire, memory) for stage in stages.stages]
        self._move = RankMove(stages, links.rank, runners, memory, plan.itemsize)
        self.transports = self._move.transports
        self.scratch_bytes, self.middle_bytes = self._move.scratch_bytes, self._move.middle_bytes
        self.sent_bytes, self.received_bytes = self._move.sent_bytes, self._move.received_bytes
        self._staging: torch.Tensor | None = None

    def require_limit(self, limit: int) -> None:
        """Refuse, on every rank, a plan that exceeds a limit in bytes on any rank; collective.

        Raises:
            MemoryLimitError: names the bytes of the fullest rank.
        """
        ends = (self.plan.before.tile_size + self.plan.after.tile_size) * self.plan.itemsize
        device = self._device(None, None)
        bytes_here = torch.full((self._links.size,), ends + self.middle_bytes + self.scratch_bytes, device=device)
        others = torch.empty_like(bytes_here)
        self._links.all_to_all(others, bytes_here)
        if int(others.max()) > limit:
            raise MemoryLimitError(limit, int(others.max()))

    def __call__(self, x: torch.Tensor | None, out: torch.Tensor | None = None) -> torch.Tensor | None:
        """Redistribute: from this rank's source tile to its target tile.

        Args:
            x: the tile, of shape `plan.before.box(rank).size`; never written, and not copied if it is contiguous. None
                on a rank without a source tile.
            out: memory for the target tile, of shape `plan.after.box(rank).size`, contiguous; by default new memory.

        Returns:
            The target tile; None on a rank without one. On an accelerator it is returned when the work has
            been enqueued.

        Raises:
            TilesError: on every rank, if any rank passes a wrong tensor, and calls are compared.
            CommunicatorError: on every rank, if another rank makes another call on the group, and calls are compared.
        """
        problem = self._wrong(x, out)
        device = self._device(x, out)
        if self._call is not None:
            require_equal(self._links, self._call, problem)
        elif problem is not None:
            raise problem
        with torch.no_grad():
            result = self.moved(x, out, device)
        return result if self._has_target else None

    def moved(self, x: torch.Tensor | None, out: torch.Tensor | None, device: torch.device) -> torch.Tensor:
        """The target tile, from checked arguments without gradient; calls are not compared."""
        if out is None:
            out = torch.empty(self._target_shape, dtype=self.dtype, device=device)
        target = words(out)
        memory = {"source": source_words(x, self.dtype, device), "target": target, **self._move.between(target)}
        finish(self._move.run(memory, self._staging_on(device)))
        return out

    def _staging_on(self, device: torch.device) -> torch.Tensor:
        if self._staging is not None and self._staging.device == device:
            return self._staging
        staging = torch.empty(self._move.staging, dtype=self._word, device=device)
        if staging.nbytes <= _STAYS:
            self._staging = staging
        return staging

    def _device(self, x: torch.Tensor | None, out: torch.Tensor | None) -> torch.device:
        for tensor in (x, out):
            if isinstance(tensor, torch.Tensor):
                if self._links.batched and tensor.device.type == "cpu":
                    break
                return tensor.device
        return self._links.device

    def _wrong(self, x: Any, out: Any) -> TilesError | None:
        """The error in the tensors, or None."""
        try:
            self._require_tensor(x, "the tensor", self._source_shape, self._has_source)
            if out is not None:
                self._require_tensor(out, "out", self._target_shape, self._has_target)
                if not out.is_contiguous():
                    raise TilesError(f"out is not contiguous, with strides {out.stride()}; pass a contiguous tensor")
                if isinstance(x, torch.Tensor) and _overlap(x, out):
                    raise TilesError("out overlaps the tensor that is redistributed; pass memory of its own")
        except TilesError as error:
            return error
        return None

    def _require_tensor(self, value: Any, name: str, shape: tuple[int, ...], has: bool) -> None:
        if not has:
            require_absent(value, name)
            return
        if type(value) is not torch.Tensor and not isinstance(value, torch.Tensor):
            raise TilesError(f"{name} is {type(value).__name__} where this rank's tile is {list(shape)}; pass a tensor")
        if value.dtype != self.dtype:
            raise TilesError(f"{name} has dtype {value.dtype} where {self.dtype} is due; convert it with .to")
        if tuple(value.shape) != shape:
            raise TilesError(
                f"{name} has shape {list(value.shape)} where the tile is {list(shape)}; pass this rank's tile, not the "
                "whole tensor"
            )
        if value.layout != torch.strided:
            raise TilesError(f"{name} has the layout {value.layout}; pass a dense tensor, value.to_dense() for example")


def _words(plan: Plan) -> str:
    return f"the plan {plan.source} on {plan.source_mesh!r} to {plan.target} on {plan.target_mesh!r}, {plan.dtype}"


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors may share an element: the spans of their elements in memory meet."""
    if not a.numel() or not b.numel() or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    spans = []
    for tensor in (a, b):
        first = tensor.storage_offset() * tensor.element_size()
        last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) * tensor.element_size()
        spans.append((first, first + last + tensor.element_size()))
    return bool(spans[0][0] < spans[1][1] and spans[1][0] < spans[0][1])
