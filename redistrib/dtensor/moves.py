"""The move of a DTensor from a layout to another: its plans, prepared once for all tensors of one spec.

Most moves are one plan. Partial sums that go to other ranks, or that have tiles of unequal size, are reduced first; the
rest of the move is a second plan. Placements that plans do not know move by DTensor's own steps, on one mesh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

from redistrib.backends.torch.agreement import GroupCall, wrong_call
from redistrib.backends.torch.channels import Channel, announce, channel_of, compare
from redistrib.backends.torch.dtypes import can_plan, name_of
from redistrib.backends.torch.executor import TorchExecutor
from redistrib.backends.torch.private import is_simulated, moved_by_dtensor
from redistrib.backends.torch.reductions import reduce_over
from redistrib.backends.torch.world import OfWorld
from redistrib.cache import Cache
from redistrib.dtensor.layouts import DTensorLayout, RedistributeSpec
from redistrib.errors import DTensorError, DtypeError, RedistribError, ReductionError, TypeFormError
from redistrib.lang.placements import kind_of, reduction_of, sizes_of
from redistrib.plans.plan import Plan
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.topology import Topology


@dataclass(frozen=True)
class Reduce:
    """An all-reduce of the tiles along mesh dimensions of the source."""

    dims: tuple[int, ...]


@dataclass(frozen=True)
class Planned:
    """A plan, and the global rank of each of its devices."""

    plan: Plan
    members: tuple[int, ...]


def steps_of(spec: RedistributeSpec) -> list[Planned | Reduce] | None:
    """The steps of a move, in order; None for DTensor's own, from the source to the target on the same mesh.

    Raises:
        RedistribError: if a layout has no meaning as a type and DTensor does not know the move either, or no plan keeps
            the limit.
    """
    _require_target(spec.source, spec.target)
    try:
        return _planned_steps(spec)
    except (TypeFormError, DtypeError, ReductionError):
        if spec.source.mesh != spec.target.mesh or spec.options.memory_limit is not None or not _ascends(spec.source):
            raise
        return None


def _ascends(layout: DTensorLayout) -> bool:
    """Whether the ranks of a mesh ascend: DTensor's own steps order the ranks of a mesh dimension by number."""
    return list(layout.ranks) == sorted(layout.ranks)


def _planned_steps(spec: RedistributeSpec) -> list[Planned | Reduce]:
    source = spec.source
    for layout in (source, spec.target):
        for placement in layout.placements:
            kind_of(placement)
    if source.partial:
        reduction_of(source.placements)
        if not can_plan(spec.dtype):
            raise DtypeError(str(spec.dtype))
    steps: list[Planned | Reduce] = []
    if source.partial and (not spec.same_ranks or _uneven(spec)):
        reduced = _reduced(spec)
        if reduced is None:
            steps.append(Reduce(tuple(source.partial)))
            source = source.reduced(Replicate())
        else:
            steps.append(_planned(replace(spec, target=reduced)))
            source = reduced
    steps.append(_planned(replace(spec, source=source)))
    return steps


def _require_target(source: DTensorLayout, target: DTensorLayout) -> None:
    """Refuse a target with partial sums that the source does not have, as DTensor does."""
    for k, placement in enumerate(target.placements):
        if placement.is_partial() and (source.mesh != target.mesh or source.placements[k] != placement):
            raise DTensorError("partial target", value=placement)


def _uneven(spec: RedistributeSpec) -> bool:
    return any(spec.typed_placement(layout).cuts for layout in (spec.source, spec.target))


def _reduced(spec: RedistributeSpec) -> DTensorLayout | None:
    """The source's layout with partial sums reduced to shards, or to replicas; None if tiles are uneven.

    Raises:
        DTensorError: if the target keeps partial sums, in tiles of unequal size.
    """
    source = spec.source
    if spec.target.partial:
        raise DTensorError("partial target", value=spec.target.placements[spec.target.partial[0]])
    if spec.typed_placement(source).cuts:
        return None
    parts = prod(sizes_of(source.mesh)[k] for k in source.partial)
    tile = spec.typed_placement(source).tile
    for dim in sorted(range(len(tile)), key=lambda dim: -tile[dim]):
        # A shard of a later mesh dimension would cut first.
        cuts_later = any(
            kind_of(placement) in ("shard", "strided") and placement.dim in (dim, dim - len(tile))
            for placement in source.placements
        )
        if tile[dim] and tile[dim] % parts == 0 and not cuts_later:
            return source.reduced(Shard(dim))
    return source.reduced(Replicate())


def _planned(spec: RedistributeSpec) -> Planned:
    (source_type, source_mesh), (target_type, target_mesh) = spec.typed(spec.source), spec.typed(spec.target)
    model = spec.options.machine
    if model is None:
        model = "gloo" if spec.source.mesh.device_type == "cpu" else "gpu"
    hosts = spec.options.topology
    topology = None if hosts is None else Topology.of([hosts[rank] for rank in spec.members])
    plan = synthesize(
        source_type, source_mesh, target_type, target_mesh, dtype=name_of(spec.planned_dtype), model=model,
        memory_limit=spec.options.memory_limit, topology=topology,
    )  # fmt: skip
    return Planned(plan, spec.members)


class PreparedRedistribute:
    """A move; all its ranks prepare it together when it first runs.

    Attributes:
        spec: the spec of the move.
        call: the description that all ranks compare before data moves.
        takes_part, has_source, has_target: whether this rank is in one of the meshes, in the source's, in the target's.
        stays: whether the tensor has the layout of the target already.
        result_spec: PyTorch's spec of its results.
        problem: the error that prevents the move, or None.
    """

    def __init__(self, spec: RedistributeSpec) -> None:
        self.spec = spec
        rank = dist.get_rank()
        self.takes_part = rank in spec.members
        self.has_source, self.has_target = rank in spec.source.ranks, rank in spec.target.ranks
        self.stays = spec.source == spec.target
        self._simulated = is_simulated()
        self._ready: Channel | None = None  # of the ranks that have prepared it
        self.problem: RedistribError | None = None
        self._planned: list[Planned | Reduce] | None = []  # as `steps_of`
        self._steps: list[Reduce | Callable[..., torch.Tensor]] = []  # those in which this rank takes part
        self._inner: list[Channel] = []  # of the plans that only some ranks run
        self.result_spec = spec.result_spec
        self._divisor = 1
        self._source_shape = spec.local_shape(spec.source)
        self.target_shape = spec.local_shape(spec.target)
        if not self.takes_part:
            return
        self.call = GroupCall(f"redistribute of {spec}", len(spec.members))
        try:
            self._planned = [] if self.stays else None if self._simulated else steps_of(spec)
        except RedistribError as error:
            self.problem = error
            return
        if spec.source.can_plan:
            reduced = [k for k in spec.source.partial if k not in spec.target.partial]
            averaged = [k for k in reduced if spec.source.placements[k].reduce_op == "avg"]
            self._divisor = prod(sizes_of(spec.source.mesh)[k] for k in averaged)

    @property
    def plans(self) -> list[Plan]:
        """The plans, in order.

        Raises:
            RedistribError: if there is none.
        """
        if self.problem is not None:
            raise self.problem
        return [step.plan for step in self._planned or () if isinstance(step, Planned)]

    def wrong(self, local: torch.Tensor) -> RedistribError | None:
        """The error of a local tensor that is not of the source, or of the move; None if there is none."""
        return self.spec.wrong_local(local, self._source_shape) or self.problem

    def _prepare(self, channel: Channel) -> None:
        """Create the executors; collective, after all ranks have agreed."""
        self._steps, self._inner = [], []
        for step in self._planned or ():
            if isinstance(step, Reduce):
                self._steps.append(step)
            elif step.plan.before == step.plan.after or dist.get_rank() not in step.members:
                continue
            elif step.members == channel.members:
                self._steps.append(TorchExecutor(step.plan, channel.links).moved)
            else:
                inner = channel_of(step.members)
                with inner.call(self.call):
                    executor = TorchExecutor(step.plan, inner.links)
                self._inner.append(inner)
                self._steps.append(partial(self._moved_by_some, inner, executor))
        self._ready = channel

    def _is_stale(self) -> bool:
        """Whether the process group of a plan that some ranks run has ended with an error."""
        return any(channel_of(channel.members) is not channel for channel in self._inner)

    def _moved_by_some(self, inner: Channel, executor: TorchExecutor, *arguments: Any) -> torch.Tensor:
        """As `executor.moved`, in a call of the ranks of its plan within that of all ranks of the move."""
        with inner.call(self.call):
            return executor.moved(*arguments)

    def __call__(self, local: torch.Tensor, source: Any, check: bool | None = None) -> torch.Tensor:
        """The local tensor after the move, from the local tensor before it.

        Args:
            local: the tensor, without gradient; ignored on a rank that holds nothing.
            source: PyTorch's spec of the DTensor; its mesh has the process groups of the present.
            check: whether all ranks compare the call before data moves; by default the first time.

        Raises:
            RedistribError: on every rank, if the ranks make different calls, or a rank has a problem.
        """
        if not self.takes_part:
            return local.new_empty(0)
        if self._simulated:
            return self.by_dtensor(local, source)
        channel = self._ready
        if channel is None or not channel.is_open():
            channel = channel_of(self.spec.members)
        compares = True if check else check is None and not channel.knows(self.call)
        with channel.call(self.call, compares):
            problem = self.wrong(local)
            if compares:
                channel.agree(self.call, problem)
            elif problem is not None:
                raise channel.refuse_here(problem)
            if self._ready is not channel or self._is_stale():
                self._prepare(channel)
            if self._planned is None:
                channel.links.gate()  # DTensor's messages carry no tag
                return self.by_dtensor(local, source)
            result = self._moved(_viewed(local, self.spec.planned_dtype), source.mesh, channel)
        result = _viewed(result, self.spec.dtype)
        return self.spec.in_order(result) if self.has_target else result

    def by_dtensor(self, local: torch.Tensor, source: Any) -> torch.Tensor:
        """The local tensor after DTensor's own steps.

        Raises:
            DTensorError: if DTensor refuses them.
        """
        try:
            result = moved_by_dtensor(local, source, self.result_spec)
        except (NotImplementedError, AssertionError, TypeError, ValueError) as error:
            raise DTensorError("dtensor", move=str(self.spec), error=str(error)) from error
        # The platform adds the bytes of booleans.
        return result.view(torch.uint8) != 0 if result.dtype is torch.bool and not result.is_meta else result

    def _moved(self, local: torch.Tensor, mesh: Any, channel: Channel) -> torch.Tensor:
        current: torch.Tensor | None = None
        if self.has_source:
            current = local if self.spec.shape else local.reshape(self.spec.planned_shape)
        for step in self._steps:
            if isinstance(step, Reduce):
                channel.links.gate()
                if current is not None:
                    groups = [mesh.get_group(k) for k in step.dims]
                    current = reduce_over(groups, current, reduction_of(self.spec.source.placements))
            else:
                current = step(current, None, local.device)
        if self._divisor != 1 and current is not None:
            exact = current.is_floating_point() or current.is_complex()
            current = current / self._divisor if exact else current // self._divisor
        if not self.has_target:
            return local.new_empty(0)
        assert current is not None
        assert self.target_shape is not None
        if not self._steps:  # the result shares no memory with the source
            current = current.clone(memory_format=torch.contiguous_format)
        return current if current.shape == self.target_shape else current.reshape(self.target_shape)


def _viewed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


# The most recently used moves; a model's state has a few dozen specs.
_MOVES: OfWorld[Cache[PreparedRedistribute]] = OfWorld(lambda: Cache(1 << 10))


def move_of(spec: RedistributeSpec) -> PreparedRedistribute:
    """The move of a spec."""
    if not spec.source.can_plan:  # placements with memory of their own, as `_MaskPartial`
        return PreparedRedistribute(spec)
    return _MOVES.get().get(spec, lambda: PreparedRedistribute(spec))


def tell(members: tuple[int, ...], problem: RedistribError) -> RedistribError:
    """Tell other ranks a problem of this rank before a call; returns the error that all of them raise.

    Args:
        members: the ranks of the call, which concerns no other; empty if the arguments do not say them.
        problem: the problem.
    """
    if not dist.is_initialized() or is_simulated():
        return problem
    if not members:
        return announce(problem)
    if dist.get_rank() not in members:
        return problem
    try:
        compare(members, wrong_call(problem, len(members)), problem)
    except RedistribError as error:
        return error
    return problem
