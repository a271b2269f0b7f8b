"""A bound lies below what is found and below the optimum, in the same seconds or bytes in which both are printed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import redistrib as rd
from redistrib.autoshard.axes import TIES, AxesProblem, Decisions, Task
from redistrib.autoshard.descent import one_by_one, program_of, searched
from redistrib.autoshard.exact import solved
from redistrib.autoshard.fitting import fitted, peak
from redistrib.autoshard.moves import Moves, Objective
from redistrib.errors import MemoryLimitError
from redistrib.lang.mesh import Mesh
from redistrib.simulator.constants import machine
from redistrib.simulator.entry import simulate
from tests.search import models, oracle

MESHES = ("x=4", "x=2,y=2")


@functools.cache
def moves(mesh: str, profile: str, objective: Objective) -> Moves:
    """Prices of moves, of which all programs ask for the same."""
    return Moves(Mesh.of(mesh), machine(profile), objective)


def drawn(seed: int) -> Task:
    """A random program on one axis or two, by either objective, some with pins and with a result that is state."""
    random = Random(seed)
    graph, mesh, profile = oracle.program(random), random.choice(MESHES), random.choice(["gpu", "tpu"])
    objective: Objective = "bytes" if random.random() < 0.3 else "seconds"
    task = oracle.task(graph, mesh, profile, ties=TIES, moves=moves(mesh, profile, objective))
    if random.random() < 0.3:
        pinned = random.choice(graph.inputs)
        task = replace(task, pins={pinned.name: {"x": random.choice([None, *range(len(pinned.shape))])}})
    arrays = graph.arrays()
    pairs = [
        (number, array.name)
        for number, name in enumerate(graph.outputs)
        for array in graph.inputs
        if arrays[name].shape == array.shape and name != array.name
    ]
    return replace(task, tied=dict([random.choice(pairs)])) if pairs and random.random() < 0.5 else task


def taken(task: Task, found: Any) -> float:
    """Seconds that the simulator says, or bytes that the program receives."""
    program = program_of(task, found, "p")
    return program.received_bytes if task.moves.objective == "bytes" else simulate(program, task.machine).seconds


def optimum(task: Task) -> float:
    """The least that any cuts along all axes take, every operation on its own."""
    names = task.moves.mesh.names
    problem = AxesProblem(replace(task, ties=0.0), Decisions.none(task), names, one_by_one(task)).problem
    solution = solved(problem)
    assert solution.optimal
    if len(problem.nodes) <= 6:
        assert solution.bound == pytest.approx(oracle.least(problem), rel=1e-9)
    return solution.bound


def require_bounds(seeds: Iterable[int]) -> None:
    for seed in seeds:
        task = drawn(seed)
        found = searched(task)
        price, axes = taken(task, found), len(task.moves.mesh.axes)
        assert found.bound <= price, seed
        if axes > 1 and task.moves.objective == "bytes":
            continue  # which work an axis has to cut depends on the cuts along the other
        least = optimum(task)
        assert task.floor <= least <= price * (1 + 1e-9), seed
        if axes == 1:
            assert found.bound <= least, seed
            assert price <= least * (1 + 2 * TIES) + 1e-12, seed


def test_of_random_programs() -> None:
    require_bounds([*range(200), 2154])  # in 2154 one axis leaves work uncut that it could cut in the end


@pytest.mark.long
def test_of_many_random_programs() -> None:
    require_bounds(range(200, 3000))


def test_of_random_programs_under_a_memory_limit() -> None:
    tight = 0
    for seed in range(40):
        task = drawn(seed)
        free = searched(task)
        limit = int(peak(program_of(task, free, "p"))[0] * 0.8)
        try:
            made = fitted(task, "p", limit)
        except MemoryLimitError:
            continue
        tight += 1
        assert made.found.bound <= taken(made.task, made.found), seed
        assert task.floor <= taken(made.task, made.found), seed
    assert tight >= 3


@pytest.mark.parametrize("mesh", [{"d": 16}, {"d": 4, "t": 4}])
@pytest.mark.parametrize("limit", [None, "1.2MB"])
def test_printed(mesh: dict[str, int], limit: str | None) -> None:
    """Every bound in the report is at most the milliseconds found, and what is said of the distance follows from it."""
    form = models.form(256, 256)
    found = rd.search(models.chain, ([form] * 3, form), mesh, profile="gpu", memory_limit=limit)[0]
    said = re.findall(r"no schedule\D* takes less than (\S+) ms: at most (\S+)% from", str(found))
    assert len(said) == len(mesh)
    for bound, away in said:
        assert float(bound) <= found.seconds * 1e3 + 5e-4
        assert float(away) == pytest.approx(100 * (found.seconds * 1e3 / float(bound) - 1), abs=2)
