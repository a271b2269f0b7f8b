"""Many tensors in one launch: the messages of all plans of a bucket, stage by stage, one between each two ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from redistrib.backends.stages import Stage, StagedPlan, by_device, staged
from redistrib.backends.torch.copies import Copy, Message
from redistrib.backends.torch.dtypes import torch_dtype, word_of, words
from redistrib.backends.torch.links import Links
from redistrib.plans.plan import Plan
from redistrib.plans.strided import runs_in_both

_ALIGNED = 16  # bytes: where a tensor's part of a message begins, so that it can be seen as words


def can_share_a_launch(plan: Plan) -> bool:
    """Whether a plan moves tiles only: reductions travel by themselves."""
    return max(plan.before.summands, plan.after.summands) == 1


@dataclass(frozen=True)
class _Part:
    """The part of a message that belongs to one tensor: bytes from `start` on."""

    leaf: int
    message: Message
    start: int


class Bucket:
    """The plans of several tensors, run together.

    Attributes:
        launches: exchanges of messages.
        scratch_bytes: bytes of messages that one of them sends and receives on this rank, at most.
        sent_bytes, received_bytes: bytes of tiles that this rank sends and receives.
    """

    def __init__(self, plans: Sequence[Plan], device: int) -> None:
        """`device` is the number of this process in the plans."""
        self._device = device
        self._plans = plans
        self._staged: list[StagedPlan] = [staged(plan, device) for plan in plans]
        self.launches = max((len(one.stages) for one in self._staged), default=0)
        self._last = [self._last_copy(one, plan) for one, plan in zip(self._staged, plans, strict=True)]
        self._turns = [self._turn(k) for k in range(self.launches)]
        self.scratch_bytes = max(
            (sum(out.values()) + sum(into.values()) for _, _, out, into, _ in self._turns), default=0
        )
        stages = [stage for one in self._staged for stage in one.stages]
        self.sent_bytes = sum(stage.sent_bytes for stage in stages)
        self.received_bytes = sum(stage.received_bytes for stage in stages)
        self.middle_bytes = sum(sum(one.middle) for one in self._staged)

    def _last_copy(self, one: StagedPlan, plan: Plan) -> Copy | None:
        box = one.after.box(self._device)
        if one.last == "target" or not box.volume:
            return None
        between = one.last_placement.box(self._device)
        return Copy.of(*runs_in_both(box, between, box, plan.itemsize), min(8, plan.itemsize))

    def _turn(self, number: int) -> tuple[Any, Any, dict[int, int], dict[int, int], Any]:
        """Messages and copies of one launch: parts to send and to receive by rank, bytes of each, copies by tensor."""
        sides: list[dict[int, list[_Part]]] = [{}, {}]
        lengths: list[dict[int, int]] = [{}, {}]
        copies: list[tuple[int, Copy]] = []
        for leaf, one in enumerate(self._staged):
            if number >= len(one.stages):
                continue
            stage: Stage = one.stages[number]
            word = min(8, stage.itemsize)
            ends = ((stage.sends, stage.source), (stage.receives, stage.target()))
            for (moves, tile), parts, length in zip(ends, sides, lengths, strict=True):
                for peer, boxes in by_device(moves):
                    message = Message(peer, boxes, tile, stage.itemsize, word)
                    start = length.get(peer, 0)
                    parts.setdefault(peer, []).append(_Part(leaf, message, start))
                    length[peer] = -(-(start + message.count * word) // _ALIGNED) * _ALIGNED
            copies += [(leaf, Copy.of(source, target, word)) for source, target in stage.local_copies()]
        return sides[0], sides[1], lengths[0], lengths[1], copies

    def run(
        self, locals_: Sequence[torch.Tensor | None], device: torch.device, links: Links
    ) -> list[torch.Tensor | None]:
        """The target tiles of all tensors, from the source tiles; None where this rank holds nothing."""
        memories: list[dict[str, torch.Tensor]] = []
        results: list[torch.Tensor | None] = []
        with torch.no_grad():
            for plan, one, local in zip(self._plans, self._staged, locals_, strict=True):
                word = word_of(plan.itemsize)
                size = plan.after.box(self._device).size
                target = torch.empty(size, dtype=torch_dtype(plan.dtype), device=device)
                results.append(None if plan.after.nowhere[self._device] else target)
                source = torch.empty(0, dtype=word, device=device)
                if local is not None:
                    source = words(local.detach().resolve_conj().resolve_neg().contiguous())
                memory = {"source": source, "target": words(target)}
                for k, nbytes in enumerate(one.middle):
                    if nbytes:
                        memory[f"middle {k}"] = torch.empty(nbytes // min(8, plan.itemsize), dtype=word, device=device)
                memories.append(memory)
            for number, turn in enumerate(self._turns):
                self._run_turn(number, turn, memories, device, links)
            for one, last, memory in zip(self._staged, self._last, memories, strict=True):
                if last is not None:
                    last.run(memory[one.last], memory["target"])
        return results

    def _run_turn(
        self, number: int, turn: Any, memories: list[dict[str, torch.Tensor]], device: torch.device, links: Links
    ) -> None:
        out, into, sent, received, copies = turn
        receives = {peer: torch.empty(nbytes, dtype=torch.uint8, device=device) for peer, nbytes in received.items()}
        sends = {}
        for peer, parts in out.items():
            buffer = torch.empty(sent[peer], dtype=torch.uint8, device=device)
            for part in parts:
                stage = self._staged[part.leaf].stages[number]
                part.message.pack_into(memories[part.leaf][stage.reads], self._place(buffer, part, stage))
            sends[peer] = buffer
        works = links.start(list(sends.items()), list(receives.items()))
        for leaf, copy in copies:
            stage = self._staged[leaf].stages[number]
            copy.run(memories[leaf][stage.reads], memories[leaf][stage.writes])
        for work in works:
            work.wait()
        for peer, parts in into.items():
            for part in parts:
                stage = self._staged[part.leaf].stages[number]
                place = self._place(receives[peer], part, stage)
                part.message.unpack_from(place, memories[part.leaf][stage.writes])

    @staticmethod
    def _place(buffer: torch.Tensor, part: _Part, stage: Stage) -> torch.Tensor:
        nbytes = part.message.count * min(8, stage.itemsize)
        return buffer[part.start : part.start + nbytes].view(word_of(stage.itemsize))
