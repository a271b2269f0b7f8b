"""`search`: from a JAX function to schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from redistrib.backends.jax.meetings import Meeting, processes_of, raised_in_all
from redistrib.cost.presets import MachineLike
from redistrib.errors import MemoryLimitError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.run.arguments import leaf_names
from redistrib.programs.run.options import ProgramOptions
from redistrib.programs.run.prepared import Prepared, prepare
from redistrib.programs.search.constants import LEAST
from redistrib.programs.search.deadline import Deadline
from redistrib.programs.search.fitting import feasible_result
from redistrib.programs.search.found import FeasibleResult
from redistrib.programs.search.moves import Objective
from redistrib.programs.search.options import SearchOptions
from redistrib.programs.search.refusals import none_found
from redistrib.programs.search.result import Candidate, Searched
from redistrib.programs.search.told import call_digest, searched_by_the_first
from redistrib.programs.time.constants import machine as machine_of
from redistrib.programs.time.machine import Machine
from redistrib.renamed import renamed
from redistrib.report import status_shown

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
            machine whose chip has a torus (`"v4"`, `"v5e"`, `"v5p"`, `"v6e"`, `"tpu7x"`) every way to lay the mesh axes
            onto its dimensions is searched.
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
        tracing = TraceOptions(rules or {}, exact, True, _platform(mesh), trip_count)
        program = ProgramOptions.of(machine, tracing, memory_limit, donate)
        options = SearchOptions(
            mesh=mesh, devices=devices, in_shardings=in_shardings, out_shardings=out_shardings, pins=pins,
            state=state or {}, program=program, machine=_machine(program, flash), objective=objective, overlap=overlap,
            flash=flash, limit=limit, family=_family(pipeline), batch=batch, microbatches=microbatches,
        )  # fmt: skip
    deadline = Deadline.after(limit)
    listed: list[Candidate | Staged] = []
    least: list[MemoryLimitError] = []
    with status_shown("searching", progress, limit) as report_progress:
        ways = options.ways()
        with raised_in_all("search", lambda: together.processes):
            prepared = prepare(fn, args, ways[0][0], in_shardings, out_shardings, tracing)
            ties = tied(fn, prepared, options.state)
            pinned = options.problem(prepared, ties, *ways[0]) if together.is_between else None

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
                    problem = options.problem(prepared, ties, candidate_mesh, way)
                    results.append(feasible_result(problem, prepared.name, program.most, own_part, report_of_mesh))
                except MemoryLimitError as error:
                    least.append(error)
                    results.append(None)
            if not any(results) and not options.family:
                raise min(least, key=_proved_least)
            return results

        if pinned is not None:
            call = call_digest(prepared.traced.graph, *options.told, pinned.given)
            problems = (options.problem(prepared, ties, *way) for way in ways)
            results = searched_by_the_first(together, call, searched, problems, prepared.name)
        else:
            results = searched()
        for (candidate_mesh, _), result in zip(ways, results, strict=False):
            if result is not None:
                of_mesh = candidate_mesh if mesh is None else mesh
                listed.append(Candidate(result, prepared, of_mesh, program.most, limit))
        for staged in _staged(fn, args, options):
            report_progress(staged.name)
            if program.most is None or staged.memory <= program.most:
                listed.append(staged)
            else:
                why = none_found(f"schedule and no pipeline of {prepared.name}", program.most, staged.memory)
                least.append(MemoryLimitError(program.most, staged.memory, why))
            if deadline.passed:
                break
    if not listed:
        raise min(least, key=_proved_least)
    return Searched(listed)


def _machine(program: ProgramOptions, flash: bool) -> Machine:
    if program.given is not None:
        machine_of(program.given)  # refuses what counts no seconds
    return replace(program.machine, flash=flash or program.machine.flash)


def _family(pipeline: bool | str | Layouts) -> Layouts | None:
    """The layouts of pipelines that are asked for; a search on one mesh does not wait for their modules."""
    if pipeline is False:
        return None
    from redistrib.programs.stages.grid import family_of

    return family_of("powers of two" if pipeline is True else pipeline)


def _staged(fn: Callable[..., Any], args: Sequence[Any], options: SearchOptions) -> Iterable[Staged]:
    """The pipelines that are asked for, simulated one after the other."""
    if not (options.family and options.batch and options.devices):
        return ()
    from redistrib.programs.search.staged import staged

    tracing = replace(options.program.tracing, opens_loops=False, unrolled_up_to=0)
    opened = prepare(fn, args, Mesh(()), None, None, tracing)
    return staged(
        opened, options.batch, options.devices, options.microbatches or (2, 128), options.machine, options.objective,
        options.family,
    )  # fmt: skip


def _proved_least(error: MemoryLimitError) -> tuple[bool, int]:
    """The order of errors: that nothing fits is proved if it is proved of all meshes."""
    return error.proved, error.least


def _on_mesh(report_progress: Callable[[str], None], mesh: Mesh, line: str) -> None:
    report_progress(f"{mesh}, {line}")


def _platform(mesh: Any) -> str:
    return mesh.devices.flat[0].platform if isinstance(mesh, jax.sharding.Mesh) else jax.default_backend()


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
