"""`search`: from a JAX function to schedules."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax

from redistrib.cost.model import CostModel
from redistrib.cost.presets import preset_of
from redistrib.distribution.entry import Prepared, leaf_names, prepare
from redistrib.distribution.tactics import Along, Work
from redistrib.errors import CutError, MemoryLimitError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.partition.propagate import Propagation
from redistrib.search.axes import Task
from redistrib.search.deadline import Deadline
from redistrib.search.fitting import fitted
from redistrib.search.grid import Staged, meshes_of, staged
from redistrib.search.moves import Moves, Objective
from redistrib.search.result import Candidate, Searched
from redistrib.simulate.constants import machine
from redistrib.simulate.machine import Machine


def search(
    function: Callable[..., Any],
    args: Any,
    mesh: Any,
    *,
    devices: int | None = None,
    pipeline: bool = False,
    batch: Mapping[str, int] | None = None,
    microbatches: tuple[int, int] = (2, 128),
    in_shardings: Any = None,
    out_shardings: Any = None,
    pins: Any = (),
    state: Mapping[str, int] | None = None,
    memory_limit: int | None = None,
    profile: Machine | CostModel | str | None = None,
    objective: Objective = "seconds",
    limit: float | None = None,
    progress: bool | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Searched:
    """See `redistrib.api.search`."""
    on = profile_of(profile, mesh)
    if (mesh is None) == (devices is None):
        raise ProgramError("", "", "Place", "give either a mesh, or a number of devices")
    if devices is not None and (in_shardings is not None or out_shardings is not None or pins):
        raise ProgramError("", "", "Place", "pins name axes, and a number of devices has none; give a mesh")
    if pipeline and (devices is None or batch is None):
        raise ProgramError("", "", "Batch", "a pipeline needs devices=, and batch=, the arguments with examples")
    tried = [Mesh(Mesh.of(mesh).axes)] if devices is None else meshes_of(devices, on)
    deadline = Deadline.after(limit)
    listed: list[Candidate | Staged] = []
    least: list[MemoryLimitError] = []
    with _told(progress) as told:
        for number, own in enumerate(tried):
            if listed and deadline.passed:
                break
            given = prepare(function, args, own, in_shardings, out_shardings, rules)
            task = task_of(given, own, pins, tied(function, given, state or {}), on, objective)
            own_part = deadline.part(1 / (len(tried) - number))
            try:
                made = fitted(task, given.name, memory_limit, own_part, lambda said, own=own: told(f"{own}, {said}"))  # type: ignore[misc]
                listed.append(Candidate(made, given, own if mesh is None else mesh, memory_limit))
            except MemoryLimitError as error:
                least.append(error)
        for one in staged(function, given, batch, devices, microbatches, on) if pipeline and batch and devices else ():
            told(one.name)
            if memory_limit is None or one.memory <= memory_limit:
                listed.append(one)
            if deadline.passed:
                break
    if not listed:
        raise min(least, key=lambda error: error.least)
    return Searched(listed)


def profile_of(profile: Machine | CostModel | str | None, mesh: Any) -> Machine:
    """The machine that is asked for, or the preset of the devices, with links of its own if only these are given."""
    if profile is not None and not isinstance(profile, CostModel):
        return machine(profile)
    platform = mesh.devices.flat[0].platform if isinstance(mesh, jax.sharding.Mesh) else jax.default_backend()
    preset = machine(preset_of(platform))
    return preset if profile is None else replace(preset, links=profile)


def task_of(given: Prepared, mesh: Mesh, pins: Any, back: Mapping[int, str], on: Machine, objective: Objective) -> Task:
    """What is searched on a mesh."""
    graph = given.traced.graph
    asked = Propagation(graph, mesh)
    for tactic in _flat(pins):
        if tactic.axis in mesh.names:
            tactic.begin(asked)
        else:
            raise CutError("", "", "Schedule", f"the mesh {mesh} has no axis {tactic.axis!r}")
    fixed: dict[str | int, Mapping[str, int | None]] = {
        name: dims for name, dims in asked.pins.items() if name not in given.starts
    }
    work = {k: cuts for k, cuts in enumerate(asked.cuts) if cuts}
    return Task(graph, on, Moves(mesh, on, objective), given.starts, given.ends, fixed, work, back)


def _flat(pins: Any) -> Iterator[Along | Work]:
    for one in (pins,) if isinstance(pins, Along | Work) else tuple(pins):
        if isinstance(one, list | tuple):
            yield from _flat(one)
        elif isinstance(one, Along | Work):
            yield one
        else:
            raise CutError("", "", "Schedule", f"{one!r} is no pin; write rd.along(axis, {{argument: dimension}})")


def tied(function: Callable[..., Any], given: Prepared, state: Mapping[str, int]) -> dict[int, str]:
    """Results, by number of the leaf, that become an argument, by name.

    Raises:
        ProgramError: if there is no such argument or result, or the two are not alike.
    """
    if not state:
        return {}
    traced = given.traced
    names = leaf_names(function, given.args)
    numbers = jax.tree_util.tree_unflatten(traced.out_tree, range(len(traced.outputs)))
    arrays = traced.graph.arrays()
    found: dict[int, str] = {}
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
        found |= dict(zip(back, leaves, strict=True))
    return found


@contextlib.contextmanager
def _told(progress: bool | None) -> Iterator[Callable[[str], None]]:
    """What shows on a terminal how far a search is."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda said: None
        return
    from rich.console import Console

    with Console(file=sys.stderr).status("searching") as status:
        yield lambda said: status.update(f"searching: {said}")
