"""Decisions of a search: the cuts of everything so far, by number, and the program and the types that follow from them.

They are a `Schedule` in the making: `Schedule` names operations, and a search counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from redistrib.lang.types import DistType
from redistrib.programs.ir.program import Program
from redistrib.programs.lower.build import build
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.problem import SearchProblem


@dataclass
class Decisions:
    """How axes cut operations, inputs and outputs; those that are not decided yet cut nothing.

    Attributes:
        propagation: the cuts of operations.
        ins, outs: of inputs, by name, and outputs, by number, the dimension that each axis cuts.
        sources: for a value and a needed type, the type to convert from, where that is not the maker's.
        keep: for how many operations a value that was moved is kept; None: to the end.
    """

    propagation: Propagation
    ins: dict[str, dict[str, int]]
    outs: list[dict[str, int]]
    sources: dict[tuple[str, DistType], DistType] = field(default_factory=dict)
    keep: int | None = None

    @classmethod
    def none(cls, problem: SearchProblem) -> Decisions:
        """Nothing decided."""
        propagation = Propagation(problem.graph, problem.moves.mesh)
        propagation.order[:] = problem.moves.mesh.names
        return cls(propagation, {array.name: {} for array in problem.graph.inputs}, [{} for _ in problem.graph.outputs])

    def copy(self) -> Decisions:
        """The same, to be changed."""
        return Decisions(
            self.propagation.copy(), {k: dict(v) for k, v in self.ins.items()}, [dict(v) for v in self.outs],
            dict(self.sources), self.keep,
        )  # fmt: skip

    def kept(self, keep: int | None) -> Decisions:
        """The same cuts, a moved value kept for so many operations."""
        return replace(self, keep=keep)

    @property
    def text(self) -> str:
        """The same for the same cuts, and for no others."""
        return repr((self.propagation.cuts, self.propagation.carries, self.ins, self.outs))

    def clear(self, axes: Sequence[str]) -> None:
        """Undo the decisions along axes."""
        self.sources = {}
        decided: list[dict[str, Any]] = [
            *self.propagation.cuts,
            *self.propagation.carries,
            *self.ins.values(),
            *self.outs,
        ]
        for cuts in decided:
            for axis in axes:
                cuts.pop(axis, None)


def cuts_of(form: DistType) -> dict[str, int]:
    """The dimension that each axis cuts in a type."""
    return {axis: number for number, dim in enumerate(form.dims) for axis in dim.axes}


def ends_of(problem: SearchProblem, decisions: Decisions) -> tuple[dict[str, DistType], dict[int, DistType]]:
    """The types of arguments, by name, and of results, by number."""
    starts = {
        name: decisions.propagation.type_of(decisions.propagation.arrays[name].shape, at)
        for name, at in decisions.ins.items()
    }
    ends = {
        number: decisions.propagation.type_of(decisions.propagation.arrays[name].shape, at)
        for number, (name, at) in enumerate(zip(problem.graph.outputs, decisions.outs, strict=True))
    }
    return {**starts, **problem.starts}, {**ends, **problem.ends}


def program_of(problem: SearchProblem, decisions: Decisions, name: str) -> Program:
    """The checked program of the schedule."""
    inputs, outputs = ends_of(problem, decisions)
    return build(
        decisions.propagation,
        MovePlanner(problem.machine.links, problem.plans),
        name,
        inputs=inputs,
        outputs=outputs,
        donated=problem.donated,
        sources=decisions.sources,
        keep=decisions.keep,
    )
