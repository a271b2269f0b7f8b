"""Buckets of tensors: in every stage one message from rank to rank carries the parts of all tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class _Part:
    """The part of a message that belongs to one tensor: bytes from `start` on."""

    leaf: int
    message: Message
    start: int


@dataclass(frozen=True)
class _Launch:
    """One exchange of messages.

    Attributes:
        sends, receives: for each other rank the parts of the message to it, and of that from it.
        sent_bytes, received_bytes: for each other rank the bytes of that message.
        copies: boxes that stay on this rank, each with the number of its tensor.
    """

    sends: dict[int, list[_Part]]
    receives: dict[int, list[_Part]]
    sent_bytes: dict[int, int]
    received_bytes: dict[int, int]
    copies: list[tuple[int, Copy]]

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all messages."""
        return sum(self.sent_bytes.values()) + sum(self.received_bytes.values())


class Bucket:
    """The plans of several tensors, run together.

    Attributes:
        launches: number of exchanges of messages.
        scratch_bytes: bytes of the messages of the largest of them, sent and received by this rank.
        sent_bytes, received_bytes: bytes of tiles that this rank sends and receives.
    """

    def __init__(self, plans: Sequence[Plan], device: int) -> None:
        """`device` is the number of this process in the plans."""
        self._device = device
        self._plans = plans
        self._memories = [TensorMemory(dtype_of(plan.dtype)) for plan in plans]
        self._moves = [
            RankMove(staged(plan, device), device, (), memory, plan.itemsize)
            for plan, memory in zip(plans, self._memories, strict=True)
        ]
        self.launches = max((len(move.plan.stages) for move in self._moves), default=0)
        self._launches = [self._launch(k) for k in range(self.launches)]
        self.scratch_bytes = max((launch.scratch_bytes for launch in self._launches), default=0)
        self.sent_bytes = sum(move.sent_bytes for move in self._moves)
        self.received_bytes = sum(move.received_bytes for move in self._moves)
        self.middle_bytes = sum(move.middle_bytes for move in self._moves)

    def _launch(self, number: int) -> _Launch:
        """The messages and copies of a launch by its number."""
        sides: list[dict[int, list[_Part]]] = [{}, {}]
        lengths: list[dict[int, int]] = [{}, {}]
        copies: list[tuple[int, Copy]] = []
        for leaf, (move, memory) in enumerate(zip(self._moves, self._memories, strict=True)):
            if number >= len(move.plan.stages):
                continue
            stage = move.plan.stages[number]
            ends = ((stage.sends, stage.source), (stage.receives, stage.target()))
            for receives, ((moves, tile), parts, length) in enumerate(zip(ends, sides, lengths, strict=True)):
                for peer, boxes in by_device(moves):
                    message = Message(boxes, tile, stage.itemsize, memory, bool(receives), aside=True)
                    start = length.get(peer, 0)
                    parts.setdefault(peer, []).append(_Part(leaf, message, start))
                    length[peer] = -(-(start + message.count * memory.word) // _ALIGNED) * _ALIGNED
            copies += [(leaf, memory.copy(source, target)) for source, target in stage.local_copies()]
        return _Launch(sides[0], sides[1], lengths[0], lengths[1], copies)

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
            for number, launch in enumerate(self._launches):
                self._run(number, launch, memories, device, links)
            for move, memory in zip(self._moves, memories, strict=True):
                move.copy_last(memory)
        return results

    def _run(
        self,
        number: int,
        launch: _Launch,
        memories: list[dict[Memory, torch.Tensor]],
        device: torch.device,
        links: Links,
    ) -> None:
        receives = {
            peer: torch.empty(nbytes, dtype=torch.uint8, device=device)
            for peer, nbytes in launch.received_bytes.items()
        }
        sends = {}
        for peer, parts in launch.sends.items():
            buffer = torch.empty(launch.sent_bytes[peer], dtype=torch.uint8, device=device)
            for part in parts:
                stage = self._moves[part.leaf].plan.stages[number]
                part.message.run_copies(memories[part.leaf][stage.reads], self._place(buffer, part, stage))
            sends[peer] = buffer
        works = links.start(list(sends.items()), list(receives.items()))
        for leaf, copy in launch.copies:
            stage = self._moves[leaf].plan.stages[number]
            copy(memories[leaf][stage.reads], memories[leaf][stage.writes])
        for work in works:
            work.wait()
        for peer, parts in launch.receives.items():
            for part in parts:
                stage = self._moves[part.leaf].plan.stages[number]
                place = self._place(receives[peer], part, stage)
                part.message.run_copies(place, memories[part.leaf][stage.writes])

    @staticmethod
    def _place(buffer: torch.Tensor, part: _Part, stage: Stage) -> torch.Tensor:
        nbytes = part.message.count * word_bytes(stage.itemsize)
        return buffer[part.start : part.start + nbytes].view(word_of(stage.itemsize))
