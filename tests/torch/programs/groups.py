"""Process groups of the first ranks."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch.distributed as dist


@cache
def first(count: int) -> Any:
    """The group of the first `count` ranks; all ranks call it."""
    return dist.group.WORLD if count == dist.get_world_size() else dist.new_group(list(range(count)))


def outside(count: int) -> bool:
    """Whether this rank is not among the first `count`."""
    first(count)
    return dist.get_rank() >= count
