"""The problem of a search: a graph on a machine, what is given of it, and how prices count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redistrib.programs.ir.graph import Graph
from redistrib.programs.schedule.given import Given
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.constants import TIES
from redistrib.programs.search.facts import Facts
from redistrib.programs.search.folding import Folded
from redistrib.programs.search.moves import Moves
from redistrib.programs.time.machine import Machine


@dataclass(frozen=True)
class Weights:
    """How prices count while axes are decided; a schedule has its own price.

    Attributes:
        ties: the price of idle devices, see `TIES`; no part of a bound.
        moves: of moves that wait for nothing, and of others, as multiples; of operations they are 1.
        memory: Lagrangian multipliers of the memory limit: the price of a byte that a device holds, by number of the
            operation at which bytes are held.
    """

    ties: float = TIES
    moves: tuple[float, float] = (1.0, 1.0)
    memory: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchProblem:
    """The problem of a search, with everything that is fixed before it begins.

    Attributes:
        facts: of the graph on the machine; all variants of the problem share them.
        given: types and pins that hold.
        weights: of prices.
        donated: inputs whose memory is free after their last use.
        overlap: whether moves run beside operations, on a second stream.
        whole: the problem without folding, where there is one.
    """

    facts: Facts
    given: Given = field(default_factory=Given)
    weights: Weights = field(default_factory=Weights)
    donated: tuple[str, ...] = ()
    overlap: bool = False
    whole: SearchProblem | None = None

    @property
    def graph(self) -> Graph:
        """The operations."""
        return self.facts.graph

    @property
    def machine(self) -> Machine:
        """The machine that runs the program."""
        return self.facts.machine

    @property
    def moves(self) -> Moves:
        """Prices of moves; they know the mesh."""
        return self.facts.moves

    @property
    def folded(self) -> Folded | None:
        """The whole graph, where repeated layers were taken out of this one."""
        return self.facts.folded

    def undecided(self) -> Propagation:
        """The schedule in which no axis cuts anything."""
        ends = (*(array.name for array in self.graph.inputs), *range(len(self.graph.outputs)))
        propagation = Propagation(
            self.graph, self.moves.mesh, types={**self.given.types}, ends={end: {} for end in ends}, sources={}
        )
        propagation.order[:] = self.moves.mesh.names
        return propagation

    @property
    def axes(self) -> list[str]:
        """The axes that may cut something; one, where none may."""
        axes = self.moves.mesh.axes
        return [axis.name for axis in axes if axis.size > 1] or [axis.name for axis in axes[:1]]
