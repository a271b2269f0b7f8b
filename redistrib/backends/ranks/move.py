"""A plan on one of its devices: the stages in order, and the memory that they share."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from redistrib.backends.ranks.protocols import Buffer, Copy, Pending, RankMemory
from redistrib.backends.ranks.runners import Runner
from redistrib.backends.stages import Memory as Name
from redistrib.backends.stages import StagedPlan
from redistrib.plans.strided import runs_in_both

MIDDLE: tuple[Name, Name] = ("middle 0", "middle 1")


class RankMove:
    """A plan that one rank runs, together with all others.

    Attributes:
        plan: its stages on this device.
        memory: in which it runs.
        runners: one for each step that moves data, in order; none where a bucket runs its stages.
        transports: the transport of each.
        staging: words of memory that all runners use in turn.
        scratch_bytes: bytes of it, and of what runners allocate themselves, as accumulators.
        middle_bytes: bytes of the tiles between source and target.
        sent_bytes, received_bytes: bytes that this rank sends to other ranks, and receives from them, in one run.
    """

    def __init__(
        self, plan: StagedPlan, device: int, runners: Sequence[Runner], memory: RankMemory, itemsize: int
    ) -> None:
        self.plan, self.runners, self.memory = plan, runners, memory
        self.transports = [runner.name for runner in runners]
        self.staging = max((runner.scratch for runner in runners), default=0)
        self.scratch_bytes = self.staging * memory.word + sum(runner.beside for runner in runners)
        self.middle_bytes = sum(plan.middle)
        sizes = zip(MIDDLE, plan.middle, strict=True)
        self._middle = {name: nbytes // memory.word for name, nbytes in sizes if nbytes}
        self.sent_bytes = sum(stage.sent_bytes for stage in plan.stages)
        self.received_bytes = sum(stage.received_bytes for stage in plan.stages)
        self._last: Copy | None = None
        box = plan.after.box(device)
        if plan.last != "target" and box.volume:
            self._last = memory.copy(*runs_in_both(box, plan.last_placement.box(device), box, itemsize))

    def between(self, like: Buffer, shared: Container[Name] = ()) -> dict[Name, Buffer]:
        """New memory for the tiles between source and target that no other rank writes, beside a buffer."""
        return {name: self.memory.empty(words, like) for name, words in self._middle.items() if name not in shared}

    def run(self, memory: Mapping[Name, Buffer], staging: Buffer) -> Iterator[Pending]:
        """Run the stages; yields what to wait for.

        Args:
            memory: the buffers of the source, of the target and between them, by name.
            staging: a buffer of at least `staging` words.
        """
        for runner in self.runners:
            stage = runner.stage
            yield from runner.run(memory[stage.reads], memory[stage.writes], staging)
        self.copy_last(memory)

    def copy_last(self, memory: Mapping[Name, Buffer]) -> None:
        """Copy the result into the target, where the last stage left it elsewhere."""
        if self._last is not None:
            self._last(memory[self.plan.last], memory["target"])


def finish(works: Iterable[Pending]) -> None:
    """Wait for each part of a run in turn, as the only rank of a process does."""
    for work in works:
        work.wait()
