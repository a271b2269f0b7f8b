"""Reductions over process groups, beside those of plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from redistrib.backends.torch.links import OPERATIONS
from redistrib.lang.notation import Reduction


def reduce_over(groups: Sequence[Any], tile: torch.Tensor, kind: Reduction) -> torch.Tensor:
    """Reduce a tile over process groups, one group after the other; collective.

    Numbers of 2 bytes are added in 4 bytes and rounded once. A maximum or minimum with a NaN is a NaN.
    """
    dtype = tile.dtype
    wide = {torch.bool: torch.uint8, torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
    if dtype.is_floating_point and dtype.itemsize < 4:
        wide[dtype] = torch.float32
    total = tile.to(wide.get(dtype, dtype), memory_format=torch.contiguous_format, copy=True)
    nans = torch.isnan(total).to(torch.uint8) if kind != "sum" and total.is_floating_point() else None
    for group in groups:
        dist.all_reduce(total, OPERATIONS[kind], group=group)
        if nans is not None:
            dist.all_reduce(nans, dist.ReduceOp.MAX, group=group)
    if nans is not None:
        total[nans.bool()] = float("nan")
    return total.to(dtype)
