"""The stages of a move in time: the links that carry a step of a plan, its rounds, and when each of them begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from redistrib.plans.steps import AllReduce, Exchange
from redistrib.programs.time.prices import PricedStage
from redistrib.programs.time.rounds import rounds_of
from redistrib.programs.time.timeline import Event


@dataclass(frozen=True)
class TimedStage:
    """A stage of a move, with its times.

    Attributes:
        stage: with its price.
        start, seconds: when it begins, from the start of the program, and how long it takes.
        links: those that carry a step of a plan; empty where all links are alike.
        rounds: the elements of the largest share of each round of an exchange; empty for collectives of the platform,
            which chooses their rounds.
    """

    stage: PricedStage
    start: float
    seconds: float

    @property
    def links(self) -> str:
        return self._carriers[0]

    @property
    def rounds(self) -> tuple[int, ...]:
        return self._carriers[1]

    @property
    def begins(self) -> tuple[float, ...]:
        """When each round begins: it takes a part of the seconds in proportion to its largest share."""
        total = sum(self.rounds) or 1
        return tuple(self.start + self.seconds * part / total for part in accumulate(self.rounds[:-1], initial=0))

    @cached_property
    def _carriers(self) -> tuple[str, tuple[int, ...]]:
        step, topology = self.stage.step, self.stage.topology
        if step is None or topology is None:
            return "", ()
        crosses, sizes = rounds_of(step, topology)
        rounds = tuple(sizes) if isinstance(step, Exchange) else ()
        if topology.hosts is None or not (sizes or isinstance(step, AllReduce)):
            return "", rounds
        return "between hosts" if crosses else "inside hosts", rounds


def timed_stages(event: Event) -> Iterator[TimedStage]:
    """The stages of a move in their order; those that would end after it are cut."""
    at = event.start
    for stage in event.stages:
        seconds = max(0.0, min(stage.seconds, event.end - at))
        yield TimedStage(stage, at, seconds)
        at += seconds
