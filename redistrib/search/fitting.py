"""Schedules that fit a memory limit: bytes held at the worst moments are priced, the dearer the less fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from redistrib.distribution.entry import KEPT
from redistrib.errors import MemoryLimitError
from redistrib.programs.live import changes
from redistrib.programs.program import Compute, Program
from redistrib.search.axes import Task
from redistrib.search.deadline import NEVER, Deadline
from redistrib.search.descent import Found, program_of, searched
from redistrib.simulate import simulate

STEEP = 8.0  # how much dearer a byte becomes where too much is held
STEPS = 8  # in which it does
FREE = 0.5  # of the time that there is, for what takes the least time whatever it holds
HALVINGS = 4  # of the price of a byte, to come near the limit again


class Fitted(NamedTuple):
    """A schedule and its program.

    Attributes:
        task: as it was searched at last.
        found: the schedule.
        program: of it.
        free: without a limit.
    """

    task: Task
    found: Found
    program: Program
    free: Found


def fitted(
    task: Task,
    name: str,
    most: int | None,
    deadline: Deadline = NEVER,
    told: Callable[[str], None] = lambda said: None,
) -> Fitted:
    """The fastest schedule that is found whose program holds no more than so many bytes on a device.

    Args:
        task: what is searched.
        name: of the program.
        most: bytes; None for no limit.
        deadline: after which the best so far is taken.
        told: is told what goes on.

    Raises:
        MemoryLimitError: if nothing that was found fits; tells the least that fits.
    """
    free = searched(task, deadline if most is None else deadline.part(FREE), told)
    program = program_of(task, free, name)
    if most is None or peak(program)[0] <= most:
        return Fitted(task, free, program, free)
    return _Fitting(task, name, most, deadline, told, free).run(program)


def peak(program: Program) -> tuple[int, int]:
    """The most bytes that a device holds, and the number of the computation that runs then, or next."""
    held = worst = sum(value.tile_bytes for value in program.inputs)
    moment = number = 0
    for op, change in zip(program.ops, changes(program), strict=True):
        held += sum(value.tile_bytes for value in change.born)
        if held + change.scratch > worst:
            worst, moment = held + change.scratch, number
        held -= sum(value.tile_bytes for value in change.died)
        number += isinstance(op, Compute)
    return worst, moment


@dataclass
class _Fitting:
    task: Task
    name: str
    most: int
    deadline: Deadline
    told: Callable[[str], None]
    free: Found
    best: tuple[float, Fitted] | None = None

    def run(self, program: Program) -> Fitted:
        self.task = replace(self.task, keep=KEPT)
        self.moments = {peak(program)[1]: None}
        self.least = peak(program)[0]
        self._note(self.task, self.free)
        rate = 0.01 * self.free.price / self.least
        dear = cheap = 0.0
        for _ in range(STEPS):
            if self._fits(rate):
                dear = rate
                break
            cheap, rate = rate, rate * STEEP
        for _ in range(HALVINGS if dear else 0):
            rate = math.sqrt(cheap * dear) if cheap else dear / STEEP
            cheap, dear = (cheap, rate) if self._fits(rate) else (rate, dear)
        if self.best is None:
            raise MemoryLimitError(
                self.most,
                self.least,
                f"no schedule of {self.name} that was found fits in {self.most:,} bytes on a device; the least "
                f"memory_limit that one fits is {self.least:,} bytes",
            )
        self._refilled(self.best[1])
        return self.best[1]

    def _refilled(self, made: Fitted) -> None:
        """Lay arguments out again as they are without a limit, as many as there is room for.

        Those of layers that are alike are all laid out alike where only the price of a byte decides.
        """
        tight, free = made.found.decided, self.free.decided
        other = [name for name, at in tight.ins.items() if at != free.ins[name]]
        low, high = 0, len(other)
        while low < high and not self.deadline.passed:
            count = (low + high + 1) // 2
            decided = tight.copy()
            for name in other[:count]:
                decided.ins[name] = dict(free.ins[name])
            for number, name in self.task.tied.items():
                decided.outs[number] = dict(decided.ins[name])
            fits = self._note(made.task, replace(made.found, decided=decided, complete=False))
            low, high = (count, high) if fits else (low, count - 1)

    def _fits(self, rate: float) -> bool:
        if self.deadline.passed:
            return self.best is not None
        self.told(f"memory, {rate:.3g} a byte")
        held = dict.fromkeys(self.moments, rate / len(self.moments))
        task = replace(self.task, held=held)
        return self._note(task, searched(task, self.deadline, self.told))

    def _note(self, task: Task, found: Found) -> bool:
        program = program_of(task, found, self.name)
        size, moment = peak(program)
        self.moments[moment] = None
        self.least = min(self.least, size)
        if size > self.most:
            return False
        price = simulate(program, task.machine, record=False).seconds
        if self.task.moves.objective == "bytes":
            price = program.received_bytes
        if self.best is None or price < self.best[0]:
            self.best = (price, Fitted(task, found, program, self.free))
        return True
