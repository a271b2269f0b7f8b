"""Weights from trainers on ranks 0 to 3 to samplers on ranks 4 to 7, without a gather.

    torchrun --nproc-per-node 8 examples/torch_trainers_to_samplers.py

DTensor does not move a tensor to a mesh of other ranks. Here every sampler receives its tiles from the trainers that
hold them, and no rank gathers a whole weight.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import redistrib as rd


def main(layers: int = 4, width: int = 64) -> str:
    """Move the weights twice, as after two steps of training, and compare what the samplers hold."""
    rank = dist.get_rank()
    trainers = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("data", "model"))
    samplers = DeviceMesh("cpu", [4, 5, 6, 7], mesh_dim_names=("model",))
    placements = {"up": ([Shard(1), Shard(0)], [Shard(0)]), "down": ([Shard(0), Shard(1)], [Shard(1)]),
                  "norm": ([Replicate(), Replicate()], [Replicate()])}  # fmt: skip
    for step in range(2):
        wholes = {f"layers.{k}.{name}": weight(step, k, name, width) for k in range(layers) for name in placements}
        state, targets = {}, {}
        for path, whole in wholes.items():
            source, target = placements[path.rpartition(".")[2]]
            state[path] = on_mesh(whole, trainers, source)
            targets[path] = (samplers, target)
        plan = rd.torch.reshard_plan(state, targets)
        weights = rd.torch.reshard(state, targets)
        if rank >= 4:
            for path, whole in wholes.items():
                assert torch.equal(weights[path].full_tensor(), whole), path
    return f"{len(wholes)} weights in {plan.launches} launches, {plan.received_bytes:,} bytes received; all are equal"


def weight(step: int, layer: int, name: str, width: int) -> torch.Tensor:
    """A weight after a step, the same on every rank."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * layer + len(name))
    shape = {"up": (4 * width, width), "down": (width, 4 * width), "norm": (width,)}[name]
    return torch.randn(shape, generator=generator)


def on_mesh(whole: torch.Tensor, mesh: DeviceMesh, placements: list[object]) -> DTensor:
    """A DTensor of which every rank of the mesh cuts its own shard."""
    local = whole
    at = mesh.get_coordinate()
    if at is not None:
        for dim, placement in enumerate(placements):
            if isinstance(placement, Shard):
                local = local.chunk(mesh.size(dim), placement.dim)[at[dim]]
    return DTensor.from_local(
        local.contiguous(), mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


if __name__ == "__main__":
    dist.init_process_group("gloo")
    said = main()
    if dist.get_rank() == 7:
        print(said)
    dist.destroy_process_group()
