"""A JAX function as a program over a mesh: a schedule is applied, propagated and built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redistrib.backends.jax.sharding import JaxMesh
from redistrib.errors import MemoryLimitError
from redistrib.lang.mesh import Mesh
from redistrib.programs.lower.ahead import gathered_ahead
from redistrib.programs.lower.behind import overlapping
from redistrib.programs.lower.emit import emit
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.run.distributed import Distributed
from redistrib.programs.run.divided import along_cuts
from redistrib.programs.run.options import ProgramOptions
from redistrib.programs.run.prepared import Prepared
from redistrib.programs.run.uneven import with_uneven_cuts
from redistrib.programs.schedule.conflicts import carry_whole, reshard_instead
from redistrib.programs.schedule.given import Given
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.schedule import KEEP, Schedule
from redistrib.programs.schedule.tactics import apply, together


def distributed(
    prepared: Prepared,
    mesh: JaxMesh,
    axes: Mesh,
    schedule: Any,
    options: ProgramOptions,
    ahead: bool = False,
) -> Distributed:
    """A traced function, cut by a schedule.

    Args:
        prepared: the function, with types over the axes of the mesh.
        mesh, axes: the devices, as JAX has them and as ours.
        schedule: tactics, or the schedule of a search.
        options: the machine, the limit of memory, and arguments that are given up.
        ahead: whether steps of loops gather the operands of the next one.

    Raises:
        CutError, ProgramError, MemoryLimitError: as `redistrib.api.distribute` does.
    """
    overlap = None
    if isinstance(schedule, Schedule):
        propagation, overlap = _pinned(prepared, axes), schedule.overlap
        schedule.decide(propagation)
        options = options.laid(axes, schedule.layout)
    else:
        schedule = together(schedule)  # which may be read once only
        prepared, propagation = _cut(prepared, schedule, axes)
        if not propagation.names_operations and (numbers := along_cuts(prepared.traced, propagation)):
            prepared, propagation = _cut(prepared.again(replace(prepared.options, divided=numbers)), schedule, axes)
        for axis in axes.names:
            reshard_instead(propagation, axis)
        for axis in axes.names:
            carry_whole(propagation, axis)
    plan = MovePlanner(options.links)
    donated = options.donated(prepared.traced.graph.inputs)

    def built(propagation: Propagation) -> Distributed:
        program = emit(propagation, plan, prepared.name, donated=donated)
        if ahead:
            program = overlapping(gathered_ahead(program), overlap and overlap._replace(ahead=()))
        else:
            program = overlapping(program, overlap)
        return Distributed(program, prepared, propagation, mesh, options.machine, overlap=overlap)

    function = built(propagation)
    if options.most is not None and (needed := function.memory) > options.most:
        function = built(propagation.kept(KEEP))
        if (least := function.memory) > options.most:
            raise MemoryLimitError(
                options.most,
                min(least, needed),
                f"{prepared.name} distributed so takes {min(least, needed):,} bytes on a device at the least, "
                f"more than the limit of {options.most:,}; cut more arrays, or cut them further",
            )
    return function


def _cut(prepared: Prepared, schedule: Any, axes: Mesh) -> tuple[Prepared, Propagation]:
    """The function, with uneven cuts where its schedule has some, and the cuts that the schedule decides."""
    uneven = with_uneven_cuts(prepared.traced.graph, schedule, axes)
    prepared = replace(prepared, traced=replace(prepared.traced, graph=uneven.graph))
    propagation = _pinned(prepared, axes)
    apply(schedule, propagation, uneven.tiles)
    return prepared, propagation


def _pinned(prepared: Prepared, axes: Mesh) -> Propagation:
    """The cuts of arguments and results that have shardings."""
    propagation = Propagation(prepared.traced.graph, axes, types={**prepared.types})
    for axis in axes.names:
        Given(prepared.types).cut(propagation, axis)
    return propagation
