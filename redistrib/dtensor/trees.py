"""Model states: trees of DTensors onto other layouts, in few launches, within a memory limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from redistrib.backends.torch.agreement import GroupCall
from redistrib.backends.torch.channels import announce, channel_of, compare
from redistrib.backends.torch.private import finished, local_of, memory_of, of_spec, spec_of
from redistrib.backends.torch.world import OfWorld, default_group
from redistrib.cache import Cache
from redistrib.dtensor.arguments import options_of
from redistrib.dtensor.buckets import Bucket
from redistrib.dtensor.containers import children_of, put, rebuilt
from redistrib.dtensor.layouts import RedistributeSpec
from redistrib.dtensor.leaves import StateLeaf, leaves_of
from redistrib.dtensor.moves import move_of
from redistrib.dtensor.tree_plans import LaunchGroup, PlannedTree, StatePlan, plan_tree
from redistrib.errors import CommunicatorError, LeafError, RedistribError
from redistrib.renamed import renamed

__all__ = ["LaunchGroup", "StatePlan", "reshard", "reshard_plan"]


@renamed("cost_model", "machine")
def reshard(
    state: Any,
    targets: Any,
    *,
    donate: bool = False,
    memory_limit: int | str | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
    machine: Any = None,
    topology: Sequence[Hashable] | None = None,
) -> Any:
    """Redistribute a tree of DTensors by plans, many tensors in a launch; all ranks call it together.

    All arguments are checked and all plans are made before data moves. If a rank passes other arguments, every rank
    raises the same error, and nothing has moved.

    Args:
        state: DTensors and plain tensors in containers, nested in any way; for example a `state_dict`. A plain tensor
            is a whole tensor that every rank of its target's mesh holds. Containers are mappings, lists, tuples, named
            tuples, dataclasses, modules, and classes registered with PyTorch's pytrees; other leaves stay. A module
            gets the results in place of its parameters and buffers, which are its children by their names with dots.
        targets: a target for every tensor, in containers with the same parts, or in mappings by their keys or names:
            `(mesh, placements)`, or placements for the mesh of the DTensor, or another DTensor, whose layout it gets;
            or one target for a whole subtree. A subtree whose target is None stays.
        donate: whether each tensor is released as soon as it has moved: the result replaces it in the dict, list or
            dataclass of `state`, so that its memory is free unless something else refers to it. After an error `state`
            holds every tensor, moved or not.
        memory_limit: bytes per rank for all tensors, before and after, and for messages: an integer or a text.
        progress: called with (bytes moved, bytes in total) after each launch; True prints them on rank 0. What it
            raises ends the call, with an error on the other ranks.
        machine, topology: as for `redistribute`.

    Returns:
        A tree of the same structure.

    Raises:
        LeafError: for a leaf or a target that breaks a rule; names its path.
        MemoryLimitError: on every rank, if the limit is too small; nothing has moved.
        CommunicatorError: on every rank, if the ranks make different calls; nothing has moved.

    >>> import torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> import redistrib as rd
    >>> mesh = init_device_mesh("cpu", (8,))  # under torchrun with 8 ranks
    >>> state = {"w": distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])}
    >>> rd.torch.reshard(state, {"w": [Shard(1)]})["w"].to_local().shape
    torch.Size([8, 1])
    """
    default_group()
    try:
        tree = _prepared(state, targets, donate, memory_limit, machine, topology)
    except RedistribError as error:
        _agree(GroupCall("reshard", dist.get_world_size()), error)
        raise
    _agree(tree.call)
    return tree.run(progress)


def _agree(call: GroupCall, problem: RedistribError | None = None) -> None:
    """Compare calls on all ranks of the default group."""
    compare(tuple(range(dist.get_world_size())), call, problem)


@renamed("cost_model", "machine")
def reshard_plan(
    state: Any,
    targets: Any,
    *,
    donate: bool = False,
    memory_limit: int | str | None = None,
    machine: Any = None,
    topology: Sequence[Hashable] | None = None,
) -> StatePlan:
    """The plan of `reshard` with the same arguments; print it for a table. Nothing is sent.

    >>> import torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> import redistrib as rd
    >>> mesh = init_device_mesh("cpu", (8,))  # under torchrun with 8 ranks
    >>> state = {"w": distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])}
    >>> rd.torch.reshard_plan(state, {"w": [Shard(1)]}).received_bytes
    224
    """
    return _prepared(state, targets, donate, memory_limit, machine, topology).plan


_TREES: OfWorld[Cache[PlannedTree]] = OfWorld(lambda: Cache(64))


class _Prepared:
    """A tree that has been checked and planned."""

    def __init__(
        self, state: Any, leaves: Sequence[StateLeaf], firsts: Sequence[int], planned: PlannedTree, donate: bool
    ) -> None:
        self._state, self._planned, self._donate = state, planned, donate
        self._specs = [leaf.spec for leaf in leaves]
        self._places = [(leaf.holder, leaf.key) for leaf in leaves]
        self._values = [leaf.value for leaf in leaves]  # sources, and then results
        self._tied: dict[int, list[int]] = {}
        for k, first in enumerate(firsts):
            self._tied.setdefault(first, []).append(k)
        self.plan, self.call = planned.plan, planned.call

    def run(self, progress: Callable[[int, int], None] | bool | None) -> Any:
        """Move everything, and return the tree of results."""
        planned = self._planned
        total = sum(self._bytes(k) for numbers, _ in planned.groups for k in numbers)
        moved_bytes = 0
        for numbers, mover in planned.groups:
            self._launch(numbers, mover)
            for k in numbers:
                if self._donate:
                    for tied in self._tied[k]:
                        put(*self._places[tied], self._values[tied])
                moved_bytes += self._bytes(k)
            try:
                if callable(progress):
                    progress(moved_bytes, total)
                elif progress and dist.get_rank() == 0:
                    print(f"{moved_bytes:,} of {total:,} bytes moved", flush=True)
            except BaseException as error:  # of the caller; the other ranks wait in the next launch
                announce(CommunicatorError(f"progress= has raised {type(error).__name__} {error}"))
                raise
        return _rebuilt(self._state, iter(self._values))

    def _launch(self, numbers: tuple[int, ...], mover: Bucket | None) -> None:
        rank = dist.get_rank()
        specs = [spec for k in numbers if (spec := self._specs[k]) is not None]
        if mover is None:
            tiles: list[torch.Tensor | None] = [
                move_of(spec)(_local(self._values[k]), self._source(k)) for k, spec in zip(numbers, specs, strict=True)
            ]
        else:
            locals_ = [
                _local(self._values[k]).view(spec.planned_dtype) if rank in spec.source.ranks else None
                for k, spec in zip(numbers, specs, strict=True)
            ]
            with channel_of(specs[0].members).call(self.call) as channel:
                tiles = mover.run(locals_, _local(self._values[numbers[0]]).device, channel.links)
        for k, spec, tile in zip(numbers, specs, tiles, strict=True):
            self._replace(k, spec, tile)

    def _replace(self, k: int, spec: RedistributeSpec, tile: torch.Tensor | None) -> None:
        """Put the result of a leaf, and of those tied to it, in the place of the sources."""
        if tile is None:
            tile = _local(self._values[k]).new_empty(0)
        elif dist.get_rank() in spec.target.ranks:
            tile = spec.in_order(tile.view(spec.dtype) if spec.shape else tile.view(spec.dtype).reshape(()))
        move_spec = spec.result_spec
        source = self._values[k]
        result = self._values[k] = _alike(source, of_spec(tile, move_spec, source.requires_grad))
        for tied in self._tied[k]:
            value = self._values[tied]
            if tied != k:
                same = value is source
                self._values[tied] = result if same else _alike(value, of_spec(tile, move_spec, value.requires_grad))

    def _source(self, k: int) -> Any:
        """PyTorch's spec of a source; that of a plain tensor is made."""
        value, spec = self._values[k], self._specs[k]
        assert spec is not None
        return spec_of(value) if isinstance(value, DTensor) else spec.source_spec

    def _bytes(self, k: int) -> int:
        spec = self._specs[k]
        return 0 if spec is None else prod(spec.shape) * spec.dtype.itemsize


def _local(value: torch.Tensor) -> torch.Tensor:
    """The local tensor of a leaf, without gradient."""
    return (local_of(value) if isinstance(value, DTensor) else finished(value)).detach()


def _alike(source: Any, result: DTensor) -> DTensor:
    """The result of a leaf, a parameter if the leaf is one."""
    if not isinstance(source, torch.nn.Parameter):
        return result
    parameter: Any = torch.nn.Parameter(result, requires_grad=result.requires_grad)
    return cast(DTensor, parameter)


def _rebuilt(state: Any, results: Iterator[Any]) -> Any:
    children = children_of(state)
    if children is None:
        return next(results)
    return rebuilt(state, [_rebuilt(child, results) for child in children.values()])


def _prepared(
    state: Any, targets: Any, donate: bool, memory_limit: int | str | None, machine: Any, topology: Any
) -> _Prepared:
    options = options_of(memory_limit, machine, topology)
    limit, options = options.memory_limit, replace(options, memory_limit=None)
    made: dict[Any, DTensor] = {}
    leaves = [_checked(leaf, made) for leaf in leaves_of(state, targets, options)]
    stays = tuple(_stays(leaf) for leaf in leaves)
    firsts = _firsts(leaves)
    key = (tuple((leaf.path, leaf.spec) for leaf in leaves), stays, firsts, donate, limit)
    planned = _TREES.get().get(key, lambda: plan_tree(leaves, firsts, stays, donate, limit))
    return _Prepared(state, leaves, firsts, planned, donate)


def _checked(leaf: StateLeaf, made: dict[Any, DTensor]) -> StateLeaf:
    """A leaf whose local tensor fits its layout; a meta tensor has moved already, once for all its names, into `made`.

    Raises:
        LeafError: if it does not fit.
    """
    spec = leaf.spec
    if spec is None:
        return leaf
    local = _local(leaf.value)
    problem = spec.wrong_local(local, spec.local_shape(spec.source))
    if problem is not None:
        raise LeafError(leaf.path, str(problem))
    if spec.source == spec.target and isinstance(leaf.value, DTensor):
        return replace(leaf, spec=None)
    if local.is_meta:
        shape = spec.local_shape(spec.target)
        tile = local.new_empty((0,) if shape is None else shape)
        result = _alike(leaf.value, of_spec(tile, spec.result_spec, leaf.value.requires_grad))
        return replace(leaf, spec=None, value=made.setdefault((id(leaf.value), spec), result))
    return leaf


def _firsts(leaves: Sequence[StateLeaf]) -> tuple[int, ...]:
    """For each leaf the number of the first with the same tensor and target, its own if there is none before.

    Two tensors over the same memory are the same too, if every rank holds a part and so sees it.
    """
    ranks = dist.get_world_size()
    seen: dict[Any, int] = {}
    firsts = []
    for k, leaf in enumerate(leaves):
        if leaf.spec is None:
            firsts.append(k)
            continue
        everywhere = len(leaf.spec.source.ranks) == ranks
        memory = memory_of(_local(leaf.value)) if everywhere else id(leaf.value)
        firsts.append(seen.setdefault((leaf.spec, memory), k))
    return tuple(firsts)


def _stays(leaf: StateLeaf) -> int:
    """Bytes of a tensor that stays."""
    if leaf.spec is not None or not isinstance(leaf.value, torch.Tensor):
        return 0
    return int(_local(leaf.value).nbytes)
