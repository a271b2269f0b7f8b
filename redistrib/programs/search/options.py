"""What is asked of a search, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, get_args

from redistrib.errors import ChoiceError, CutError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.run.options import ProgramOptions
from redistrib.programs.run.prepared import Prepared
from redistrib.programs.schedule.given import Given
from redistrib.programs.schedule.graph_cuts import End
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.tactics import together
from redistrib.programs.search.facts import Facts
from redistrib.programs.search.meshes import meshes_of
from redistrib.programs.search.moves import Moves, Objective
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.torus_layout import laid

if TYPE_CHECKING:
    from redistrib.programs.stages.grid import Layouts


@dataclass(frozen=True)
class SearchOptions:
    """All that is asked, besides the function and its arguments.

    Attributes:
        mesh: as the caller gives it; None for all meshes of `devices`.
        devices: how many, or None.
        in_shardings, out_shardings: as for `rd.distribute`.
        pins: tactics that hold.
        state: arguments, by name, each with the number of the result that takes its place in the next call.
        program: what `rd.distribute` is asked as well.
        machine: the rates of devices and links; an attention is one kernel on it where `flash` says so.
        objective: what is to be least.
        overlap: whether moves run beside operations.
        flash: whether each pass of an attention counts as one kernel.
        limit: seconds after which the best so far is taken; None for no limit.
        family: the pipelines that are simulated as well; None for none.
        batch, microbatches: of these, as for `search`.

    Raises:
        ProgramError: if two of them exclude each other.
        ChoiceError: if there is no such objective.
    """

    mesh: Any
    devices: int | None
    in_shardings: Any
    out_shardings: Any
    pins: Any
    state: Mapping[str, int]
    program: ProgramOptions
    machine: Machine
    objective: Objective
    overlap: bool
    flash: bool
    limit: float | None
    family: Layouts | None
    batch: Mapping[str, int] | None
    microbatches: tuple[int, int] | None

    def __post_init__(self) -> None:
        in_stages = self.family is not None
        if (self.mesh is None) == (self.devices is None):
            raise ProgramError("", "", "Place", "give either a mesh, or a number of devices")
        names_axes = self.in_shardings is not None or self.out_shardings is not None or bool(self.pins)
        if self.devices is not None and names_axes:
            raise ProgramError("", "", "Place", "pins name axes, and a number of devices has none; give a mesh")
        if in_stages and (self.devices is None or self.batch is None):
            raise ProgramError("", "", "Batch", "a pipeline needs devices=, and batch=, the arguments with examples")
        if not in_stages and (self.batch is not None or self.microbatches is not None):
            why = "batch= and microbatches= are for pipelines; give pipeline=True as well"
            raise ProgramError("", "", "Batch", why)
        if in_stages and self.program.donate:
            why = "a pipeline gives no arguments up; leave donate= out, or pipeline=True"
            raise ProgramError("", "", "Batch", why)
        if self.objective not in get_args(Objective):
            raise ChoiceError("unknown objective", value=self.objective, known=get_args(Objective))
        if self.overlap and (self.objective == "bytes" or in_stages):
            of_bytes, of_stages = "bytes are the same with overlap and without", "pipelines are timed without"
            why = of_bytes if self.objective == "bytes" else of_stages
            raise ProgramError("", "", "Overlap", f"{why}; leave overlap= out")
        if self.flash and not self.machine.fuses:
            raise ProgramError(
                "", "", "Flash", f"on {self.machine.name!r} every operation is a kernel; leave flash= out, or name a "
                f"machine whose kernels are counted, such as machine='h100'",
            )  # fmt: skip

    def ways(self) -> list[tuple[Mesh, Machine]]:
        """The meshes that are searched, each with the machine as its axes lie on it."""
        meshes = [Mesh(Mesh.of(self.mesh).axes)] if self.devices is None else meshes_of(self.devices, self.machine)
        return [(mesh, way) for mesh in meshes for way in laid(self.machine, mesh)]

    def problem(self, prepared: Prepared, ties: Mapping[int, str], mesh: Mesh, way: Machine) -> SearchProblem:
        """The problem of a function on one of the `ways`; `ties` as `tied` gives them."""
        problem = problem_of(prepared, mesh, self.pins, ties, way, self.objective)
        donated = self.program.donated(prepared.traced.graph.inputs)
        return replace(problem, overlap=self.overlap, donated=donated)

    @property
    def told(self) -> tuple[object, ...]:
        """What processes that search together compare, besides the function; of machines all figures."""
        program, tracing = self.program, self.program.tracing
        decided = program.most, self.limit, self.objective, self.overlap, self.flash, program.donate
        machine = self.machine, self.machine.chip  # the text of a machine leaves its chip out
        return (Mesh(Mesh.of(self.mesh).axes), *machine, *decided, tracing.exact, tracing.trip_count)


def problem_of(
    prepared: Prepared, mesh: Mesh, pins: Any, back: Mapping[int, str], hardware: Machine, objective: Objective
) -> SearchProblem:
    """The search problem on a mesh."""
    graph, tactics = prepared.traced.graph, [*chain.from_iterable(together(pins))]
    fixed: dict[End, Mapping[str, int | None]] = {}
    work: dict[int, dict[str, str]] = {}
    if tactics or any(operation.pinned for operation in graph.operations):
        propagation = Propagation(graph, mesh)
        for tactic in tactics:
            if tactic.axis not in mesh.names:
                raise CutError("", "", "Schedule", f"the mesh {mesh} has no axis {tactic.axis!r}")
            tactic.begin(propagation)
        fixed |= {name: dims for name, dims in propagation.pins.items() if name not in prepared.types}
        work |= {k: cuts for k, cuts in enumerate(propagation.cuts) if cuts}
    given = Given(prepared.types, fixed, work, back)
    return SearchProblem(Facts(graph, hardware, Moves(mesh, hardware, objective)), given)
