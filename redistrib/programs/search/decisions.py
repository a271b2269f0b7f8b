"""Decisions of a search: the cuts of everything so far, by number, and the program and the types that follow from them.

They are a `Schedule` in the making: `Schedule` names operations, and a search counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from redistrib.lang.types import DistType
from redistrib.programs.ir.program import Program
from redistrib.programs.lower.build import build
from redistrib.programs.schedule.given import End
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.problem import SearchProblem


@dataclass
class Decisions:
    """How axes cut operations, inputs and outputs; those that are not decided yet cut nothing.

    Attributes:
        propagation: the cuts of operations.
        ends: of inputs and outputs the dimension that each axis cuts.
        sources: for a value and a needed type, the type to convert from, where that is not the maker's.
        keep: for how many operations a value that was moved is kept; None: to the end.
    """

    propagation: Propagation
    ends: dict[End, dict[str, int]]
    sources: dict[tuple[str, DistType], DistType] = field(default_factory=dict)
    keep: int | None = None

    @classmethod
    def none(cls, problem: SearchProblem) -> Decisions:
        """Nothing decided."""
        propagation = Propagation(problem.graph, problem.moves.mesh)
        propagation.order[:] = problem.moves.mesh.names
        names = (array.name for array in problem.graph.inputs)
        return cls(propagation, {end: {} for end in (*names, *range(len(problem.graph.outputs)))})

    def copy(self) -> Decisions:
        """The same, to be changed."""
        ends = {end: dict(at) for end, at in self.ends.items()}
        return Decisions(self.propagation.copy(), ends, dict(self.sources), self.keep)

    def kept(self, keep: int | None) -> Decisions:
        """The same cuts, a moved value kept for so many operations."""
        return replace(self, keep=keep)

    def are(self, other: Decisions) -> bool:
        """Whether others of the same graph come to the same program."""
        own, its = self.propagation, other.propagation
        same = (own.cuts, own.carries, self.ends, self.sources, self.keep)
        return same == (its.cuts, its.carries, other.ends, other.sources, other.keep)

    def clear(self, axes: Sequence[str]) -> None:
        """Undo the decisions along axes."""
        self.sources = {}
        for cuts in chain[dict[str, str] | dict[str, int]](
            self.propagation.cuts, self.propagation.carries, self.ends.values()
        ):
            for axis in axes:
                cuts.pop(axis, None)


def ends_of(problem: SearchProblem, decisions: Decisions) -> dict[End, DistType]:
    """The types of arguments and results."""
    propagation, outputs = decisions.propagation, problem.graph.outputs
    types: dict[End, DistType] = {}
    for end, at in decisions.ends.items():
        shape = propagation.arrays[end if isinstance(end, str) else outputs[end]].shape
        types[end] = propagation.type_of(shape, at)
    return {**types, **problem.given.types}


def program_of(problem: SearchProblem, decisions: Decisions, name: str) -> Program:
    """The checked program of the schedule."""
    return build(
        decisions.propagation,
        problem.moves.planner,
        name,
        types=ends_of(problem, decisions),
        donated=problem.donated,
        sources=decisions.sources,
        keep=decisions.keep,
    )
