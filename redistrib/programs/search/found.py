"""What a search found: a schedule, its price and its memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from redistrib.collection import uncollected
from redistrib.programs.ir.program import Program
from redistrib.programs.lower.behind import overlapping
from redistrib.programs.lower.emit import emit
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.schedule import Schedule
from redistrib.programs.search.constants import SIMULATED
from redistrib.programs.search.evaluation import Evaluation
from redistrib.programs.search.layers import unfold
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.time.entry import simulated_with
from redistrib.programs.time.result import Simulation


class Improvement(NamedTuple):
    """A schedule that was better than all before it.

    Attributes:
        elapsed: seconds since the search began.
        price: seconds of a call, or bytes that all devices receive.
        memory: bytes on a device.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> args = jnp.ones((64, 8)), jnp.ones((8, 8))
    >>> found = rd.search(lambda x, w: x @ w, args, {"d": 4}, machine="v5e", progress=False)
    >>> prices = [improvement.price for improvement in found[0].improvements]
    >>> prices == sorted(prices, reverse=True)
    True
    """

    elapsed: float
    price: float
    memory: int


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        decisions: the cuts of everything.
        price: the objective: seconds, or bytes.
        complete: whether nothing was cut short.
        bound: lower bound on the seconds, or bytes, of every schedule with these cuts along every axis but `axis`.
        axis: whose cuts the bound ranges over; empty where the bound ranges over all axes.
        by_class: whether the bound ranges only over schedules with one cut for each isomorphism class.
        stopped: whether the time was up before the search was over.
    """

    decisions: Propagation
    price: float
    complete: bool
    bound: float = 0.0
    axis: str = ""
    by_class: bool = False
    stopped: bool = False


def program_of(problem: SearchProblem, decisions: Propagation, name: str) -> Program:
    """The checked program of a schedule."""
    return emit(decisions, problem.moves.planner, name, donated=problem.donated)


@dataclass(frozen=True)
class FeasibleResult:
    """A schedule, its time and its memory.

    Attributes:
        problem: as it was searched at last.
        result: the schedule.
        name: of the program.
        evaluation: time and memory, by which it was searched.
        improvements: the schedules that the search came to one after the other.
    """

    problem: SearchProblem
    result: SearchResult
    name: str
    evaluation: Evaluation
    improvements: tuple[Improvement, ...] = ()

    @cached_property
    def whole(self) -> tuple[SearchProblem, Propagation]:
        """The problem and the schedule with all layers."""
        return unfold(self.problem, self.result.decisions)

    @property
    def schedule(self) -> Schedule:
        """The whole schedule, as a value that names operations."""
        return Schedule.of(self.whole[1], self.overlap, self.problem.machine.layout)

    @cached_property
    def program(self) -> Program:
        """Of the whole schedule."""
        with uncollected():
            return overlapping(program_of(*self.whole, self.name), self.overlap)

    @cached_property
    def simulation(self) -> Simulation:
        """The program on the machine of the search, its moves beside operations as far as was found."""
        return simulated_with(self.overlap, self.program, self.problem.machine)

    @property
    def is_simulated(self) -> bool:
        """Whether its figures are those of its program; else they are those by which it was searched."""
        return self.problem.moves.mesh.size <= SIMULATED

    @cached_property
    def figures(self) -> Evaluation:
        """Time and memory of the program, whose moves have plans; see `is_simulated`."""
        if not self.is_simulated:
            return self.evaluation
        memory, busy = max(self.simulation.peak_bytes.values(), default=0), dict[str, float]()
        for (_, stream), seconds in self.simulation.run.busy.items():
            busy[stream] = max(busy.get(stream, 0.0), seconds)
        seconds, computing = self.simulation.seconds, self.evaluation.computing
        moving = seconds - computing if self.overlap is None else busy.get("moves", 0.0)
        received = self.program.received_bytes
        return self.evaluation._replace(seconds=seconds, moving=moving, received=received, memory=memory)

    @property
    def overlap(self) -> Overlap | None:
        """How far moves run beside operations; None where they do not."""
        return self.evaluation.overlap

    @property
    def price(self) -> float:
        """Predicted seconds of a call, or bytes that all devices receive."""
        return self.evaluation.price(self.problem.moves.objective)
