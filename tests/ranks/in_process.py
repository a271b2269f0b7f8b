"""A wire between ranks of one process: letters in a box, and a loop that runs all ranks in one thread.

A rank that waits gives way to the next; the order in which ranks go on, and what becomes of a letter, are the test's.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redistrib.backends.ranks.bucket import RankBucket
from redistrib.backends.ranks.host_memory import HostMemory
from redistrib.backends.ranks.move import RankMove
from redistrib.backends.ranks.protocols import Lengths, Pending, WireCall
from redistrib.backends.ranks.runners import runner_of
from redistrib.backends.stages import Stage, reduction_of, staged
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.plan import Plan
from redistrib.plans.reduction import Accumulator
from redistrib.plans.step import GroupStep
from redistrib.plans.steps import AllGather, AllReduce, AllToAll, ReduceScatter
from redistrib.plans.strided import Bytes

Buffers = Sequence[Bytes]
Letters = Sequence[tuple[int, Bytes]]  # the other rank, and the bytes


class Post:
    """The letters under way between all ranks, in order between each two."""

    def __init__(self) -> None:
        self.letters: dict[tuple[int, int], deque[bytes]] = defaultdict(deque)
        self.calls: set[str] = set()

    def send(self, sender: int, receiver: int, letter: bytes) -> None:
        self.letters[sender, receiver].append(letter)


@dataclass
class Delivery:
    """What a rank waits for: a letter from each sender."""

    post: Post
    rank: int
    senders: Sequence[int]
    deliver: Callable[[list[bytes]], None]

    @property
    def ready(self) -> bool:
        return all(self.post.letters[sender, self.rank] for sender in self.senders)

    def wait(self) -> None:
        self.deliver([self.post.letters[sender, self.rank].popleft() for sender in self.senders])


class InProcessWire:
    """The `Wire` and the `Messages` of one rank.

    Args:
        post: of all ranks.
        rank: the number of the rank.
        joined: whether the messages of a side lie end to end in one buffer.
        has_collectives: whether there are collectives beside messages.
    """

    def __init__(self, post: Post, rank: int, joined: bool, has_collectives: bool) -> None:
        self._post, self._rank = post, rank
        self._joined, self._has_collectives = joined, has_collectives

    def _call(
        self,
        name: str,
        receivers: Sequence[int],
        senders: Sequence[int],
        out: Callable[[Buffers], Buffers],
        deliver: Callable[[Buffers, list[bytes]], None],
        joined: bool = True,
        in_place: bool = False,
    ) -> WireCall:
        """A letter to each receiver, cut out of what is sent, and one from each sender."""

        def start(sent: Buffers, into: Buffers) -> list[Pending]:
            self._post.calls.add(name)
            for receiver, part in zip(receivers, out(sent), strict=True):
                self._post.send(self._rank, receiver, part.tobytes())
            return [Delivery(self._post, self._rank, senders, lambda letters: deliver(into, letters))]

        return WireCall(name, start, joined, in_place)

    def exchange(self, stage: Stage, sends: Lengths, receives: Lengths) -> WireCall:
        sizes, sizes_in = [words for _, words in sends], [words for _, words in receives]
        joined = self._joined

        def out(sent: Buffers) -> Buffers:
            return _cut(sent[0], sizes) if joined else sent

        def deliver(into: Buffers, letters: list[bytes]) -> None:
            for place, letter in zip(_cut(into[0], sizes_in) if joined else into, letters, strict=True):
                place[:] = np.frombuffer(letter, np.uint8)

        return self._call("exchange", [d for d, _ in sends], [d for d, _ in receives], out, deliver, joined)

    def start(self, sends: Letters, receives: Letters) -> list[Pending]:
        """As `Messages` has it."""
        for receiver, part in sends:
            self._post.send(self._rank, receiver, part.tobytes())

        def deliver(letters: list[bytes]) -> None:
            for (_, place), letter in zip(receives, letters, strict=True):
                place[:] = np.frombuffer(letter, np.uint8)

        return [Delivery(self._post, self._rank, [sender for sender, _ in receives], deliver)]

    def members(self, step: GroupStep) -> list[int]:
        return step.group_of(self._rank)

    def collective(self, stage: Stage, in_place: bool) -> WireCall | None:
        step = stage.step
        if not self._has_collectives or not isinstance(step, AllGather | AllToAll | AllReduce | ReduceScatter):
            return None
        group = step.group_of(stage.device)
        blocks = 1 if isinstance(step, AllGather | AllReduce) else len(group)

        def out(sent: Buffers) -> Buffers:
            return _evenly(sent[0], blocks) * (len(group) // blocks)

        def lay_out(into: Buffers, letters: list[bytes]) -> None:
            into[0][:] = np.frombuffer(b"".join(letters), np.uint8)

        def add(into: Buffers, letters: list[bytes]) -> None:
            into[0][:] = _added(stage, [letters[k] for k in np.argsort(step.before.label[group])])

        reduces = isinstance(step, AllReduce | ReduceScatter)
        in_place = in_place or isinstance(step, AllReduce)
        return self._call(step.kind, group, group, out, add if reduces else lay_out, in_place=in_place)

    def scatter_and_gather(self, stage: Stage, step: AllReduce) -> tuple[WireCall, WireCall]:
        group, sizes = step.group_of(stage.device), [part * stage.itemsize for part in step.parts]

        def deliver(into: Buffers, letters: list[bytes]) -> None:
            into[0][:] = np.frombuffer(b"".join(letters), np.uint8)

        scatter = self._call("parts", group, group, lambda sent: _cut(sent[0], sizes), deliver)
        gather = self._call("parts", group, group, lambda sent: [sent[0]] * len(group), deliver, in_place=True)
        return scatter, gather


def _cut(buffer: Bytes, sizes: Sequence[int]) -> list[Bytes]:
    assert len(buffer) == sum(sizes)
    return np.split(buffer, np.cumsum(sizes)[:-1]) if len(sizes) else []


def _evenly(buffer: Bytes, blocks: int) -> list[Bytes]:
    return np.split(buffer, blocks)


def _added(stage: Stage, letters: list[bytes]) -> Bytes:
    """Letters of one length, reduced in their order."""
    parts = [np.frombuffer(letter, stage.dtype) for letter in letters]
    total = Accumulator(parts[0].shape, stage.dtype, reduction_of(stage), stage.accumulate)
    for part in parts:
        total.add([0], part)
    return total.result().view(np.uint8)


# ------------------------------------------------------------------------------------------------- all the ranks


def play(runs: Sequence[Iterator[Delivery]]) -> list[int]:
    """Run all ranks, each until it waits; returns the ranks that wait for ever."""
    waiting = dict(enumerate(runs))
    works = {rank: next(run, None) for rank, run in waiting.items()}
    while waiting:
        able = [rank for rank in waiting if (work := works[rank]) is None or work.ready]
        if not able:
            return sorted(waiting)
        for rank in able:
            work = works[rank]
            if work is None:
                del waiting[rank]
            else:
                work.wait()
                works[rank] = next(waiting[rank], None)
    return []


def run_in_process(
    plan: Plan, tiles: Sequence[Any], *, joined: bool = True, has_collectives: bool = False, post: Post | None = None
) -> list[Any]:
    """The tile of every device after a plan.

    Raises:
        AssertionError: if a rank waits for ever, or a letter is left.
    """
    post, memory = post or Post(), HostMemory(dtype_of(plan.dtype))
    runs, results = [], []
    for device, tile in enumerate(tiles):
        ways = staged(plan, device)
        wire = InProcessWire(post, device, joined, has_collectives)
        runners = [runner_of(stage, wire, memory) for stage in ways.stages]
        move = RankMove(ways, device, runners, memory, plan.itemsize)
        buffers, result = _buffers(plan, device, move, tile)
        runs.append(move.run(buffers, memory.empty(move.staging)))
        results.append(result)
    _play_all(runs, post)
    return results


def run_bucket(plans: Sequence[Plan], tiles: Sequence[Sequence[Any]], post: Post) -> list[list[Any]]:
    """The tiles of every device after plans that run together, plan by plan.

    Raises:
        AssertionError: if a rank waits for ever, or a letter is left.
    """
    runs, results = [], list[list[Any]]([] for _ in plans)
    for device in range(plans[0].devices):
        memories, moves = [], []
        for plan, sources, of_plan in zip(plans, tiles, results, strict=True):
            memory = HostMemory(dtype_of(plan.dtype))
            moves.append(RankMove(staged(plan, device), device, (), memory, plan.itemsize))
            buffers, result = _buffers(plan, device, moves[-1], sources[device])
            memories.append(buffers)
            of_plan.append(result)
        wire = InProcessWire(post, device, joined=False, has_collectives=False)
        runs.append(RankBucket(moves).run(memories, lambda nbytes: np.full(nbytes, 0xCD, np.uint8), wire))
    _play_all(runs, post)
    return results


def _buffers(plan: Plan, device: int, move: RankMove, tile: Any) -> tuple[dict[Any, Bytes], Any]:
    """The buffers of a run, the source read-only, and the tile that it makes."""
    source = np.ascontiguousarray(tile).reshape(-1).view(np.uint8)
    source.flags.writeable = False
    target = np.full(plan.after.box(device).volume * plan.itemsize, 0xAB, np.uint8)
    buffers = {"source": source, "target": target, **move.between(source)}
    return buffers, target.view(dtype_of(plan.dtype)).reshape(plan.after.box(device).size)


def _play_all(runs: Sequence[Iterator[Delivery]], post: Post) -> None:
    stuck = play(runs)
    assert not stuck, f"ranks {stuck} wait for ever"
    left = sorted(ends for ends, letters in post.letters.items() if letters)
    assert not left, f"letters from and to {left} are left"
