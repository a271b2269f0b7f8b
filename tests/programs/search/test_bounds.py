"""A bound lies below what is found and below the optimum, in the same seconds or bytes in which both are printed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

import redistrib as rd
from redistrib.errors import MemoryLimitError
from redistrib.lang.mesh import Mesh
from redistrib.programs.schedule.given import Given
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.classes import one_by_one
from redistrib.programs.search.constants import TIES
from redistrib.programs.search.descent import searched
from redistrib.programs.search.exact import solved
from redistrib.programs.search.fitting import feasible_result
from redistrib.programs.search.found import program_of
from redistrib.programs.search.moves import Moves, Objective
from redistrib.programs.search.problem import SearchProblem, Weights
from redistrib.programs.time.constants import machine
from redistrib.programs.time.entry import simulate
from tests.programs.search import models, oracle

MESHES = ("x=4", "x=2,y=2")


@functools.cache
def moves(mesh: str, profile: str, objective: Objective) -> Moves:
    """Prices of moves, of which all programs ask for the same."""
    return Moves(Mesh.of(mesh), machine(profile), objective)


def drawn(seed: int) -> SearchProblem:
    """A random program on one axis or two, by either objective, some with pins and with a result that is state."""
    random = Random(seed)
    graph, mesh, profile = oracle.program(random), random.choice(MESHES), random.choice(["gpu", "tpu"])
    objective: Objective = "bytes" if random.random() < 0.3 else "seconds"
    problem = oracle.problem(graph, mesh, profile, ties=TIES, moves=moves(mesh, profile, objective))
    if random.random() < 0.3:
        pinned = random.choice(graph.inputs)
        problem = replace(
            problem, given=Given(pins={pinned.name: {"x": random.choice([None, *range(len(pinned.shape))])}})
        )
    arrays = graph.arrays
    pairs = [
        (number, array.name)
        for number, name in enumerate(graph.outputs)
        for array in graph.inputs
        if arrays[name].shape == array.shape and name != array.name
    ]
    if not pairs or random.random() >= 0.5:
        return problem
    return replace(problem, given=replace(problem.given, tied=dict([random.choice(pairs)])))


def taken(problem: SearchProblem, decisions: Propagation) -> float:
    """Seconds that the simulator says, or bytes that the program receives."""
    program = program_of(problem, decisions, "p")
    return program.received_bytes if problem.moves.objective == "bytes" else simulate(program, problem.machine).seconds


def optimum(problem: SearchProblem) -> float:
    """The least that any cuts along all axes take, every operation on its own."""
    names = problem.moves.mesh.names
    choices = AxesProblem(
        replace(problem, weights=Weights(ties=0.0)), problem.undecided(), names, one_by_one(problem)
    ).choices
    solution = solved(choices)
    assert solution.optimal
    if len(choices.nodes) <= 6:
        assert solution.bound == pytest.approx(oracle.least(choices), rel=1e-9)
    return solution.bound


def require_bounds(seeds: Iterable[int]) -> None:
    for seed in seeds:
        problem = drawn(seed)
        found = searched(problem, "p").result
        price, axes = taken(problem, found.decisions), len(problem.moves.mesh.axes)
        assert found.bound <= price, seed
        if axes > 1 and problem.moves.objective == "bytes":
            continue  # which work an axis has to cut depends on the cuts along the other
        least = optimum(problem)
        assert problem.facts.floor <= least <= price * (1 + 1e-9), seed
        if axes == 1:
            assert found.bound <= least, seed
            assert price <= least * (1 + 2 * TIES) + 1e-12, seed


def test_of_random_programs() -> None:
    require_bounds([*range(200), 2154])  # in 2154 one axis leaves work uncut that it could cut in the end


@pytest.mark.long
def test_of_many_random_programs() -> None:
    require_bounds(range(200, 500))


@pytest.mark.exhaustive
def test_of_very_many_random_programs() -> None:
    require_bounds(range(500, 3000))


def test_of_random_programs_under_a_memory_limit() -> None:
    tight = 0
    for seed in range(40):
        problem = drawn(seed)
        free = searched(problem, "p").result
        limit = int(oracle.peak(program_of(problem, free.decisions, "p")) * 0.8)
        try:
            made = feasible_result(problem, "p", limit)
        except MemoryLimitError:
            continue
        tight += 1
        assert made.result.bound <= taken(made.problem, made.result.decisions), seed
        assert problem.facts.floor <= taken(made.problem, made.result.decisions), seed
    assert tight >= 3


@pytest.mark.parametrize("mesh", [{"d": 16}, {"d": 4, "t": 4}])
@pytest.mark.parametrize("limit", [None, "1.2MB"])
def test_printed(mesh: dict[str, int], limit: str | None) -> None:
    """Every bound in the report is at most the seconds found, and what is said of the distance follows from it."""
    form = models.form(256, 256)
    found = rd.search(models.chain, ([form] * 3, form), mesh, machine="gpu", memory_limit=limit)[0]
    said = re.findall(r"no schedule\D* takes less than (\S+) (ms|us): at most (\S+)% from", str(found))
    assert len(said) == len(mesh)
    for number, unit, away in said:
        bound = float(number) * {"ms": 1e-3, "us": 1e-6}[unit]
        assert bound <= found.seconds * 1.005  # three digits
        assert float(away) == pytest.approx(100 * (found.seconds / bound - 1), abs=2)
