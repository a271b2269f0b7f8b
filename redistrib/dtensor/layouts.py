"""Layouts of DTensors, and everything that determines the move from a layout to another."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

from redistrib.backends.torch.dtypes import can_plan
from redistrib.backends.torch.private import shard_order_of, spec_for, spec_of, strided_shard
from redistrib.backends.torch.world import OfWorld
from redistrib.cache import Cache
from redistrib.errors import RedistribError, TilesError
from redistrib.lang.mesh import Mesh
from redistrib.lang.placements import (
    from_device_mesh,
    from_placements,
    is_placement,
    kind_of,
    ranks_of,
    split_factors,
)
from redistrib.lang.types import DistType
from redistrib.theory.placement import Placement, placement_of


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

    def reduced(self, to: Any) -> DTensorLayout:
        """The same layout with another placement in the place of its partial ones."""
        return self.with_placements(
            [to if kind_of(placement) == "partial" else placement for placement in self.placements]
        )

    @property
    def can_plan(self) -> bool:
        """Whether plans know its kinds of placements."""
        return all(map(is_placement, self.placements))

    def __str__(self) -> str:
        known = ", ".join(str(p) if is_placement(p) else type(p).__name__ for p in self.placements)
        return f"[{known}] on ranks {self.mesh.mesh.tolist()}"


@dataclass(frozen=True)
class Options:
    """The options that choose a plan.

    Attributes:
        memory_limit: bytes per rank for source, target and all memory between; None for no limit.
        machine: as for `redistrib.synthesize`; None for the preset of the mesh's devices.
        topology: the host of every rank of the default group, as numbers or names; None if unknown.
    """

    memory_limit: int | None = None
    machine: Any = None
    topology: tuple[Hashable, ...] | None = None


@dataclass(frozen=True)
class RedistributeSpec:
    """Everything that determines a move; tensors with equal specs share it.

    Attributes:
        source, target: the layouts.
        shape: global shape, in elements.
        dtype: element type.
        options: the options of the plan.
        stride: global strides, in elements, which the result has too; () for those of a contiguous tensor.
    """

    source: DTensorLayout
    target: DTensorLayout
    shape: tuple[int, ...]
    dtype: torch.dtype
    options: Options = Options()
    stride: tuple[int, ...] = ()

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Global strides, in elements."""
        return self.stride or tuple(prod(self.shape[k + 1 :]) for k in range(len(self.shape)))

    @cached_property
    def memory_order(self) -> tuple[int, ...] | None:
        """The dimensions from the largest stride to the least; None if they are in order."""
        order = tuple(sorted(range(len(self.shape)), key=lambda dim: -self.strides[dim]))
        return None if order == tuple(range(len(self.shape))) else order

    def in_order(self, local: torch.Tensor) -> torch.Tensor:
        """A local tensor of the result, with its dimensions in the order of memory."""
        order = self.memory_order
        if order is None:
            return local
        return local.permute(order).contiguous().permute([order.index(k) for k in range(len(order))])

    @cached_property
    def source_spec(self) -> Any:
        """PyTorch's spec of the source."""
        return spec_for(self.source.mesh, self.source.placements, self.shape, self.strides, self.dtype)

    @cached_property
    def result_spec(self) -> Any:
        """PyTorch's spec of the results."""
        return spec_for(self.target.mesh, self.target.placements, self.shape, self.strides, self.dtype)

    @cached_property
    def planned_dtype(self) -> torch.dtype:
        """The element type in plans: bytes where plans do not know the type."""
        return torch.uint8 if not can_plan(self.dtype) and self.dtype.itemsize == 1 else self.dtype

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
        whole = from_placements(layout.reduced(Replicate()).placements, self.planned_shape, mesh)
        return placement_of(whole, mesh, len(self.members))

    def local_shape(self, layout: DTensorLayout) -> tuple[int, ...] | None:
        """The shape of the local tensor of this rank in a layout; None if it holds nothing, or plans cannot tell."""
        return _SHAPES.get().get((layout, self.members, self.shape), lambda: self._local_shape(layout))

    def _local_shape(self, layout: DTensorLayout) -> tuple[int, ...] | None:
        rank = dist.get_rank()
        if rank not in layout.ranks:
            return None
        try:
            return self.typed_placement(layout).box(self.members.index(rank)).size if self.shape else ()
        except RedistribError:
            return None

    def wrong_local(self, local: torch.Tensor, shape: tuple[int, ...] | None) -> TilesError | None:
        """The error of a local tensor that is not of the source; `shape` is the `local_shape` of the source."""
        if local.layout != torch.strided:
            return TilesError(
                f"the local tensor has the layout {local.layout}; pass a dense one, by .to_dense() for example"
            )
        if shape is None or tuple(local.shape) == shape:
            return None
        return TilesError(
            f"the local tensor has shape {list(local.shape)} where {self.source} of {list(self.shape)} has "
            f"{list(shape)}; give DTensor.from_local the global shape= and stride="
        )


# Shapes of local tensors of this rank, by layout, ranks of the move and global shape.
_SHAPES: OfWorld[Cache[tuple[int, ...] | None]] = OfWorld(lambda: Cache(1 << 12))


def layout_of(x: DTensor) -> DTensorLayout:
    """The layout of a DTensor; an order of shards that its spec records becomes strided shards."""
    placements = list(x.placements)
    for dim, order in shard_order_of(spec_of(x)):
        if list(order) != sorted(order):
            for k, factor in split_factors(order, from_device_mesh(x.device_mesh)).items():
                placements[k] = strided_shard(dim, factor)
    return DTensorLayout(x.device_mesh, tuple(placements))


def spec_of_move(x: torch.Tensor, target: DTensorLayout, dtype: torch.dtype, options: Options) -> RedistributeSpec:
    """The move of a tensor to a layout, in an element type; a plain tensor is whole on the ranks of the target."""
    source = layout_of(x) if isinstance(x, DTensor) else target.with_placements([Replicate()] * len(target.placements))
    return RedistributeSpec(source, target, tuple(x.shape), dtype, options, tuple(x.stride()))


def gradient_layout(gradient: DTensorLayout, source: DTensorLayout) -> DTensorLayout:
    """The layout of the gradient of a tensor with the layout `source`, from that of the gradient of its result.

    It is that of the tensor, and replicated where the tensor has partial sums and the gradient has none, as in DTensor.
    """
    same = gradient.mesh == source.mesh
    return source.with_placements(
        [
            Replicate() if placement.is_partial() and not (same and gradient.placements[k] == placement) else placement
            for k, placement in enumerate(source.placements)
        ]
    )
