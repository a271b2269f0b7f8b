"""Plans through `torch.distributed`: one process per device, local tensors in, local tensors out.

`to_torch` prepares a plan on a process group: gloo on CPUs, NCCL on GPUs. A step that moves data travels over one of
these transports (`transports`, `reductions`):

- `point_to_point`: one message between each two ranks that share data, straight from and into the tiles where a
  message is contiguous there;
- `all_to_all`: one `all_to_all_single`, where every rank shares data with every other;
- `native`: the platform's all-gather, reduce-scatter or all-reduce, for long messages;
- `local`: nothing travels.

What a device keeps is copied while messages are under way. `redistrib.backends.stages` says which memory each step
reads and writes; `executor` runs; `agreement` compares the calls of all ranks before anything moves. DTensors move in
`channels`, where ranks that make different calls find out without comparing: `watch` and `deadlocks`. What is private
to PyTorch is in `private`.
"""

from redistrib.backends.torch.doors import can, measure, run
from redistrib.backends.torch.executor import TorchExecutor, to_torch

__all__ = ["TorchExecutor", "can", "measure", "run", "to_torch"]
