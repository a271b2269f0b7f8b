"""Stages: the operations of a program dealt out along a pipeline."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from redistrib.errors import ProgramError
from redistrib.pipelines.roles import Batch

_SLACK = 0.05  # of a stage's work: how far a cut may move to where less has to be sent


@dataclass(frozen=True)
class Stages:
    """Where every operation runs.

    Attributes:
        of: for every operation on examples its stage and whether it goes backward, by its number; others have none.
        homes: for every input the stage that holds it.
    """

    of: dict[int, tuple[int, bool]]
    homes: dict[str, int]


def stages_of(batch: Batch, count: int, starts: Sequence[str] = ()) -> Stages:
    """Deal the operations out to stages of about equal work.

    What goes forward ends with the last operation that reads an input for the first time: the layers, and the loss. It
    is cut into stretches. What comes after goes backward: an operation runs where the inputs went forward that it
    reads, or whose gradient it makes, or else where most of what it reads is.

    Args:
        batch: the program.
        count: stages.
        starts: the value whose operation begins each stage but the first; else chosen.

    Raises:
        ProgramError: if there are fewer operations than stages, or `starts` are not in order.
    """
    each = [k for k, step in enumerate(batch.steps) if step.kind == "batched"]
    named = {value.name for value in batch.inputs}
    forward = forward_of(batch)
    cuts = _named(batch, forward, count, starts) if starts else _balanced(batch, forward, count)
    of: dict[int, tuple[int, bool]] = {}
    for stage, (low, high) in enumerate(pairwise([0, *cuts, len(forward)])):
        of |= dict.fromkeys(forward[low:high], (stage, False))
    homes: dict[str, int] = {}
    held: dict[str, set[int]] = {}
    for k in forward:
        _note(batch, k, of[k][0], named, homes, held)
    read_by = {name: frozenset(held[name]) for name in homes}
    renews = _renewed(batch)
    behind: dict[str, int] = {}  # the stage of what was made going backward
    for k in each[len(forward) :]:
        step = batch.steps[k]
        reads = {*batch.sources[k]}
        most = min((behind[name] for name in reads if name in behind), default=count - 1)
        reads = {*reads, *(name for _, value in step.op.outs for name in renews.get(value.name, ()))}
        inputs = [read_by[name] for name in reads if name in read_by and batch.roles[name].kind == "constant"]
        pinned = [max((own for own in stages if own <= most), default=count) for stages in inputs]
        stage = min(pinned) if pinned and min(pinned) <= most else _nearest(batch, k, most, held)
        of[k] = (stage, True)
        _note(batch, k, stage, named, homes, held)
        behind |= {value.name: stage for _, value in step.op.outs}
    return Stages(of, homes)


def forward_of(batch: Batch) -> list[int]:
    """Numbers of the operations that go forward: on examples, up to the last that reads an input for the first time."""
    each = [k for k, step in enumerate(batch.steps) if step.kind == "batched"]
    named = {value.name for value in batch.inputs}
    seen: set[str] = set()
    last = -1
    for k in each:
        new = {name for name in batch.sources[k] if name in named} - seen
        if new:
            last, seen = k, seen | new
    return [k for k in each if k <= last]


def _renewed(batch: Batch) -> dict[str, set[str]]:
    """For every sum over examples the inputs that are updated with it, at once or element by element in between."""
    found: dict[str, set[str]] = defaultdict(set)
    comes_of: dict[str, str] = {}
    for k, step in enumerate(batch.steps):
        if step.kind == "final":
            names = batch.sources[k]
            constant = [name for name in names if batch.roles[name].kind == "constant"]
            summed = [name for name in names if batch.roles[name].kind == "summed"]
            for name in {*summed, *(comes_of[name] for name in names if name in comes_of)}:
                found[name].update(constant)
            for _, value in step.op.outs:
                alike = [name for name in names if batch.values[name].type.global_shape == value.type.global_shape]
                of = [name if name in summed else comes_of[name] for name in alike if name in {*summed, *comes_of}]
                comes_of |= dict.fromkeys([value.name], of[0]) if of else {}
    return found


def _note(
    batch: Batch, number: int, stage: int, named: set[str], homes: dict[str, int], held: dict[str, set[int]]
) -> None:
    for name in batch.sources[number]:
        if name in named:
            homes.setdefault(name, stage)
        held.setdefault(name, set()).add(stage)
    for _, value in batch.steps[number].op.outs:
        held[value.name] = {stage}


def _nearest(batch: Batch, number: int, most: int, held: dict[str, set[int]]) -> int:
    """The stage, none beyond `most`, to which the least would have to be sent; if others do as well, not `most`."""

    def sent(stage: int) -> int:
        names = (name for name in batch.sources[number] if stage not in held.get(name, {stage}))
        return sum(math.prod(batch.values[name].type.global_shape) for name in names)

    return min(range(most + 1), key=lambda stage: (sent(stage), stage == most, -stage))


def _named(batch: Batch, forward: Sequence[int], count: int, starts: Sequence[str]) -> list[int]:
    makes = {value.name: k for k, n in enumerate(forward) for _, value in batch.steps[n].op.outs}
    for name in starts:
        if name not in makes:
            raise ProgramError("", name, "Stages", "no operation that goes forward makes this value")
    cuts = [makes[name] for name in starts]
    if len(cuts) != count - 1 or any(a >= b for a, b in pairwise([0, *cuts])):
        raise ProgramError("", "", "Stages", f"{count} stages begin at {count - 1} values in order, got {list(starts)}")
    return cuts


def _balanced(batch: Batch, forward: Sequence[int], count: int) -> list[int]:
    if len(forward) < count:
        raise ProgramError(
            "", "", "Stages", f"{len(forward)} operations go forward, and there are {count} stages; take fewer"
        )
    if count == 1:
        return []
    done = [0, *accumulate(batch.steps[k].flops for k in forward)]
    across = crossing(batch, forward)
    share = max(done[-1] / count, 1)
    cuts: list[int] = []
    for stage in range(1, count):
        low, high = (cuts[-1] if cuts else 0) + 1, len(forward) - (count - stage)
        cuts.append(min(range(low, high + 1), key=_by(done, across, share, stage)))
    return cuts


def _by(
    done: Sequence[int], across: Sequence[int], share: float, stage: int
) -> Callable[[int], tuple[int, int, float]]:
    def key(k: int) -> tuple[int, int, float]:
        off = abs(done[k] / share - stage)
        return int(off / _SLACK), across[k], off

    return key


def crossing(batch: Batch, forward: Sequence[int]) -> list[int]:
    """For every cut the elements with examples that operations before it make and operations after it read."""
    made: dict[str, int] = {}
    change = [0] * (len(forward) + 2)
    last: dict[str, int] = {}
    for k, n in enumerate(forward):
        for name in batch.steps[n].reads.values():
            if name in made:
                last[name] = k
        made |= {value.name: k for _, value in batch.steps[n].op.outs}
    for name, k in last.items():
        size = math.prod(batch.values[name].type.global_shape)
        change[made[name] + 1] += size
        change[k + 1] -= size
    return list(accumulate(change))
