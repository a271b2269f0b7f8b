"""Buckets of tensors: in every stage one message from rank to rank carries the parts of all tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from redistrib.backends.ranks.move import RankMove
from redistrib.backends.ranks.protocols import Copy
from redistrib.backends.ranks.sides import Message
from redistrib.backends.stages import Memory, Stage, by_device, staged
from redistrib.backends.torch.dtypes import source_words, torch_dtype, word_bytes, word_of, words
from redistrib.backends.torch.links import Links
from redistrib.backends.torch.memory import TensorMemory
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.plan import Plan

_ALIGNED = 16  # bytes; a tensor's part of a message begins at a multiple, so that it can be viewed as words


def can_share_a_launch(plan: Plan) -> bool:
    """Whether a plan moves tiles only; reductions do not share a launch."""
    return max(plan.before.summands, plan.after.summands) == 1


class _Part(NamedTuple):
    """The part of a message that belongs to one tensor: bytes from `start` on."""

    leaf: int
    stage: Stage
    message: Message
    start: int

    def words(self, buffer: torch.Tensor) -> torch.Tensor:
        """The words of this part of a message."""
        nbytes = self.message.count * word_bytes(self.stage.itemsize)
        return buffer[self.start : self.start + nbytes].view(word_of(self.stage.itemsize))


class _Launch(NamedTuple):
    """One exchange of messages.

    Attributes:
        sends, receives: for each other rank the parts of the message to it, and of that from it, and its bytes.
        copies: boxes that stay on this rank, each with the number of its tensor and the stage.
    """

    sends: dict[int, tuple[list[_Part], int]]
    receives: dict[int, tuple[list[_Part], int]]
    copies: list[tuple[int, Stage, Copy]]


class Bucket:
    """The plans of several tensors, run together."""

    def __init__(self, plans: Sequence[Plan], device: int) -> None:
        """`device` is the number of this process in the plans."""
        self._device = device
        self._plans = plans
        self._memories = [TensorMemory(dtype_of(plan.dtype)) for plan in plans]
        self._moves = [
            RankMove(staged(plan, device), device, (), memory, plan.itemsize)
            for plan, memory in zip(plans, self._memories, strict=True)
        ]
        launches = max((len(move.plan.stages) for move in self._moves), default=0)
        self._launches = [self._launch(k) for k in range(launches)]

    def _launch(self, number: int) -> _Launch:
        """The messages and copies of a launch by its number."""
        launch = _Launch({}, {}, [])
        for leaf, (move, memory) in enumerate(zip(self._moves, self._memories, strict=True)):
            for stage in move.plan.stages[number : number + 1]:
                ends = (launch.sends, stage.sends, stage.source), (launch.receives, stage.receives, stage.target())
                for side, moves, tile in ends:
                    for peer, boxes in by_device(moves):
                        message = Message(
                            boxes, tile, stage.itemsize, memory, receives=side is launch.receives, aside=True
                        )
                        parts, start = side.get(peer, ([], 0))
                        parts.append(_Part(leaf, stage, message, start))
                        side[peer] = parts, -(-(start + message.count * memory.word) // _ALIGNED) * _ALIGNED
                launch.copies.extend((leaf, stage, memory.copy(*copy)) for copy in stage.local_copies())
        return launch

    def run(
        self, locals_: Sequence[torch.Tensor | None], device: torch.device, links: Links
    ) -> list[torch.Tensor | None]:
        """The target tiles of all tensors, from the source tiles; None where this rank holds nothing."""
        memories: list[dict[Memory, torch.Tensor]] = []
        results: list[torch.Tensor | None] = []
        with torch.no_grad():
            for plan, move, local in zip(self._plans, self._moves, locals_, strict=True):
                result = torch.empty(plan.after.box(self._device).size, dtype=torch_dtype(plan.dtype), device=device)
                results.append(None if plan.after.nowhere[self._device] else result)
                source, target = source_words(local, plan.itemsize, device), words(result)
                memories.append({"source": source, "target": target, **move.between(target)})
            for launch in self._launches:
                self._run(launch, memories, device, links)
            for move, memory in zip(self._moves, memories, strict=True):
                move.copy_last(memory)
        return results

    @staticmethod
    def _run(
        launch: _Launch, memories: Sequence[dict[Memory, torch.Tensor]], device: torch.device, links: Links
    ) -> None:
        sends, receives = (
            {peer: torch.empty(nbytes, dtype=torch.uint8, device=device) for peer, (_, nbytes) in side.items()}
            for side in (launch.sends, launch.receives)
        )
        for peer, (parts, _) in launch.sends.items():
            for part in parts:
                part.message.run_copies(memories[part.leaf][part.stage.reads], part.words(sends[peer]))
        works = links.start(list(sends.items()), list(receives.items()))
        for leaf, stage, copy in launch.copies:
            copy(memories[leaf][stage.reads], memories[leaf][stage.writes])
        for work in works:
            work.wait()
        for peer, (parts, _) in launch.receives.items():
            for part in parts:
                part.message.run_copies(part.words(receives[peer]), memories[part.leaf][part.stage.writes])
