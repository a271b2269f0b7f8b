"""Model states through `rd.torch.reshard`."""

from __future__ import annotations

import random
import weakref
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.utils._pytree import register_dataclass, register_pytree_node

import redistrib as rd
from programs.dtensors import hold, make, mesh_of, whole_of
from programs.refusals import errors_of
from redistrib.lang.placements import ranks_of

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128, torch.float8_e4m3fn]


def random_trees(seed: int, cases: int) -> list[int]:
    """Trees of many shapes, dtypes and layouts onto their own mesh, another one, and other ranks."""
    rng = random.Random(seed)
    launches = []
    for case in range(cases):
        source = mesh_of(tuple(range(8)), rng.choice([(8,), (2, 4)]))
        others = [source, mesh_of(tuple(range(8))[::-1], (4, 2)), mesh_of((4, 5, 6, 7), (2, 2)), mesh_of((1, 6), (2,))]
        target = others[case % 4]
        state: dict[str, Any] = {"layers": []}
        targets: dict[str, Any] = {"layers": []}
        wholes = []
        for k in range(12):
            shape = tuple(rng.choice([1, 3, 8, 10, 16]) for _ in range(rng.randint(0, 3)))
            whole = whole_of(rng, shape, DTYPES[k % len(DTYPES)])
            starts = [
                Shard(rng.randrange(len(shape))) if shape and rng.random() < 0.7 else Replicate()
                for _ in range(source.ndim)
            ]
            ends = [
                Shard(rng.randrange(len(shape))) if shape and rng.random() < 0.7 else Replicate()
                for _ in range(target.ndim)
            ]
            state["layers"].append({"w": make(whole, source, starts)})
            targets["layers"].append({"w": (target, ends)})
            wholes.append((whole, ends))
        plain = torch.arange(24.0).reshape(4, 6)
        state |= {"plain": plain.clone(), "step": 7, "kept": make(plain, source, [Replicate()] * source.ndim)}
        targets |= {"plain": (target, [Shard(1)] * target.ndim), "step": None, "kept": None}
        donate = case % 2 == 1
        sources = [weakref.ref(leaf["w"].to_local()) for leaf in state["layers"]]
        plan = rd.torch.reshard_plan(state, targets, donate=donate)
        said: list[tuple[int, int]] = []
        limit = plan.peak_bytes if case % 3 == 0 else None
        result = rd.torch.reshard(
            state, targets, donate=donate, memory_limit=limit, progress=lambda *a, said=said: said.append(a)
        )
        assert list(result) == list(state) and result["step"] == 7 and result["kept"] is state["kept"]
        for leaf, (whole, ends) in zip(result["layers"], wholes, strict=True):
            hold(leaf["w"], whole, target, ends, (case, whole.shape, ends))
        hold(result["plain"], plain, target, [Shard(1)] * target.ndim, case)
        assert said and said[-1][0] == said[-1][1] and "tensors stay" in str(plan)
        launches.append(plan.launches)
        if donate:  # the state holds the results, and nothing holds the sources
            assert state["plain"] is result["plain"]
            assert all(one["w"] is other["w"] for one, other in zip(state["layers"], result["layers"], strict=True))
            kept = [one["w"].to_local() for one in state["layers"]]
            assert all(source() is None or any(source() is one for one in kept) for source in sources), case
    return launches


def sums_and_shared() -> None:
    """Partial sums travel alone; a storage that several tensors share is not freed."""
    mesh = mesh_of(tuple(range(8)), (8,))
    whole = torch.arange(64.0).reshape(8, 8)
    partial = DTensor.from_local(whole, mesh, [Partial()], run_check=False)
    x = make(whole, mesh, [Shard(0)])
    tied = DTensor.from_local(x.to_local(), mesh, [Shard(0)], run_check=False)
    state = {"a": partial, "b": x, "c": tied}
    result = rd.torch.reshard(state, [Shard(1)], donate=True)
    hold(result["a"], 8 * whole, mesh, [Shard(1)], "a")
    for name in "bc":
        hold(result[name], whole, mesh, [Shard(1)], name)
    assert torch.equal(x.to_local(), tied.to_local()) and state["b"] is result["b"]  # what others hold is not touched
    assert result["b"].requires_grad is False


class Pair(NamedTuple):
    """A named tuple of tensors."""

    weight: Any
    bias: Any


@dataclass
class Block:
    """A dataclass of tensors, that nobody has registered."""

    pair: Pair
    other: Any
    width: int = 8


@dataclass(frozen=True)
class Frozen:
    """A dataclass that cannot be changed, registered with PyTorch's pytrees."""

    weight: Any


class Box:
    """A container of its own, registered with PyTorch's pytrees."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


@cache
def register() -> None:
    """Register containers, once in a process."""
    register_dataclass(Frozen)
    register_pytree_node(Box, lambda box: (list(box.parts), None), lambda parts, _: Box(*parts))


def containers() -> None:
    """Named tuples, dataclasses, dicts of all kinds and registered containers, nested; one target, or one for each."""
    register()
    mesh = mesh_of(tuple(range(8)), (8,))
    whole = torch.arange(64.0).reshape(8, 8)

    def tensor() -> DTensor:
        return make(whole, mesh, [Shard(0)])

    def fresh() -> dict[str, Any]:
        ordered = OrderedDict(a=tensor())
        ordered._metadata = "kept"  # type: ignore[attr-defined]
        default: Any = defaultdict(list)
        default["b"].append(tensor())
        return {
            "block": Block(Pair(tensor(), tensor()), (tensor(), "text")), "box": Box(tensor(), Frozen(tensor())),
            "ordered": ordered, "default": default,
        }  # fmt: skip

    row, column, rep = [Shard(0)], [Shard(1)], [Replicate()]
    each = {
        "block": {"pair": Pair(column, rep), "other": rep, "width": None}, "box": Box(rep, Frozen(column)),
        "ordered": column, "default": {"b": [rep]},
    }  # fmt: skip
    for targets in (each, column):
        for donate in (False, True):
            state = fresh()
            block = state["block"]
            plan = rd.torch.reshard_plan(state, targets, donate=donate)
            result = rd.torch.reshard(state, targets, donate=donate)
            one = targets is column
            expected = [
                (result["block"].pair.weight, column), (result["block"].pair.bias, column if one else rep),
                (result["block"].other[0], column if one else rep), (result["box"].parts[0], column if one else rep),
                (result["box"].parts[1].weight, column), (result["ordered"]["a"], column),
                (result["default"]["b"][0], column if one else rep),
            ]  # fmt: skip
            for value, placements in expected:
                hold(value, whole, mesh, placements, placements)
            assert type(result["block"]) is Block and type(result["block"].pair) is Pair and result["block"].width == 8
            assert result["block"].other[1] == "text" and type(result["box"].parts[1]) is Frozen
            assert result["ordered"]._metadata == "kept" and result["default"].default_factory is list
            assert any("block/pair/weight" in group.paths for group in plan.groups)
            assert (state["default"]["b"][0] is result["default"]["b"][0]) == donate
            assert block.pair[0].placements == tuple(row)  # a named tuple cannot be changed


def refusals() -> list[str]:
    """Errors are those of every rank, and nothing has moved."""
    mesh, rank = mesh_of(tuple(range(8)), (8,)), dist.get_rank()
    whole = torch.arange(64.0).reshape(8, 8)
    state = {"a": make(whole, mesh, [Shard(0)]), "b": make(whole, mesh, [Shard(0)])}
    errors = errors_of(
        (
            lambda: rd.torch.reshard(state, [Shard(1)] if rank != 5 else [Replicate()], donate=True),
            lambda: rd.torch.reshard(state, {"a": [Shard(1)]}, donate=True),
            lambda: rd.torch.reshard(state, {"a": [Shard(1)], "b": [Shard(2 if rank == 3 else 1)]}, donate=True),
            lambda: rd.torch.reshard(state, [Shard(1)], donate=True, memory_limit=100),
            lambda: rd.torch.redistribute(state["a"], mesh, [Shard(1 if rank != 4 else 5)], check=True),
            lambda: rd.torch.reshard({"c": whole}, [Replicate()]),
        )
    )
    hold(rd.torch.reshard(state, [Shard(1)])["b"], whole, mesh, [Shard(1)], "afterwards")
    return errors


def tied() -> None:
    """A tensor under two names moves once and stays one tensor; buffers of another model's state stay."""
    mesh = mesh_of(tuple(range(8)), (8,))
    whole = torch.arange(64.0).reshape(8, 8)
    weight = make(whole, mesh, [Shard(0)])
    twins = {"embed": weight, "head": weight, "detached": weight.detach(), "own": make(whole, mesh, [Shard(0)])}
    other = {
        "model": {name: make(whole, mesh, [Shard(1)]) for name in twins},
        "running_mean": torch.zeros(3), "step": torch.tensor(0), "count": 0,
    }  # fmt: skip
    for donate in (False, True):
        state = {"model": dict(twins), "running_mean": torch.ones(3), "step": torch.tensor(7), "count": 5}
        plan = rd.torch.reshard_plan(state, other, donate=donate)
        assert sum(len(group.paths) for group in plan.groups) == 2, plan
        result = rd.torch.reshard(state, other, donate=donate)
        model = result["model"]
        assert model["embed"] is model["head"]
        assert model["embed"].to_local().data_ptr() == model["detached"].to_local().data_ptr()
        assert model["embed"].to_local().data_ptr() != model["own"].to_local().data_ptr()
        for name in twins:
            hold(model[name], whole, mesh, [Shard(1)], name)
            assert (state["model"][name] is model[name]) == donate
        assert result["running_mean"] is state["running_mean"] and result["step"] is state["step"]
        assert result["count"] == 5
    apart = rd.torch.reshard({"a": weight, "b": weight}, {"a": [Shard(1)], "b": [Replicate()]})
    hold(apart["b"], whole, mesh, [Replicate()], "apart")


def by_dtensors_steps() -> None:
    """A tensor that DTensor's own steps move is in a tree with others; its launches are not planned."""
    mesh = mesh_of(tuple(range(8)), (8,))
    whole = torch.arange(64.0).reshape(8, 8)
    product = DTensor.from_local(torch.full((8, 8), 2.0), mesh, [Partial("product")], run_check=False)
    state = {"a": make(whole, mesh, [Shard(0)]), "b": product}
    plan = rd.torch.reshard_plan(state, [Shard(1)])
    assert [group.paths for group in plan.groups] == [("a",), ("b",)] or plan.groups[0].paths == ("b",), plan
    assert 0 < plan.lower_bound_bytes <= plan.received_bytes
    result = rd.torch.reshard(state, [Shard(1)])
    hold(result["a"], whole, mesh, [Shard(1)], "a")
    hold(result["b"], torch.full((8, 8), 256.0), mesh, [Shard(1)], "b")


def other_bytes_stay() -> str:
    """What stays on a rank is its own: under a limit it may leave room for other launches, as many as elsewhere."""
    mesh = mesh_of(tuple(range(8)), (8,))
    sizes = {"a": 8, "b": 4, "c": 1}
    state: dict[str, Any] = {
        name: make(torch.arange(64.0 * size).reshape(8 * size, 8), mesh, [Shard(0)]) for name, size in sizes.items()
    }
    state["kept"] = torch.zeros(64 if dist.get_rank() == 3 else 0)
    targets = {**{key: [Shard(1)] for key in sizes}, "kept": None}
    limit = 32 * 48  # bytes: a and b fit one launch beside all sources, or, on rank 3, a and c
    paths = [group.paths for group in rd.torch.reshard_plan(state, targets, memory_limit=limit).groups]
    assert paths == ([("a", "c"), ("b",)] if dist.get_rank() == 3 else [("a", "b"), ("c",)]), paths
    try:
        rd.torch.reshard(state, targets, memory_limit=limit)
    except rd.errors.CommunicatorError as error:
        return str(error)
    return "no error"


def least_limits() -> list[tuple[int, str]]:
    """The limit that an error names, which is kept, and what one byte less says."""
    mesh = mesh_of(tuple(range(8)), (8,))
    wholes = {name: torch.arange(64.0 * size).reshape(8 * size, 8) for name, size in (("a", 8), ("b", 7), ("c", 1))}
    told = []
    for donate in (False, True):
        state: dict[str, Any] = {name: make(whole, mesh, [Shard(0)]) for name, whole in wholes.items()}
        try:
            rd.torch.reshard(state, [Shard(1)], donate=donate, memory_limit=1)
        except rd.errors.MemoryLimitError as error:
            least = error.least
        (below,) = errors_of([partial(rd.torch.reshard, state, [Shard(1)], donate=donate, memory_limit=least - 1)])
        assert rd.torch.reshard_plan(state, [Shard(1)], donate=donate, memory_limit=least).peak_bytes <= least
        result = rd.torch.reshard(state, [Shard(1)], donate=donate, memory_limit=least)
        for name, whole in wholes.items():
            hold(result[name], whole, mesh, [Shard(1)], (name, donate))
        told.append((least, below))
    return told


def looks() -> list[int]:
    """How often calls look at the tensor of a mesh that they know, and which ranks they find in meshes alike."""
    mesh = mesh_of(tuple(range(8)), (2, 4))
    whole = torch.arange(64.0).reshape(8, 8)
    state = {name: make(whole, mesh, [Shard(0), Shard(0)]) for name in "abc"}
    x = state["a"]
    counts, tensor_of = [0], DeviceMesh.mesh

    def counted(self: DeviceMesh) -> Any:
        counts[-1] += 1
        return tensor_of.fget(self)

    for call in (
        lambda: rd.torch.reshard(state, [Replicate(), Shard(1)]),
        lambda: rd.torch.redistribute(x, placements=[Replicate(), Shard(1)]),
    ):
        call()
        counts.append(0)
        with patch.object(DeviceMesh, "mesh", property(counted)):
            call()
    orders = [tuple(range(8)), tuple(range(8))[::-1], tuple(range(8))]
    for order in orders:  # meshes that end, one of which is equal to the first
        again = DeviceMesh("cpu", torch.tensor(order).reshape(2, 4), mesh_dim_names=("a", "b"))
        assert ranks_of(again) == order, order
        moved = rd.torch.reshard({"w": x}, {"w": (again, [Shard(1), Replicate()])})["w"]
        hold(moved, whole, again, [Shard(1), Replicate()], str(order))
    assert ranks_of(mesh) == orders[0]
    return counts[1:]
