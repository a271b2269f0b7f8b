"""`search`: from a JAX function to schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, get_args

import jax

from redistrib.backends.jax.meetings import Meeting, processes_of, raised_in_all
from redistrib.cost.presets import MachineLike
from redistrib.errors import ChoiceError, CutError, MemoryLimitError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.run.arguments import leaf_names
from redistrib.programs.run.devices import machine_on
from redistrib.programs.run.entry import donated_by
from redistrib.programs.run.prepared import Prepared, prepare
from redistrib.programs.schedule.given import End, Given
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.tactics import together
from redistrib.programs.search.constants import LEAST
from redistrib.programs.search.deadline import Deadline
from redistrib.programs.search.fitting import feasible_result
from redistrib.programs.search.found import FeasibleResult
from redistrib.programs.search.meshes import meshes_of
from redistrib.programs.search.moves import Moves, Objective
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.result import Candidate, Searched
from redistrib.programs.search.told import call_digest, searched_by_the_first
from redistrib.programs.time.constants import machine as machine_of
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.torus_layout import laid
from redistrib.renamed import renamed
from redistrib.report import status_shown
from redistrib.sizes import parse_size

if TYPE_CHECKING:
    from redistrib.programs.search.staged import Staged
    from redistrib.programs.stages.grid import Layouts


@renamed("profile", "machine")
def search(
    fn: Callable[..., Any],
    args: Sequence[Any],
    mesh: Any = None,
    *,
    devices: int | None = None,
    pipeline: bool | str | Layouts = False,
    batch: Mapping[str, int] | None = None,
    microbatches: tuple[int, int] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    pins: Any = (),
    state: Mapping[str, int] | None = None,
    memory_limit: int | str | None = None,
    machine: MachineLike | None = None,
    objective: Objective = "seconds",
    overlap: bool = False,
    flash: bool = False,
    limit: float | None = None,
    progress: bool | None = None,
    rules: Mapping[str, Any] | None = None,
    donate: Sequence[str] = (),
    exact: bool = False,
    trip_count: int = 1,
) -> Searched:
    """Find the schedule of a JAX function: how to cut every operation so that a call takes the least time.

    It begins with the schedules that people write. Each mesh axis is decided by an exact integer program, given the
    others: one cut of every operation, and one conversion of a value for all that read it so, at the price of its
    synthesized plan; again until no axis makes the schedule better. See docs/schedule-search.md.

    A search that `limit` may stop ends differently on busy and idle processors. So where a JAX mesh has devices of
    several processes and there is a limit, all of them make the same call; the first one searches, and tells the
    others. All other searches are done by each process alone, and find the same everywhere without a limit.

    Args:
        fn, args, mesh, in_shardings, out_shardings, rules, donate, exact, trip_count: as for `rd.distribute`. The mesh
            may have more devices than there are, as long as nothing is run. The body of a loop is decided once, and
            counts as often as it runs.
        devices: in the place of a mesh: all meshes of so many devices are searched.
        pipeline: whether pipelines on that many devices are simulated as well: every layout of powers of two of
            replicas, tensor parts and stages, see `redistrib.programs.stages.layout`; or every layout of a family, by
            its name or as a function, see `ir.register_layouts`; or the powers of two in an order, by its name.
        batch: for pipelines, the arguments with examples, each with the dimension that runs over them.
        microbatches: the fewest and the most that a pipeline has, by default 2 and 128.
        pins: tactics that hold, of arguments and operations: `rd.along("d", {"batch": 0})`.
        state: arguments, by name, each with the number of the result that takes its place in the next call; the two
            have equal layouts. `{"params": 0}` is that of a training step.
        memory_limit: bytes per device that the program may hold at its worst moment, predicted. On a machine whose
            compiler fuses operations, those of its kernels, see `Candidate.memory`.
        machine: the machine, or its name, as for `simulate`; by default the preset of the devices' platform. On a
            machine with a torus (`"v4"`, `"v5e"`, `"v5p"`, `"v6e"`, `"tpu7x"`) every way to lay the mesh axes onto its
            dimensions is searched.
        objective: `"seconds"`, or `"bytes"` for the bytes that all devices receive, every product being cut by every
            axis that can cut it.
        overlap: whether moves run beside operations, as `simulate(overlap=True)` times them: moves that nothing
            waits for (weights ahead, gradients behind) then take time only where links are busy longer than operations.
        flash: whether each pass of an attention counts as one flash kernel, whose scores are never stored: of products
            with a batch dimension and a softmax between them, on a machine whose kernels are counted. The function runs
            as it is written.
        limit: seconds after which the best so far is taken; the schedules that people write come first.
        progress: whether to show progress on stderr; None does so on a terminal.

    Returns:
        Candidates, the best first. `found.schedule` is one for `distribute`, `found.distributed` the function; print
        it for a report.

    Raises:
        CutError: if a pin names an argument or a dimension that does not exist, or one that cannot be cut.
        ProgramError: if arguments exclude each other: `batch` needs `pipeline=True`.
        MemoryLimitError: if no schedule that was found fits the limit; with the least bytes of those found, and
            whether it is proved that nothing can fit.
        CommunicatorError: in all processes, if they search together and their calls differ, or one of them makes none.

    >>> import jax.numpy as jnp
    >>> found = search(lambda x, w: x @ w, (jnp.ones((8, 4)), jnp.ones((4, 2))), {"d": 1})
    >>> found.distributed(jnp.ones((8, 4)), jnp.ones((4, 2))).shape
    (8, 2)
    """
    together = Meeting(
        processes_of(mesh) if limit is not None else (), "search", "functions, meshes or options", seconds=limit or 0.0
    )
    with raised_in_all("search", lambda: together.processes):
        most = None if memory_limit is None else parse_size(memory_limit)
        family = None
        if pipeline is not False:
            from redistrib.programs.search.staged import staged  # a search on one mesh does not wait for the pipelines
            from redistrib.programs.stages.grid import family_of

            family = family_of("powers of two" if pipeline is True else pipeline)
        if machine is not None:
            machine_of(machine)  # refuses what counts no seconds
        hardware = machine_on(machine, _platform(mesh))
        _require(
            mesh, devices, in_shardings is not None or out_shardings is not None or bool(pins), family is not None,
            batch is not None or microbatches is not None, batch is not None, bool(donate), objective, overlap, flash,
            hardware,
        )  # fmt: skip
        hardware = replace(hardware, flash=flash or hardware.flash)
        tracing = TraceOptions(rules or {}, exact, True, _platform(mesh), trip_count)
    tried = [Mesh(Mesh.of(mesh).axes)] if devices is None else meshes_of(devices, hardware)
    deadline = Deadline.after(limit)
    listed: list[Candidate | Staged] = []
    least: list[MemoryLimitError] = []
    ways = [(candidate_mesh, way) for candidate_mesh in tried for way in laid(hardware, candidate_mesh)]
    with status_shown("searching", progress, limit) as report_progress:

        def problem_on(candidate_mesh: Mesh, way: Machine) -> SearchProblem:
            problem = problem_of(prepared, candidate_mesh, pins, tied(fn, prepared, state or {}), way, objective)
            donated = donated_by((donate,) if isinstance(donate, str) else donate, prepared.traced.graph.inputs)
            return replace(problem, overlap=overlap, donated=donated)

        with raised_in_all("search", lambda: together.processes):
            prepared = prepare(fn, args, tried[0], in_shardings, out_shardings, tracing)  # several: no shardings
            pinned = problem_on(*ways[0]) if together.is_between else None

        def searched() -> list[FeasibleResult | None]:
            results: list[FeasibleResult | None] = []
            for number, (candidate_mesh, way) in enumerate(ways):
                if any(results) and deadline.passed:
                    break
                own_part = deadline.part(1 / (len(ways) - number))
                if limit is not None and own_part.left < LEAST * limit / len(ways):  # tracing took the time
                    own_part = Deadline.after(LEAST * limit / len(ways))
                report_of_mesh = partial(_on_mesh, report_progress, candidate_mesh)
                try:
                    problem = problem_on(candidate_mesh, way)
                    results.append(feasible_result(problem, prepared.name, most, own_part, report_of_mesh))
                except MemoryLimitError as error:
                    least.append(error)
                    results.append(None)
            if not any(results) and not family:
                raise min(least, key=_proved_least)
            return results

        if pinned is not None:
            options = (tried[0], most, limit, objective, overlap, flash, exact, trip_count, donate, pinned.given)
            call = call_digest(prepared.traced.graph, hardware.name, *options)
            problems = (problem_on(*way) for way in ways)
            results = searched_by_the_first(together, call, searched, problems, prepared.name)
        else:
            results = searched()
        for (candidate_mesh, _), result in zip(ways, results, strict=False):
            if result is not None:
                listed.append(Candidate(result, prepared, candidate_mesh if mesh is None else mesh, most, limit))
        pipelines: Iterable[Staged] = ()
        if family and batch and devices:
            opened = prepare(fn, args, Mesh(()), None, None, replace(tracing, opens_loops=False, unrolled_up_to=0))
            pipelines = staged(opened, batch, devices, microbatches or (2, 128), hardware, objective, family)
        for pipeline_result in pipelines:
            report_progress(pipeline_result.name)
            if most is None or pipeline_result.memory <= most:
                listed.append(pipeline_result)
            else:
                least.append(
                    MemoryLimitError(
                        most, pipeline_result.memory, _no_pipeline(prepared.name, most, pipeline_result.memory)
                    )
                )
            if deadline.passed:
                break
    if not listed:
        raise min(least, key=_proved_least)
    return Searched(listed)


def _require(
    mesh: Any,
    devices: int | None,
    names_axes: bool,
    in_stages: bool,
    has_batches: bool,
    has_batch: bool,
    donates: bool,
    objective: str,
    overlap: bool,
    flash: bool,
    hardware: Machine,
) -> None:
    """Refuse arguments that exclude each other."""
    if (mesh is None) == (devices is None):
        raise ProgramError("", "", "Place", "give either a mesh, or a number of devices")
    if devices is not None and names_axes:
        raise ProgramError("", "", "Place", "pins name axes, and a number of devices has none; give a mesh")
    if in_stages and (devices is None or not has_batch):
        raise ProgramError("", "", "Batch", "a pipeline needs devices=, and batch=, the arguments with examples")
    if not in_stages and has_batches:
        raise ProgramError("", "", "Batch", "batch= and microbatches= are for pipelines; give pipeline=True as well")
    if in_stages and donates:
        raise ProgramError("", "", "Batch", "a pipeline gives no arguments up; leave donate= out, or pipeline=True")
    if objective not in get_args(Objective):
        raise ChoiceError("unknown objective", value=objective, known=get_args(Objective))
    if overlap and (objective == "bytes" or in_stages):
        why = "bytes are the same with overlap and without" if objective == "bytes" else "pipelines are timed without"
        raise ProgramError("", "", "Overlap", f"{why}; leave overlap= out")
    if flash and not hardware.fuses:
        raise ProgramError(
            "", "", "Flash", f"on {hardware.name!r} every operation is a kernel; leave flash= out, or name a machine "
            f"whose kernels are counted, such as machine='h100'",
        )  # fmt: skip


def _proved_least(error: MemoryLimitError) -> tuple[bool, int]:
    """The order of errors: that nothing fits is proved if it is proved of all meshes."""
    return error.proved, error.least


def _on_mesh(report_progress: Callable[[str], None], mesh: Mesh, line: str) -> None:
    report_progress(f"{mesh}, {line}")


def _no_pipeline(name: str, most: int, least: int) -> str:
    return (
        f"no schedule and no pipeline of {name} that fits in {most:,} bytes on a device was found; the smallest "
        f"of those found takes {least:,} bytes"
    )


def _platform(mesh: Any) -> str:
    return mesh.devices.flat[0].platform if isinstance(mesh, jax.sharding.Mesh) else jax.default_backend()


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
    return SearchProblem(graph, hardware, Moves(mesh, hardware, objective), given)


def tied(function: Callable[..., Any], prepared: Prepared, state: Mapping[str, int]) -> dict[int, str]:
    """Results, by number of the leaf, that become an argument, by name.

    Raises:
        ProgramError: if there is no such argument or result, or the two have different structure or types.
    """
    if not state:
        return {}
    traced = prepared.traced
    names = leaf_names(function, prepared.args)
    numbers = jax.tree_util.tree_unflatten(traced.out_tree, range(len(traced.outputs)))
    arrays = traced.graph.arrays
    ties: dict[int, str] = {}
    for argument, result in state.items():
        leaves = [name for name in names if name == argument or name.startswith(f"{argument}/")]
        try:
            part = (numbers if isinstance(numbers, tuple) else (numbers,))[result]
        except (IndexError, TypeError):
            raise ProgramError("", argument, "State", f"there is no result {result!r}") from None
        back = jax.tree_util.tree_leaves(part)
        shapes = [[arrays[name].shape for name in side] for side in (leaves, [traced.graph.outputs[k] for k in back])]
        if not leaves or shapes[0] != shapes[1]:
            raise ProgramError(
                "", argument, "State", f"result {result!r} has the shapes {shapes[1]}, and the argument {shapes[0]}; "
                f"name an argument and the result that takes its place in the next call",
            )  # fmt: skip
        ties |= dict(zip(back, leaves, strict=True))
    return ties
