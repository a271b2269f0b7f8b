"""What is private to PyTorch, and the public way that was tried; nothing else in the library uses such names.

`_StridedShard`: the one placement by which a DTensor says another order of sharding than that of its mesh dimensions.
`DTensor.redistribute` and `from_local` take no shard order, and no public name makes a layout that has one.

`AsyncCollectiveTensor`: the local tensor of a DTensor whose collective may still be under way. It is public that
`to_local` may return one, and that it is to be waited for; the class is not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import Shard


def strided_shard(dim: int, split_factor: int) -> Any:
    """Sharding of a dimension after later mesh dimensions of `split_factor` devices together."""
    if split_factor == 1:
        return Shard(dim)
    from torch.distributed.tensor.placement_types import _StridedShard

    return _StridedShard(dim, split_factor=split_factor)


def finished(local: torch.Tensor) -> torch.Tensor:
    """A local tensor once its collective is done."""
    return local.wait() if type(local).__name__ == "AsyncCollectiveTensor" else local
