"""Modules: their parameters and buffers onto other layouts, and tensor parallelism on the library's moves."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import redistrib as rd
from programs.dtensors import mesh_of
from programs.groups import outside
from programs.refusals import told


class Tied(nn.Module):
    """A model whose first and last weights are one, with a frozen weight and buffers."""

    def __init__(self, width: int = 8, device: str = "cpu") -> None:
        super().__init__()
        self.embed = nn.Embedding(16, width, device=device)
        self.norm = nn.BatchNorm1d(width, device=device)
        self.layers = nn.ModuleList(nn.Linear(width, width, device=device) for _ in range(2))
        self.head = nn.Linear(width, 16, bias=False, device=device)
        self.head.weight = self.embed.weight
        self.layers[1].weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of tokens, which are rows with a one."""
        x = x @ self.embed.weight
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def resharded() -> list[str]:
    """A module's tensors take other layouts in it; what cannot be moved so is refused."""
    mesh, grid = mesh_of(tuple(range(8)), (8,)), mesh_of(tuple(range(8)), (2, 4))
    assert isinstance(mesh, DeviceMesh)
    torch.manual_seed(3)
    plain = Tied()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    numbers = torch.eye(16)
    wanted = plain(numbers).detach()
    rows = {name: [Shard(0)] if value.ndim == 2 else [Replicate()] for name, value in plain.state_dict().items()}
    columns = {name: (grid, [Replicate(), placements[0]]) for name, placements in rows.items()}
    for donate in (False, True):
        module: Any = copy.deepcopy(plain)
        first = {name: (mesh, placements) for name, placements in rows.items()}
        plan = rd.torch.reshard_plan(module, first, donate=donate)
        assert any("layers.0.weight" in group.paths for group in plan.groups)
        for targets in (first, columns):
            assert (
                rd.torch.reshard({"model": module, "step": 7}, {"model": targets, "step": None}, donate=donate)["model"]
                is module
            )
            for name, value in module.state_dict().items():
                end = targets[name]
                assert isinstance(value, DTensor), name
                assert (value.device_mesh, list(value.placements)) == (end[0], end[1]), name
                assert torch.equal(value.full_tensor(), before[name]), name
            assert module.head.weight is module.embed.weight
            assert isinstance(module.layers[0].weight, nn.Parameter) and module.layers[0].weight.requires_grad
            assert not module.layers[1].weight.requires_grad
            assert {*dict(module.named_parameters())} == {*dict(plain.named_parameters())}
            assert {*dict(module.named_buffers())} == {*dict(plain.named_buffers())}
        ids = DTensor.from_local(numbers, grid, [Replicate()] * 2)
        logits = module(ids)
        assert torch.allclose(logits.full_tensor(), wanted, atol=1e-6)
        logits.sum().backward()
        assert module.embed.weight.grad is not None and module.layers[1].weight.grad is None
    again: Any = distribute_module(copy.deepcopy(plain), mesh)
    rd.torch.reshard(again, module)  # another module names the layouts
    assert again.layers[0].weight.placements == module.layers[0].weight.placements
    empty: Any = Tied(device="meta")
    rd.torch.reshard(empty, columns)
    assert empty.head.weight is empty.embed.weight and list(empty.head.weight.placements) == columns["head.weight"][1]
    whole = {name: [Replicate()] for name in before}
    wrapped = fully_shard(copy.deepcopy(plain), mesh=mesh)
    replicas = nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
    return [
        told(lambda: rd.torch.reshard(wrapped, whole)),
        told(lambda: rd.torch.reshard({"model": replicas}, [Replicate()])),
        told(lambda: rd.torch.reshard(plain, {"embed.weight": (mesh, [Shard(0)])})),
    ]


class Block(nn.Module):
    """A norm and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output for `[4, 8]` rows."""
        return self.out(self.down(torch.relu(self.up(self.norm(x)))))


def styles() -> list[str]:
    """Every style of tensor parallelism with the library's move in place of DTensor's, forward and backward."""
    mesh: Any = mesh_of((0, 1, 2, 3), (4,))  # all ranks make its groups
    if outside(4):
        return []
    torch.manual_seed(5)
    one = Block()
    x = torch.randn(4, 8)
    one(x).square().sum().backward()
    plans: dict[str, tuple[dict[str, Any], Any]] = {
        "columns, rows": ({"up": ColwiseParallel(), "down": RowwiseParallel()}, x),
        "sequence": (
            {
                "norm": SequenceParallel(sequence_dim=0),
                "up": ColwiseParallel(input_layouts=Shard(0)),
                "down": RowwiseParallel(output_layouts=Shard(0)),
                "out": PrepareModuleInput(
                    input_layouts=Shard(0), desired_input_layouts=Replicate(), use_local_output=True
                ),
            },
            x[dist.get_rank() : dist.get_rank() + 1],
        ),
        "outputs": (
            {
                "up": ColwiseParallel(output_layouts=Replicate(), use_local_output=False),
                "down": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                "out": PrepareModuleInput(
                    input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=True
                ),
            },
            x,
        ),
        "prepared": (
            {
                "out": PrepareModuleOutput(
                    output_layouts=Replicate(), desired_output_layouts=Shard(0), use_local_output=False
                )
            },
            x,
        ),
    }
    theirs, moved = DTensor.redistribute, []
    for name, (plan, source) in plans.items():
        calls = 0

        def counted(*arguments: Any, **options: Any) -> DTensor:
            nonlocal calls
            calls += 1
            return rd.torch.redistribute(*arguments, **options)

        module = parallelize_module(copy.deepcopy(one), mesh, plan)
        DTensor.redistribute = counted
        try:
            y: Any = module(source)
            y = y.full_tensor() if isinstance(y, DTensor) else y
            y.square().sum().backward()
        finally:
            DTensor.redistribute = theirs
        assert torch.allclose(y, one(x), atol=1e-5), name
        for parameter, expected in zip(module.parameters(), one.parameters(), strict=True):
            gradient: Any = parameter.grad
            gradient = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
            if name == "columns, rows" or isinstance(parameter, DTensor):
                assert torch.allclose(gradient, expected.grad, atol=1e-4), (name, dist.get_rank())
        assert calls, name
        moved.append(name)
    return moved
