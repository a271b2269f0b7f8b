"""The bytes of a schedule at its worst moment: those of its program, to the byte, with overlap and without."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import redistrib as rd
from redistrib.errors import MemoryLimitError
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.program import Program
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search import descent, fitting
from redistrib.programs.search import moves as moves_module
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.classes import classes_of, one_by_one
from redistrib.programs.search.deadline import Deadline
from redistrib.programs.search.evaluation import Evaluation, evaluated, held_at_most
from redistrib.programs.search.fitting import feasible_result
from redistrib.programs.search.found import FeasibleResult, SearchResult
from redistrib.programs.search.layers import fold, harmonized, unfold
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.starting import starting
from redistrib.programs.time import clocks
from redistrib.programs.time.entry import by_kind, simulated_in_turn, simulated_issued
from redistrib.programs.time.issue import issued
from redistrib.programs.time.kernels.compiled import compiled
from redistrib.programs.time.machine import Machine
from tests.programs.search import models, oracle
from tests.programs.search.test_bounds import drawn
from tests.programs.search.test_large import problem as blocks
from tests.programs.search.test_loops import CASES, normal, step

MESHES = ("{d:4}", pytest.param("{d:2,e:2}", marks=pytest.mark.long))


def ends_by_itself(w: Any, x: Any) -> Any:
    """A loop that a product in its condition ends."""
    return lax.while_loop(lambda s: jnp.sum(s @ w) < 1e9, lambda s: jnp.tanh(s @ w) @ w, x)


def carried_twice(w: Any, x: Any) -> Any:
    """A loop of which the initial value is read by its steps, and again when it is over."""
    first = jnp.tanh(x @ w)
    last = lax.fori_loop(0, 4, lambda _, y: jnp.tanh(y @ w) + first, first)
    return last @ w.T, first + last


def added_and_stacked(w: Any, xs: Any) -> Any:
    """Steps with an accumulator, a stacked result, and an entry that is read twice."""

    def one(total: Any, x: Any) -> Any:
        y = x @ w
        return total + x.T @ y, jnp.tanh(y) * jnp.sum(x)

    return lax.scan(one, jnp.zeros_like(w), xs)


def scans_of_scans(ws: Any, x: Any) -> Any:
    return jax.grad(lambda ws, x: jnp.sum(lax.scan(_inner, x, ws)[0] ** 2))(ws, x)


def _inner(x: Any, w: Any) -> Any:
    return lax.scan(lambda y, own: (jnp.tanh(y @ own), jnp.sum(y)), x, w)


LOOPS = {
    **CASES,
    "a while": (ends_by_itself, (normal(32, 32), normal(64, 32))),
    "an initial value": (carried_twice, (normal(32, 32), normal(64, 32))),
    "stacked": (added_and_stacked, (normal(32, 32), normal(4, 64, 32))),
    "scans of scans": (scans_of_scans, (normal(3, 2, 32, 32), normal(64, 32))),
}


def schedules(problem: SearchProblem, seed: int, count: int = 3) -> Iterator[Propagation]:
    """The schedules that people write, and some drawn at random."""
    yield from starting(problem)
    random, names = Random(seed), problem.moves.mesh.names
    axes = AxesProblem(problem, problem.undecided(), names, one_by_one(problem))
    for _ in range(50):
        choice = [random.randrange(len(options)) for options in axes.options]
        if count and math.isfinite(axes.choices.price(choice)):
            count -= 1
            yield axes.chosen(choice)


def require_equal(
    problem: SearchProblem, seed: int = 0, count: int = 3, overlaps: tuple[bool, ...] = (False, True)
) -> int:
    """Seconds and bytes of schedules are those of the simulator; in how many something runs beside something else, if
    overlap is asked for, and else how many there are."""
    beside = 0
    for overlap in overlaps:
        own = replace(problem, overlap=overlap)
        for decisions in schedules(own, seed, count):
            guess = evaluated(own, decisions)
            found = FeasibleResult(own, SearchResult(decisions, 0.0, False), "p", guess)
            if guess.overlap is None:
                run = simulated_in_turn(found.program, own.machine, record=False)
                beside += overlaps == (False,)
            else:
                run = simulated_issued(found.program, own.machine, guess.overlap.window, record=False)
                beside += 1
            assert guess.memory == max(run.peak_bytes.values())
            assert guess.seconds == pytest.approx(run.seconds, rel=0.005)
            assert clocks_peak(found.program, own.machine, guess.overlap) == guess.memory
    return beside


def clocks_peak(program: Program, machine: Machine, overlap: Overlap | None) -> int:
    """Bytes that the fullest device holds by the clocks of all devices, which know nothing of blocks of tasks."""
    kernels = compiled(program, machine)
    if overlap is None:
        return max(clocks.run(kernels, machine).peak.values())
    return max(clocks.run(issued(kernels, machine, overlap.window), machine, by_kind, in_order=True).peak.values())


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("case", LOOPS)
def test_of_loops(case: str, mesh: str) -> None:
    assert require_equal(oracle.traced(*LOOPS[case], mesh))


@pytest.mark.long
def test_of_entries_ahead_and_results_behind() -> None:
    """Weights of scanned layers, wide enough that gathers and sums are hidden by the products of other steps."""
    for width, rows in ((4096, 32768), (1024, 8192)):
        layers = {"up": models.form(8, 1024, width), "down": models.form(8, width, 1024)}
        assert require_equal(oracle.traced(step, (layers, models.form(rows, 1024)), "{d:4}"))


@pytest.mark.long
def test_of_a_program_that_gives_its_arguments_away() -> None:
    own = blocks(2, Mesh.of({"d": 2, "t": 2}))
    assert require_equal(replace(own, donated=tuple(array.name for array in own.graph.inputs)), count=2)


def test_of_random_programs() -> None:
    assert sum(map(_of_seed, range(4))) > 20


def test_of_values_that_end_with_one_operation_and_are_read_by_others() -> None:
    """A move of one of two operands lasts longer than the operation that reads both."""
    assert _of_seed(184)


@pytest.mark.long
def test_of_many_random_programs() -> None:
    assert sum(map(_of_seed, range(4, 30))) > 200


@pytest.mark.exhaustive
def test_of_very_many_random_programs() -> None:
    assert sum(map(_of_seed, range(30, 200))) > 1400


def _of_seed(seed: int) -> int:
    problems = [
        oracle.problem(oracle.program(Random(seed)), "x=4"),
        oracle.problem(oracle.program(Random(seed), most=7), "{x:2,y:2}", "tpu"),
    ]
    if (other := drawn(seed)).moves.objective == "seconds":
        problems.append(other)
    return sum(require_equal(problem, seed) for problem in problems)


@pytest.mark.parametrize("profile", [pytest.param("tpu", marks=pytest.mark.long), "h100"])
@pytest.mark.parametrize("layers", [6, pytest.param(16, marks=pytest.mark.long)])
def test_of_folded_layers(profile: str, layers: int) -> None:
    """Bytes of a few layers that stand for all are those of all; few schedules miss them.

    Of 6 layers updates alone are folded: moves of gradients that are not laid out are not in flight.
    """
    own, ratios = fold(blocks(layers, profile=profile)), []
    for overlap in (False, True):
        problem = replace(own, overlap=overlap, whole=own.whole and replace(own.whole, overlap=overlap))
        for decisions in starting(problem):
            alike = harmonized(problem, decisions, classes_of(problem))
            few = evaluated(problem, alike)
            whole, found = unfold(problem, alike)
            every = evaluated(whole, found)
            ratios.append(few.memory / every.memory)
            assert (0.84 if overlap else 0.985) <= ratios[-1] <= 1.05
    assert sum(abs(ratio - 1) < 0.002 for ratio in ratios) >= 0.9 * len(ratios)


@pytest.mark.parametrize("name", ["v5e", "h100", *(pytest.param(n, marks=pytest.mark.long) for n in ("gpu", "cpu"))])
def test_no_program_holds_more_than_is_counted_at_most(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves_module, "PLANNED", 0)  # so that moves have closed prices
    traced = [oracle.traced(*LOOPS[case], "{d:4}").graph for case in ("stacked", "scans of scans")]
    ratios = []
    for graph, mesh in [
        *((oracle.program(Random(seed)), "x=2,y=2") for seed in range(6)),
        *((g, "d=4") for g in traced),
    ]:
        own = oracle.problem(graph, mesh, name)
        for decisions in schedules(own, 1):
            found = FeasibleResult(own, SearchResult(decisions, 0.0, False), "p", evaluated(own, decisions))
            ratios.append(held_at_most(own, decisions) / found.figures.memory)
            assert ratios[-1] >= 1
    assert max(ratios) < 10


def test_where_a_limit_is_far_no_program_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """On more than 32 devices: what is counted at most fits."""
    args, mesh = models.block_args(4, 64, 64, 128, 64), {"d": 16, "t": 4}
    options: dict[str, Any] = {"state": {"params": 0}, "machine": "v5e", "limit": 1, "progress": False}
    memory, made = rd.search(models.block_step, args, mesh, **options)[0].memory, FeasibleResult.program.func
    asked = list[FeasibleResult]()

    def program(result: FeasibleResult) -> Program:
        asked.append(result)
        return made(result)

    monkeypatch.setattr(FeasibleResult, "program", property(program))
    rd.search(models.block_step, args, mesh, memory_limit=10 * memory, **options)
    assert not asked
    rd.search(models.block_step, args, mesh, memory_limit=memory, **options)
    assert asked


@pytest.mark.long
@pytest.mark.parametrize("overlap", [False, True])
def test_a_limit_holds_with_all_layers(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a program holds a fifth more than the search counted, and nothing is known of it before it is made."""
    monkeypatch.setattr(fitting, "_surely_fits", lambda found, most: False)
    monkeypatch.setattr(descent, "ALONE", 0)  # so that layers are decided once
    own = replace(blocks(6, profile="h100"), overlap=overlap)
    free = feasible_result(own, "steps", None, Deadline.after(1.0))
    assert free.problem.folded is not None

    exact = FeasibleResult.figures.func

    def more(found: FeasibleResult) -> Evaluation:
        figures: Evaluation = exact(found)
        return figures._replace(memory=figures.memory * 6 // 5)

    monkeypatch.setattr(FeasibleResult, "figures", property(more))
    most = free.evaluation.memory * 11 // 10
    fits = feasible_result(own, "steps", most, Deadline.after(1.0))
    assert fits.figures.memory <= most
    with pytest.raises(MemoryLimitError) as caught:
        feasible_result(own, "steps", 1000, Deadline.after(1.0))
    assert caught.value.limit == 1000 < caught.value.least
