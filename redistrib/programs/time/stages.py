"""The stages of a move in time: the links that carry a step of a plan, its rounds, and when each of them begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
    links: str = ""
    rounds: tuple[int, ...] = ()

    @property
    def begins(self) -> tuple[float, ...]:
        """When each round begins: it takes a part of the seconds in proportion to its largest share."""
        total = sum(self.rounds) or 1
        return tuple(self.start + self.seconds * part / total for part in accumulate(self.rounds[:-1], initial=0))


def timed_stages(event: Event) -> Iterator[TimedStage]:
    """The stages of a move in their order; those that would end after it are cut."""
    at = event.start
    for stage in event.stages:
        seconds = max(0.0, min(stage.seconds, event.end - at))
        links, rounds = _carriers(stage)
        yield TimedStage(stage, at, seconds, links, rounds)
        at += seconds


def _carriers(stage: PricedStage) -> tuple[str, tuple[int, ...]]:
    """The links and the rounds of a stage, as in `TimedStage`."""
    if stage.step is None or stage.topology is None:
        return "", ()
    crosses, sizes = rounds_of(stage.step, stage.topology)
    rounds = tuple(sizes) if isinstance(stage.step, Exchange) else ()
    if stage.topology.hosts is None or not (sizes or isinstance(stage.step, AllReduce)):
        return "", rounds
    return "between hosts" if crosses else "inside hosts", rounds
