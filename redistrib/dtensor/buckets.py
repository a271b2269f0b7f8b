"""Buckets of tensors, which travel together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from redistrib.backends.ranks.bucket import RankBucket
from redistrib.backends.ranks.move import RankMove, finish
from redistrib.backends.stages import Memory, staged
from redistrib.backends.torch.dtypes import source_words, torch_dtype, words
from redistrib.backends.torch.links import Links
from redistrib.backends.torch.memory import TensorMemory
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.plan import Plan


class Bucket:
    """The plans of several tensors, run together."""

    def __init__(self, plans: Sequence[Plan], device: int) -> None:
        """`device` is the number of this process in the plans."""
        self._device, self._plans = device, plans
        self._moves = [
            RankMove(staged(plan, device), device, (), TensorMemory(dtype_of(plan.dtype)), plan.itemsize)
            for plan in plans
        ]
        self._bucket = RankBucket(self._moves)

    def run(
        self, locals_: Sequence[torch.Tensor | None], device: torch.device, links: Links
    ) -> list[torch.Tensor | None]:
        """The target tiles of all tensors, from the source tiles; None where this rank holds nothing."""
        memories: list[dict[Memory, torch.Tensor]] = []
        results: list[torch.Tensor | None] = []
        with torch.no_grad():
            for plan, move, local in zip(self._plans, self._moves, locals_, strict=True):
                dtype = torch_dtype(plan.dtype)
                result = torch.empty(plan.after.box(self._device).size, dtype=dtype, device=device)
                results.append(None if plan.after.nowhere[self._device] else result)
                source, target = source_words(local, dtype, device), words(result)
                memories.append({"source": source, "target": target, **move.between(target)})
            finish(self._bucket.run(memories, lambda n: torch.empty(n, dtype=torch.uint8, device=device), links))
        return results
