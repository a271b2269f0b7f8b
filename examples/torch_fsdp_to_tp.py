"""From FSDP2 to tensor parallelism: the parameters of a module on 8 ranks, moved in few launches and checked.

    torchrun --nproc-per-node 8 examples/torch_fsdp_to_tp.py

`fully_shard` cuts every parameter by rows over all ranks. The module that serves cuts the first layer by columns of its
result and the second by rows of its input, over a mesh of the same ranks. `rd.torch.reshard` moves the state.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import redistrib as rd


def module(width: int, hidden: int) -> nn.Module:
    """A feed-forward block; its parameters are the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


def main(width: int = 64, hidden: int = 256) -> str:
    """Move the state; compare every parameter, and the result of the module."""
    ranks = dist.get_world_size()
    trainer = module(width, hidden)
    fully_shard(trainer, mesh=DeviceMesh("cpu", range(ranks), mesh_dim_names=("data",)))

    tensor_parallel = DeviceMesh("cpu", range(ranks), mesh_dim_names=("model",))
    server = parallelize_module(
        module(width, hidden), tensor_parallel, {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    for parameter in server.parameters():
        nn.init.zeros_(parameter)

    state, targets = trainer.state_dict(), server.state_dict()
    plan = rd.torch.reshard_plan(state, targets)
    moved = rd.torch.reshard(state, targets)
    server.load_state_dict(moved)

    for name, parameter in server.state_dict().items():
        assert torch.equal(parameter.full_tensor(), state[name].full_tensor()), name
    x = torch.randn(16, width, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(server(x), module(width, hidden)(x))
    return f"{len(moved)} parameters in {plan.launches} launches, {plan.received_bytes:,} bytes received; all are equal"


if __name__ == "__main__":
    dist.init_process_group("gloo")
    said = main()
    if dist.get_rank() == 0:
        print(said)
    dist.destroy_process_group()
