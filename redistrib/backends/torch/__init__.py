"""Plans through `torch.distributed`: one process per device, local tensors in, local tensors out.

`to_torch` prepares a plan on a process group: gloo on CPUs, NCCL on GPUs. A step that moves data travels over one of
these transports, which `wire` chooses:

- `point_to_point`: one message between each pair of ranks that share data, from and into the tiles themselves where
  the message is contiguous there;
- `all_to_all`: one `all_to_all_single`, where every rank shares data with every other;
- `native`: the platform's all-gather, reduce-scatter or all-reduce, for long messages;
- `local`: no messages.

Boxes that stay on a device are copied while messages are under way. `redistrib.backends.ranks` runs the steps over
`wire` and in `memory`; `executor` checks tensors; `agreement` compares the calls of all ranks before data moves.
DTensors move in `channels`, where `watch` and `deadlocks` find different calls of ranks without a comparison. `private`
holds all private names of PyTorch.
"""

from redistrib.backends.torch.doors import can, measure, run
from redistrib.backends.torch.executor import TorchExecutor, to_torch

__all__ = ["TorchExecutor", "can", "measure", "run", "to_torch"]
