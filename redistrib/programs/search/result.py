"""The result of a search: candidates, the best first, each a schedule ready to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import jax

from redistrib.errors import ProgramError
from redistrib.programs.ir.program import Program
from redistrib.programs.run.devices import meshes
from redistrib.programs.run.prepared import Prepared
from redistrib.programs.schedule.schedule import Schedule
from redistrib.programs.search.deadline import NEVER, Deadline
from redistrib.programs.search.found import FeasibleResult, Improvement, SearchResult
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.ranking import Ranking, ranked
from redistrib.programs.search.report import Decision, PinCost, pin_costs, ranked_decisions, table
from redistrib.programs.search.timed import Measured, Timed
from redistrib.programs.time.result import Simulation
from redistrib.programs.time.torus_layout import described
from redistrib.report import ShownInNotebooks, counted, lines_shown, rendered, seconds_text, status_shown

if TYPE_CHECKING:
    from redistrib.programs.run.distributed import Distributed
    from redistrib.programs.search.staged import Staged


@dataclass
class Candidate(Timed):
    """A schedule, its time and its memory.

    Attributes:
        feasible: the search problem and its solution.
        prepared: the function.
        mesh: as it was given.
        most: bytes that a device may hold; None for no limit.
        limit: seconds that the search may take; None for no limit.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> found = rd.search(lambda x, w: x @ w, (jnp.ones((64, 8)), jnp.ones((8, 8))), {"d": 4}, progress=False)
    >>> found[0].seconds <= found[-1].seconds, found[0].received_bytes
    (True, 0)
    """

    feasible: FeasibleResult = field(repr=False)
    prepared: Prepared = field(repr=False)
    mesh: Any
    most: int | None = None
    limit: float | None = None

    def __post_init__(self) -> None:
        self.machine = self.problem.machine

    @cached_property
    def program(self) -> Program:  # type: ignore[override]
        """The program of every device; on many devices it takes a while to plan."""
        return self.feasible.program

    @property
    def seconds(self) -> float:
        """The predicted seconds of a call."""
        return self.feasible.figures.seconds

    @property
    def simulation(self) -> Simulation:
        """The program, timed on the machine that was searched for; its moves beside operations as far as was found."""
        return self.feasible.simulation

    @property
    def received_bytes(self) -> int:
        """Bytes that all devices together receive from others."""
        return self.feasible.figures.received

    @property
    def improvements(self) -> tuple[Improvement, ...]:
        """The schedules that the search came to one after the other, each better than all before it."""
        return self.feasible.improvements

    @property
    def problem(self) -> SearchProblem:
        """The search problem."""
        return self.feasible.problem

    @property
    def result(self) -> SearchResult:
        """How everything is cut, its price, and a bound."""
        return self.feasible.result

    @property
    def name(self) -> str:
        """The mesh, and how its axes lie on a torus or on hosts."""
        mesh = self.problem.moves.mesh
        layout = described(self.problem.machine, mesh)
        return f"{mesh}, {layout}" if layout else str(mesh)

    @property
    def rank(self) -> tuple[float, str]:
        """The figure by which candidates are ordered: the price at which they were searched."""
        return (self.feasible.price, self.name)

    @property
    def schedule(self) -> Schedule:
        """How everything is cut; `rd.distribute(fn, args, mesh, schedule=...)` takes it."""
        return self.feasible.schedule

    @cached_property
    def distributed(self) -> Distributed:
        """The function, distributed so; it needs as many devices as the mesh has."""
        from redistrib.programs.run.distributed import Distributed

        propagation, mesh = self.feasible.whole[1], meshes(self.mesh)[0]
        return Distributed(self.program, self.prepared, propagation, mesh, self.machine, overlap=self.feasible.overlap)

    @cached_property
    def memory(self) -> int:
        """Bytes that the fullest device holds at the worst moment; donated arguments end with their last use.

        Where the machine's compiler fuses operations, these are the bytes of its kernels: what is made and read inside
        one is not stored.
        """
        return self.feasible.figures.memory

    @property
    def bound(self) -> float:
        """Lower bound on the seconds, or bytes, of every schedule with these cuts along every axis but the last; on a
        mesh of one axis, of every schedule. It holds at the prices of the search: where moves have closed prices, as on
        machines whose kernels are counted and on more than 32 devices, plans may undercut them."""
        return self.result.bound

    @property
    def joint_bound(self) -> float:
        """Lower bound on the seconds, or bytes, of every schedule, with any cuts along any axis."""
        floor = self.problem.facts.floor
        return floor if self.result.axis or self.result.by_class else max(floor, self.bound)

    @cached_property
    def decisions(self) -> list[Decision]:
        """The decisions on arguments and operations, each with the runner-up, those that matter most first, and last
        those whose runner-up is better and does not fit the memory limit.

        They may take a fifth of the time that the search had; those that there is no time for are left out.
        """
        deadline = NEVER if self.limit is None else Deadline.after(0.2 * self.limit)
        return ranked_decisions(self.problem, self.result, self.most, deadline)

    def pin_costs(self, limit: float | None = None) -> list[PinCost]:
        """The price of each pin, by a search without it.

        Args:
            limit: seconds for each search.
        """
        return pin_costs(self.feasible, self.prepared.name, self.most, limit)

    def picture(self, path: str | Path) -> Path:
        """Draw the program into a file; see `redistrib.programs.ir.listing.draw_program`."""
        from redistrib.programs.ir.listing import draw_program

        return draw_program(self.program, path)

    def _text(self) -> str:
        """Time and memory, the gap to the optimum, and the decisions that matter."""
        beside = self._beside()
        stopped = f"stopped at the limit of {self.limit:g} s: this is the best so far" if self.stopped else ""
        listed = self.decisions
        mattered = table(listed, self.problem.moves.objective) if listed or not self.stopped else ""
        priced = "" if self.feasible.is_simulated else "time and memory at closed prices of moves, not those of plans"
        lines = [self.summary(), priced, beside, stopped, *self._bounds(), mattered]
        return "\n".join(filter(None, lines))

    def _beside(self) -> str:
        """The operations that run beside each other; empty where moves were not searched beside operations."""
        evaluation = self.feasible.figures
        if not self.problem.overlap:
            return ""
        parts = (evaluation.computing, evaluation.moving, evaluation.computing + evaluation.moving - evaluation.seconds)
        computing, moving, hidden = map(seconds_text, parts)
        overlap = evaluation.overlap
        ahead = "; entries of loops are gathered a step ahead" if overlap and overlap.ahead else ""
        behind = "; results of loops are moved a step behind" if overlap and overlap.behind else ""
        return (
            f"{computing} of operations and {moving} of moves, of which {hidden} run beside each other{ahead}{behind}"
        )

    @property
    def stopped(self) -> bool:
        """Whether the time was up before the search was over."""
        return self.result.stopped

    def _bounds(self) -> list[str]:
        """The proved bounds: over all schedules, and over those that share some of the cuts."""
        lines = [self._bounded("no schedule", self.joint_bound, "the optimum")]
        if self.result.axis or self.result.by_class:
            bounds = [
                axis.name for axis in self.problem.moves.mesh.axes if axis.size > 1 and axis.name != self.result.axis
            ]
            these = f" with these cuts along {' and '.join(bounds)}" if self.result.axis else ""
            cut_alike = " that cuts like operations alike" if self.result.by_class else ""
            lines.append(self._bounded(f"no schedule{these}{cut_alike}", self.bound, "the best of these"))
        return [line for line in lines if line]

    def _bounded(self, which: str, bound: float, best: str) -> str:
        """A bound on some schedules, and the gap of this one to it; empty where any schedule could be better."""
        if bound <= 0 < self.rank[0]:
            return ""
        seconds = self.problem.moves.objective == "seconds"
        least = seconds_text(bound) if seconds else f"{bound:,.0f} bytes"
        away = 100 * (self.rank[0] / bound - 1) if bound else 0.0
        along = f"at closed prices of moves, {seconds_text(self.rank[0])}, " if self._has_closed_prices else ""
        return f"{along}{which} takes less than {least}: at most {away:.2f}% from {best}"

    @property
    def _has_closed_prices(self) -> bool:
        """Whether moves were searched at prices along axes, which plans may undercut."""
        return self.problem.moves.objective == "seconds" and self.problem.moves.by_axes is not None

    def measure(self, args: Sequence[Any], repeats: int = 5) -> Measured:
        """Run it on arguments that lie as it wants them, and time it; see `Timed.measure`."""
        return super().measure(jax.device_put(tuple(args), self.distributed.in_shardings), repeats)


class Searched(ShownInNotebooks, Sequence["Candidate | Staged"]):
    """The candidates, the best first: schedules by the prices of their search, which may be above the figures of their
    programs (see `Candidate.bound`), and pipelines by the figures of theirs.

    >>> import jax.numpy as jnp
    >>> from redistrib import search
    >>> found = search(lambda x, w: x @ w, (jnp.ones((64, 64)), jnp.ones((64, 64))), devices=4, machine="gpu")
    >>> [candidate.name for candidate in found], found[0].memory
    (['{a:2, b:2}', '{a:4}'], 20480)
    """

    def __init__(self, candidates: Sequence[Candidate | Staged]) -> None:
        self._candidates = tuple(sorted(candidates, key=lambda candidate: candidate.rank))

    def __len__(self) -> int:
        return len(self._candidates)

    @overload
    def __getitem__(self, key: int) -> Candidate | Staged: ...

    @overload
    def __getitem__(self, key: slice) -> Sequence[Candidate | Staged]: ...

    def __getitem__(self, key: int | slice) -> Candidate | Staged | Sequence[Candidate | Staged]:
        return self._candidates[key]

    @property
    def schedule(self) -> Schedule:
        """The program of the first candidate that is no pipeline."""
        return next(candidate for candidate in self._candidates if isinstance(candidate, Candidate)).schedule

    @property
    def distributed(self) -> Any:
        """Of the first."""
        return self[0].distributed

    def measure(
        self, args: Sequence[Any] | None = None, *, top: int = 10, repeats: int = 5, progress: bool | None = None
    ) -> Ranking:
        """Run the best candidates, and rank them by the seconds of their calls (DistIR, section 6.3).

        Args:
            args: of the function; by default those of the search, which then are arrays.
            top: how many candidates are run, the best by prediction first.
            repeats: timed calls of each, after an untimed one.
            progress: whether to show progress on stderr; None does so on a terminal.

        Raises:
            ProgramError: if there are too few devices, `args` is left out and the search had only shapes, or a number
                is not positive.
        """
        for name, number in (("top", top), ("repeats", repeats)):
            if number < 1:
                raise ProgramError("", "", "Arguments", f"{name} is {number!r}; give a positive number")
        arguments = tuple(self[0].prepared.args if args is None else args)
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(arguments)):
            raise ProgramError("", "", "Arguments", "shapes cannot be run; give measure(args) arrays")
        with status_shown("running", progress) as report_progress:
            return ranked(self._candidates[:top], arguments, repeats, self[0].machine.name, report_progress)

    def table(self, most: int | None = None) -> str:
        """The first candidates as a table; None for all of them."""
        with lines_shown(None):
            return self._table(self._candidates[:most])

    def _table(self, listed: Sequence[Candidate | Staged]) -> str:
        rows = [
            [
                candidate.name,
                f"{candidate.seconds * 1e3:,.3f}",
                f"{candidate.received_bytes:,}",
                f"{candidate.memory:,}",
            ]
            for candidate in listed
        ]
        title = f"{counted(len(self), 'candidate', 'candidates')} on {self[0].machine.name}"
        return rendered(title, ["devices", "ms", "received bytes", "peak bytes"], rows, most=10)

    def _text(self) -> str:
        return f"{self._table(self._candidates)}\n{self[0]}"
