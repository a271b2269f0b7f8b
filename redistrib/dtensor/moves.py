"""The move of a DTensor from a layout to another: its plans, prepared once for all tensors of one spec.

Most moves are one plan. Partial sums that go to other ranks, or that have tiles of unequal size, are reduced first; the
rest of the move is a second plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

from redistrib.backends.torch.agreement import GroupCall
from redistrib.backends.torch.channels import Channel, channel_of, compare
from redistrib.backends.torch.dtypes import name_of
from redistrib.backends.torch.executor import TorchExecutor
from redistrib.backends.torch.reductions import reduce_over
from redistrib.cache import Cache
from redistrib.errors import RedistribError, SpecError, TilesError
from redistrib.lang.mesh import Mesh
from redistrib.lang.placements import from_device_mesh, from_placements, kind_of, ranks_of, reduction_of
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.topology import Topology


@dataclass(frozen=True)
class DTensorLayout:
    """The mesh of a DTensor, and its placement for each mesh dimension."""

    mesh: Any
    placements: tuple[Any, ...]

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Global ranks, in the order of the mesh."""
        return ranks_of(self.mesh)

    @property
    def partial(self) -> list[int]:
        """The mesh dimensions with partial placements."""
        return [k for k, placement in enumerate(self.placements) if kind_of(placement) == "partial"]

    def with_placements(self, placements: Sequence[Any]) -> DTensorLayout:
        """The same mesh with other placements."""
        return DTensorLayout(self.mesh, tuple(placements))

    def __str__(self) -> str:
        return f"{list(self.placements)} on ranks {self.mesh.mesh.tolist()}"


@dataclass(frozen=True)
class Options:
    """The options that choose a plan.

    Attributes:
        memory_limit: bytes per rank for source, target and all memory between; None for no limit.
        cost_model: as for `redistrib.synthesize`; None for the preset of the mesh's devices.
        topology: the host of every rank of the default group, as numbers or names; None if unknown.
    """

    memory_limit: int | None = None
    cost_model: Any = None
    topology: tuple[Hashable, ...] | None = None


@dataclass(frozen=True)
class RedistributeSpec:
    """Everything that determines a move; tensors with equal specs share it.

    Attributes:
        source, target: the layouts.
        shape: global shape, in elements.
        dtype: element type.
    """

    source: DTensorLayout
    target: DTensorLayout
    shape: tuple[int, ...]
    dtype: torch.dtype
    options: Options = Options()

    @cached_property
    def members(self) -> tuple[int, ...]:
        """Global ranks of both meshes, ascending; their places are the device numbers of the plans."""
        return tuple(sorted({*self.source.ranks, *self.target.ranks}))

    @property
    def same_ranks(self) -> bool:
        """Whether both meshes have the same ranks."""
        return set(self.source.ranks) == set(self.target.ranks)

    @property
    def planned_shape(self) -> tuple[int, ...]:
        """The shape in plans: (1,) for a scalar between different ranks, because its plan uses all devices."""
        return self.shape if self.shape or self.same_ranks else (1,)

    def __str__(self) -> str:
        options = [f"{name} {value}" for name, value in vars(self.options).items() if value is not None]
        words = f"{list(self.shape)} of {self.dtype} from {self.source} to {self.target}"
        return " with ".join([words, *options])

    def typed(self, layout: DTensorLayout) -> tuple[DistType, Mesh]:
        """A layout as a type on a mesh of devices."""
        mesh = from_device_mesh(layout.mesh, {rank: k for k, rank in enumerate(self.members)})
        return from_placements(layout.placements, self.planned_shape, mesh), mesh

    def typed_placement(self, layout: DTensorLayout) -> Placement:
        """The placement of a layout on the devices; partial sums count as replicas."""
        mesh = from_device_mesh(layout.mesh, {rank: k for k, rank in enumerate(self.members)})
        whole = [Replicate() if kind_of(placement) == "partial" else placement for placement in layout.placements]
        return placement_of(from_placements(whole, self.planned_shape, mesh), mesh, len(self.members))


@dataclass(frozen=True)
class Reduce:
    """An all-reduce of the tiles along mesh dimensions of the source."""

    dims: tuple[int, ...]


@dataclass(frozen=True)
class Planned:
    """A plan, and the global rank of each of its devices."""

    plan: Plan
    members: tuple[int, ...]


def steps_of(spec: RedistributeSpec) -> list[Planned | Reduce]:
    """The steps of a move, in order.

    Raises:
        RedistribError: if a layout has no meaning as a type, or no plan keeps the limit.
    """
    source, target = spec.source, spec.target
    steps: list[Planned | Reduce] = []
    _require_target(source, target)
    if source.partial and (not spec.same_ranks or _uneven(spec)):
        reduced = _reduced(spec)
        if reduced is None:
            steps.append(Reduce(tuple(source.partial)))
            source = source.with_placements(
                [Replicate() if kind_of(placement) == "partial" else placement for placement in source.placements]
            )
        else:
            inner = replace(spec, target=source.with_placements(reduced))
            steps.append(_planned(inner))
            source = inner.target
    steps.append(_planned(replace(spec, source=source)))
    return steps


def _require_target(source: DTensorLayout, target: DTensorLayout) -> None:
    """Refuse a target with partial sums that the source does not have, as DTensor does."""
    for k in target.partial:
        if source.mesh != target.mesh or source.placements[k] != target.placements[k]:
            raise SpecError("partial target", value=target.placements[k])


def _uneven(spec: RedistributeSpec) -> bool:
    return any(spec.typed_placement(layout).cuts for layout in (spec.source, spec.target))


def _reduced(spec: RedistributeSpec) -> list[Any] | None:
    """The source's placements with partial sums reduced to shards, or to replicas; None if tiles are uneven.

    Raises:
        SpecError: if the target keeps partial sums, in tiles of unequal size.
    """
    source = spec.source
    if spec.target.partial:
        raise SpecError("partial target", value=spec.target.placements[spec.target.partial[0]])
    if spec.typed_placement(source).cuts:
        return None
    parts = prod(int(source.mesh.mesh.shape[k]) for k in source.partial)
    tile = spec.typed_placement(source).tile
    for dim in sorted(range(len(tile)), key=lambda dim: -tile[dim]):
        # A shard of a later mesh dimension would cut first.
        cuts_later = any(
            kind_of(placement) in ("shard", "strided") and placement.dim in (dim, dim - len(tile))
            for placement in source.placements
        )
        if tile[dim] and tile[dim] % parts == 0 and not cuts_later:
            return [Shard(dim) if kind_of(placement) == "partial" else placement for placement in source.placements]
    return [Replicate() if kind_of(placement) == "partial" else placement for placement in source.placements]


def _planned(spec: RedistributeSpec) -> Planned:
    (source_type, source_mesh), (target_type, target_mesh) = spec.typed(spec.source), spec.typed(spec.target)
    model = spec.options.cost_model
    if model is None:
        model = "gloo" if spec.source.mesh.device_type == "cpu" else "gpu"
    hosts = spec.options.topology
    topology = None if hosts is None else Topology.of([hosts[rank] for rank in spec.members])
    plan = synthesize(
        source_type, source_mesh, target_type, target_mesh, dtype=name_of(spec.dtype), model=model,
        memory_limit=spec.options.memory_limit, topology=topology,
    )  # fmt: skip
    return Planned(plan, spec.members)


class _Inner:
    """A plan that some ranks of a call run, on a channel of theirs."""

    def __init__(self, step: Planned, call: GroupCall) -> None:
        self._members, self._call = step.members, call
        self._channel = channel_of(step.members)
        self._channel.begin(call)
        self._executor = TorchExecutor(step.plan, self._channel.links, check=False, compared=True)
        self._channel.end()

    @property
    def is_stale(self) -> bool:
        """Whether its process group has ended with an error."""
        return channel_of(self._members) is not self._channel

    def moved(self, x: torch.Tensor | None, out: None, device: torch.device) -> torch.Tensor:
        """As `TorchExecutor.moved`."""
        self._channel.begin(self._call)
        try:
            return self._executor.moved(x, out, device)
        finally:
            self._channel.end()


class PreparedRedistribute:
    """A move; all its ranks prepare it together when it first runs.

    Attributes:
        spec: the spec of the move.
        call: the description that all ranks compare before data moves.
        takes_part, has_source, has_target: whether this rank is in one of the meshes, in the source's, in the target's.
        result_spec: PyTorch's spec of its results; None before the first.
        problem: the error that prevents the move, or None.
    """

    def __init__(self, spec: RedistributeSpec) -> None:
        self.spec = spec
        rank = dist.get_rank()
        self.takes_part = rank in spec.members
        self.has_source, self.has_target = rank in spec.source.ranks, rank in spec.target.ranks
        self._ready: Channel | None = None  # of the ranks that have prepared it
        self.problem: RedistribError | None = None
        self._planned: list[Planned | Reduce] = []
        self._steps: list[Any] = []
        self._inner: list[_Inner] = []
        self.result_spec: Any = None
        self._divisor = 1
        self._moves = True
        self._nothing = (0,) if spec.shape else ()  # `from_local` takes the shape of a scalar from its local tensor
        self._source_shape: tuple[int, ...] | None = None
        self.target_shape: tuple[int, ...] = ()
        if not self.takes_part:
            return
        self.call = GroupCall(str(spec), len(spec.members))
        try:
            device = spec.members.index(rank)
            if self.has_source:
                self._source_shape = spec.typed_placement(spec.source).box(device).size if spec.shape else ()
            if self.has_target:
                self.target_shape = spec.typed_placement(spec.target).box(device).size if spec.shape else ()
            if spec.source.partial:
                reduction_of(spec.source.placements)
                reduced = [k for k in spec.source.partial if k not in spec.target.partial]
                averaged = [k for k in reduced if spec.source.placements[k].reduce_op == "avg"]
                self._divisor = prod(int(spec.source.mesh.mesh.shape[k]) for k in averaged)
            self._planned = steps_of(spec)
        except RedistribError as error:
            self.problem = error

    @property
    def plans(self) -> list[Plan]:
        """The plans, in order.

        Raises:
            RedistribError: if there is none.
        """
        if self.problem is not None:
            raise self.problem
        return [step.plan for step in self._planned if isinstance(step, Planned)]

    def wrong(self, local: torch.Tensor) -> TilesError | None:
        """The error of a local tensor that has another shape than the source; None if it fits."""
        if self._source_shape is None or tuple(local.shape) == self._source_shape:
            return None
        return TilesError(
            f"the local tensor has shape {list(local.shape)} where {self.spec.source} of {list(self.spec.shape)} has "
            f"{list(self._source_shape)}; give DTensor.from_local the global shape= and stride="
        )

    def _prepare(self, channel: Channel) -> None:
        """Create the executors; collective, after all ranks have agreed."""
        self._steps, self._inner = [], []
        for step in self._planned:
            if isinstance(step, Reduce):
                groups = [self.spec.source.mesh.get_group(k) for k in step.dims] if self.has_source else []
                self._steps.append(groups)
            elif step.plan.before == step.plan.after or dist.get_rank() not in step.members:
                self._steps.append(None)
            elif step.members == channel.members:
                self._steps.append(TorchExecutor(step.plan, channel.links, check=False, compared=True))
            else:
                self._steps.append(_Inner(step, self.call))
                self._inner.append(self._steps[-1])
        self._moves = any(step is not None for step in self._steps)
        self._ready = channel

    def __call__(self, local: torch.Tensor, check: bool | None = None) -> torch.Tensor:
        """The local tensor after the move, from the local tensor before it.

        Args:
            local: the tensor, without gradient; ignored on a rank that holds nothing.
            check: whether all ranks compare the call before data moves; by default the first time.

        Raises:
            RedistribError: on every rank, if the ranks make different calls, or a rank has a problem.
        """
        if not self.takes_part:
            return local.new_empty(self._nothing)
        channel = channel_of(self.spec.members)
        compares = True if check else check is None and not channel.knows(self.call)
        try:
            channel.begin(self.call, compares)
            problem = self.wrong(local) or self.problem
            if compares:
                channel.agree(self.call, problem)
            elif problem is not None:
                raise channel.refuse_here(problem)
            if self._ready is not channel or any(inner.is_stale for inner in self._inner):
                self._prepare(channel)
            return self._moved(local, channel)
        except RuntimeError as error:
            raise channel.explain(error) from error
        finally:
            channel.end()

    def _moved(self, local: torch.Tensor, channel: Channel) -> torch.Tensor:
        current: torch.Tensor | None = None
        if self.has_source:
            current = local if self.spec.shape else local.reshape(self.spec.planned_shape)
        for step in self._steps:
            if type(step) is list:
                channel.links.gate()
                if current is not None:
                    current = reduce_over(step, current, reduction_of(self.spec.source.placements))
            elif step is not None:
                current = step.moved(current, None, local.device)
        if self._divisor != 1 and current is not None:
            exact = current.is_floating_point() or current.is_complex()
            current = current / self._divisor if exact else current // self._divisor
        if not self.has_target:
            return local.new_empty(self._nothing)
        assert current is not None
        if not self._moves:  # the result shares no memory with the source
            current = current.clone(memory_format=torch.contiguous_format)
        return current if current.shape == self.target_shape else current.reshape(self.target_shape)


# The most recently used moves; a model's state has a few dozen specs.
MOVES: Cache[PreparedRedistribute] = Cache(1 << 10)


def move_of(spec: RedistributeSpec) -> PreparedRedistribute:
    """The move of a spec."""
    return MOVES.get(spec, lambda: PreparedRedistribute(spec))


def tell(members: tuple[int, ...], problem: RedistribError) -> None:
    """Tell the other ranks of a call the problem of this rank; all of them raise the same error."""
    if not dist.is_initialized() or dist.get_rank() not in members:
        return
    compare(members, GroupCall("a call that is wrong", len(members)), problem)
