"""Stages: the operations of a program assigned to the stages of a pipeline."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from redistrib.errors import ProgramError
from redistrib.programs.ir.record import Opens
from redistrib.programs.stages.roles import BatchedProgram

_SLACK = 0.05  # of a stage's work: how far a cut may move to where less has to be sent


@dataclass(frozen=True)
class Stages:
    """The stage of every operation.

    Attributes:
        of: for every operation on examples, by its number, its stage and whether it is in the backward pass.
        owners: for every input the stage that holds it.
    """

    of: dict[int, tuple[int, bool]]
    owners: dict[str, int]


def stages_of(batch: BatchedProgram, count: int, starts: Sequence[str] = ()) -> Stages:
    """Assign the operations to stages of about equal work.

    The forward pass ends with the last operation that reads an input for the first time: it is the layers and the loss.
    It is cut into stretches of operations. The later operations are the backward pass. Each of them runs in the stage
    whose forward pass read the input that it reads, or whose gradient it computes; else where most of its operands are.

    Args:
        batch: the program.
        count: stages.
        starts: the value whose operation begins each stage but the first; empty: stages of equal work.

    Raises:
        ProgramError: if there are fewer operations than stages, or `starts` are not in order.
    """
    batched = [k for k, step in enumerate(batch.steps) if step.kind == "batched"]
    inputs = {value.name for value in batch.inputs}
    forward = forward_of(batch)
    cuts = _cuts_at(batch, forward, count, starts) if starts else _balanced(batch, forward, count)
    of: dict[int, tuple[int, bool]] = {}
    for stage, (low, high) in enumerate(pairwise([0, *cuts, len(forward)])):
        of |= dict.fromkeys(forward[low:high], (stage, False))
    owners: dict[str, int] = {}
    holders: dict[str, set[int]] = {}
    for k in forward:
        _note_readers(batch, k, of[k][0], inputs, owners, holders)
    read_by = {name: frozenset(holders[name]) for name in owners}
    renews = _renewed(batch)
    behind: dict[str, int] = {}  # the stage of each result of the backward pass
    for k in batched[len(forward) :]:
        step = batch.steps[k]
        reads = {*batch.sources[k]}
        most = min((behind[name] for name in reads if name in behind), default=count - 1)
        reads = {*reads, *(name for _, value in step.op.outs for name in renews.get(value.name, ()))}
        stages_of_inputs = [read_by[name] for name in reads if name in read_by and batch.roles[name].kind == "constant"]
        pinned = [max((stage for stage in stages if stage <= most), default=count) for stages in stages_of_inputs]
        stage = min(pinned) if pinned and min(pinned) <= most else _nearest(batch, k, most, holders)
        of[k] = (stage, True)
        _note_readers(batch, k, stage, inputs, owners, holders)
        behind |= {value.name: stage for _, value in step.op.outs}
    return Stages(of, owners)


def forward_of(batch: BatchedProgram) -> list[int]:
    """Operations of the forward pass, by number: those on examples to the last first reader of an input."""
    batched = [k for k, step in enumerate(batch.steps) if step.kind == "batched"]
    inputs = {value.name for value in batch.inputs}
    seen: set[str] = set()
    last = -1
    for k in batched:
        new = {name for name in batch.sources[k] if name in inputs} - seen
        if new:
            last, seen = k, seen | new
    return [k for k in batched if k <= last]


def _renewed(batch: BatchedProgram) -> dict[str, set[str]]:
    """For every sum over examples the inputs that are updated with it, directly or through other operations."""
    updated: dict[str, set[str]] = defaultdict(set)
    comes_of: dict[str, str] = {}
    for k, step in enumerate(batch.steps):
        if step.kind == "final":
            names = batch.sources[k]
            constant = [name for name in names if batch.roles[name].kind == "constant"]
            summed = [name for name in names if batch.roles[name].kind == "summed"]
            for name in {*summed, *(comes_of[name] for name in names if name in comes_of)}:
                updated[name].update(constant)
            for _, value in step.op.outs:
                shaped = [name for name in names if batch.values[name].type.global_shape == value.type.global_shape]
                of = [name if name in summed else comes_of[name] for name in shaped if name in {*summed, *comes_of}]
                comes_of |= dict.fromkeys([value.name], of[0]) if of else {}
    return updated


def _note_readers(
    batch: BatchedProgram,
    number: int,
    stage: int,
    inputs: set[str],
    owners: dict[str, int],
    holders: dict[str, set[int]],
) -> None:
    for name in batch.sources[number]:
        if name in inputs:
            owners.setdefault(name, stage)
        holders.setdefault(name, set()).add(stage)
    for _, value in batch.steps[number].op.outs:
        holders[value.name] = {stage}


def _nearest(batch: BatchedProgram, number: int, most: int, holders: dict[str, set[int]]) -> int:
    """The stage from 0 to `most` that lacks the fewest elements of the operands; of equal ones `most` comes last."""

    def sent(stage: int) -> int:
        names = (name for name in batch.sources[number] if stage not in holders.get(name, {stage}))
        return sum(math.prod(batch.values[name].type.global_shape) for name in names)

    return min(range(most + 1), key=lambda stage: (sent(stage), stage == most, -stage))


def _cuts_at(batch: BatchedProgram, forward: Sequence[int], count: int, starts: Sequence[str]) -> list[int]:
    makes = {value.name: k for k, n in enumerate(forward) for _, value in batch.steps[n].op.outs}
    for name in starts:
        if name not in makes:
            raise ProgramError("", name, "Stages", "no operation that goes forward makes this value")
    cuts = [makes[name] for name in starts]
    if len(cuts) != count - 1 or any(a >= b for a, b in pairwise([0, *cuts])):
        raise ProgramError("", "", "Stages", f"{count} stages begin at {count - 1} values in order, got {list(starts)}")
    return cuts


def _balanced(batch: BatchedProgram, forward: Sequence[int], count: int) -> list[int]:
    if len(forward) < count:
        way = "take fewer"
        if any(batch.steps[k].op.record.opens is Opens.LOOP for k in forward):
            way += ", or let jax.lax.scan read stacked weights step by step (xs), for it is then cut into runs of steps"
        raise ProgramError(
            "", "", "Stages", f"{len(forward)} operations go forward, and there are {count} stages; {way}"
        )
    if count == 1:
        return []
    total = [0, *accumulate(batch.steps[k].flops for k in forward)]
    across = crossing(batch, forward)
    share = max(total[-1] / count, 1)
    cuts: list[int] = []
    for stage in range(1, count):
        low, high = (cuts[-1] if cuts else 0) + 1, len(forward) - (count - stage)
        cuts.append(min(range(low, high + 1), key=_key_of_cut(total, across, share, stage)))
    return cuts


def _key_of_cut(
    total: Sequence[int], across: Sequence[int], share: float, stage: int
) -> Callable[[int], tuple[int, int, float]]:
    def key(k: int) -> tuple[int, int, float]:
        off = abs(total[k] / share - stage)
        return int(off / _SLACK), across[k], off

    return key


def crossing(batch: BatchedProgram, forward: Sequence[int]) -> list[int]:
    """For every cut the elements with examples that operations before it compute and operations after it read."""
    maker: dict[str, int] = {}
    change = [0] * (len(forward) + 2)
    last: dict[str, int] = {}
    for k, n in enumerate(forward):
        for name in batch.steps[n].reads.values():
            if name in maker:
                last[name] = k
        maker |= {value.name: k for _, value in batch.steps[n].op.outs}
    for name, k in last.items():
        size = math.prod(batch.values[name].type.global_shape)
        change[maker[name] + 1] += size
        change[k + 1] -= size
    return list(accumulate(change))
