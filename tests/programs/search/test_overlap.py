"""Search where moves run beside operations: what it counts, what it finds, and what it proves."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

import redistrib as rd
from redistrib.cli import main
from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.data import Loop, ProgramData
from redistrib.programs.lower.ahead import gathered_ahead
from redistrib.programs.lower.behind import overlapping, scattered_behind
from redistrib.programs.lower.shifts import AHEAD, BEHIND, moves_of
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.search import moves as moves_module
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.classes import classes_of, one_by_one
from redistrib.programs.search.evaluation import evaluated, walked
from redistrib.programs.search.fitting import feasible_result
from redistrib.programs.search.found import program_of
from redistrib.programs.search.held import add_buffers
from redistrib.programs.search.laid_out import LaidOut
from redistrib.programs.search.layers import fold, harmonized, unfold
from redistrib.programs.search.problem import SearchProblem, Weights
from redistrib.programs.search.starting import starting
from redistrib.programs.search.streams import Streams
from redistrib.programs.time.entry import simulate
from redistrib.programs.time.task_blocks import timed
from tests.programs.search import models, oracle
from tests.programs.search.test_bounds import drawn
from tests.programs.search.test_large import problem as blocks
from tests.programs.search.test_loops import CASES, of_layers, step


def beside(problem: SearchProblem) -> SearchProblem:
    """The same where moves run beside operations."""
    whole = problem.whole and replace(problem.whole, overlap=True)
    return replace(problem, overlap=True, whole=whole)


# ------------------------------------------------------------------------------------------------ what is counted


def test_a_schedule_takes_what_its_program_takes() -> None:
    """Seconds as the simulator has them, of random programs and of layers; bytes held to a few."""
    problems = [beside(oracle.problem(oracle.program(Random(seed)), "x=4")) for seed in range(40)]
    problems.append(beside(blocks(2, Mesh.of({"d": 2, "t": 4}))))
    hidden = 0
    for problem in problems:
        for decisions in starting(problem):
            guess = evaluated(problem, decisions)
            program = program_of(problem, decisions, "p")
            found = simulate(program, problem.machine, overlap=True, record=False)
            assert guess.seconds == pytest.approx(found.seconds, rel=1e-9)
            assert guess.memory == pytest.approx(max(found.peak_bytes.values()), rel=0.1)
            apart = guess.computing + guess.moving
            assert max(guess.computing, guess.moving) <= guess.seconds <= apart * (1 + 1e-9)
            assert apart == pytest.approx(simulate(program, problem.machine, record=False).seconds, rel=1e-9)
            hidden += guess.seconds < 0.99 * apart
    assert hidden > 10


@pytest.mark.parametrize("profile", ["tpu", "h100"])
def test_folded_layers_take_what_all_of_them_take(profile: str) -> None:
    own = beside(fold(blocks(10, profile=profile)))
    for decisions in itertools.islice(starting(own), 1, None, 2):
        alike = harmonized(own, decisions, classes_of(own))
        few = evaluated(own, alike)
        whole, found = unfold(own, alike)
        every = evaluated(whole, found)
        assert few.seconds == pytest.approx(every.seconds, rel=0.02)
        assert few.memory == pytest.approx(every.memory, rel=0.15)
        assert few.seconds <= (few.computing + few.moving) * (1 + 1e-12)


def test_steps_of_loops_gather_ahead() -> None:
    """Weights of scanned layers, wide enough that their gathers are shorter than the products of a step."""
    layers = {"up": models.form(8, 1024, 4096), "down": models.form(8, 4096, 1024)}
    own = beside(replace(oracle.traced(step, (layers, models.form(32768, 1024)), "{d:4}")))
    best = None
    for decisions in starting(own):
        guess = evaluated(own, decisions)
        program = program_of(own, decisions, "p")
        if guess.overlap is not None and guess.overlap.ahead:
            best = guess
            program = gathered_ahead(program, guess.overlap.ahead)
        found = simulate(program, own.machine, overlap=True, record=False)
        assert guess.seconds == pytest.approx(found.seconds, rel=0.05)
    assert best is not None
    assert best.seconds < best.computing + 0.1 * best.moving


def test_steps_of_loops_scatter_behind() -> None:
    """Gradients of scanned layers, each added up in the next step: all but the last run beside products."""
    layers = {"up": models.form(8, 1024, 1024), "down": models.form(8, 1024, 1024)}
    own = beside(replace(oracle.traced(step, (layers, models.form(8192, 1024)), "{d:4}")))
    chosen = 0
    for decisions in starting(own):
        guess = evaluated(own, decisions)
        program = program_of(own, decisions, "p")
        apart = simulate(program, own.machine, overlap=True, record=False)
        if guess.overlap is None or not guess.overlap.behind:
            continue
        chosen += 1
        found = simulate(scattered_behind(program, guess.overlap.behind), own.machine, overlap=True, record=False)
        assert guess.seconds == pytest.approx(found.seconds, rel=1e-9)
        assert guess.memory == pytest.approx(max(found.peak_bytes.values()), rel=0.05)
        assert found.seconds < 0.95 * apart.seconds
    assert chosen == 1


def test_of_results_behind_only_the_last_move_is_waited_for() -> None:
    """Eight steps whose products take longer than the sum of their gradient over devices: it is hidden seven times."""

    def function(w: Any, xs: Any) -> Any:
        gradient = jax.grad(lambda w, x: jnp.sum((x @ w) @ w.T))
        return lax.scan(lambda c, x: (c, gradient(w, x)), 0.0, xs)[1]

    args, schedule = (models.form(1024, 1024), models.form(8, 8192, 1024)), [rd.along("d", {"xs": 1})]
    program = rd.distribute(function, args, {"d": 8}, schedule=schedule, machine="tpu").program
    behind = scattered_behind(program)
    for own, exposed in ((program, 8), (behind, 1)):
        busy = simulate(own, "tpu", streams="moves", record=False).run.busy
        computing, moving = (busy[0, stream] for stream in ("", "moves"))
        count = 8 if own is program else 9
        assert computing / 8 > moving / count
        found = simulate(own, "tpu", overlap=True, record=False).seconds
        assert found == pytest.approx(computing + exposed * moving / count, rel=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_loops_take_what_their_programs_take(case: str) -> None:
    """A loop waits for what it begins with; of what is found seconds and bytes are those of the simulator."""
    function, args = CASES[case]
    for profile in ("gpu", "tpu"):
        options = {"trip_count": 10, "machine": profile, "overlap": True, "progress": False}
        found = rd.search(function, args, {"d": 4}, **options)[0]
        assert found.seconds == pytest.approx(found.simulation.seconds, rel=0.01)
        assert found.memory == max(found.simulation.peak_bytes.values())
        assert found.bound <= found.seconds


def loops(program: ProgramData) -> Iterator[Loop]:
    """The loops, those in steps of others too."""
    for op in program.ops:
        if isinstance(op, Loop):
            yield op
            yield from loops(op.program)


def stacked_twice(w: Any, xs: Any) -> Any:
    def one(total: Any, x: Any) -> Any:
        y = jnp.tanh(x @ w)
        return total + y.sum(), (y, y)

    return lax.scan(one, 0.0, xs)


@pytest.mark.parametrize("case", [*CASES, "stacked twice"])
def test_a_search_and_a_program_make_the_same_moves_ahead_and_behind(case: str) -> None:
    """Which moves may be, and with all of them seconds and bytes to the last digit."""
    twice = stacked_twice, (models.form(64, 64), models.form(5, 64, 64))
    own, random = beside(oracle.traced(*CASES.get(case, twice), "{d:4}")), Random(3)
    weightless = replace(own, weights=replace(own.weights, ties=0.0))
    axes = AxesProblem(weightless, own.undecided(), own.moves.mesh.names, one_by_one(own))
    choices = ([random.randrange(len(options)) for options in axes.options] for _ in range(20))
    for decisions in (*starting(own), *map(axes.chosen, choices)):
        walk = walked(own, decisions)
        if not math.isfinite(walk.seconds):
            continue
        works, buffers = walk.recorder.finished(), walk.recorder.buffers()
        program, names = program_of(own, decisions, "p"), []
        for shift in (AHEAD, BEHIND):
            shifted = (work.shifted for work in works if work.shifted is not None and work.shifted.shift is shift)
            names.append(tuple(dict.fromkeys(move.name for move in shifted)))
            assert {*names[-1]} == {move.value for loop in loops(program) for move in moves_of(loop, shift)}
        for window in (None, 1):
            overlap = Overlap(window, *names)
            laid = LaidOut(Streams(own, works, buffers, overlap), None)
            add_buffers(laid)
            guess = timed(laid.block, window)
            found = simulate(overlapping(program, overlap), own.machine, overlap=True, window=window, record=False)
            assert guess.seconds == pytest.approx(found.seconds, rel=1e-12)
            assert guess.peak()[0] == max(found.peak_bytes.values())


def test_what_is_in_flight_counts_against_a_limit() -> None:
    """Of one schedule: the less memory there is, the later moves are issued, to none early at all."""
    own = beside(blocks(3, Mesh.of({"d": 2, "t": 4})))
    decisions = list(starting(own))[2]
    free, apart = evaluated(own, decisions), evaluated(replace(own, overlap=False), decisions)
    assert free.memory >= apart.memory
    seconds = [free.seconds]
    for most in (free.memory, (free.memory + apart.memory) // 2, apart.memory, apart.memory - 1):
        found = evaluated(own, decisions, most=most)
        assert found.memory <= max(most, apart.memory)
        seconds.append(found.seconds)
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1] == apart.seconds


# ------------------------------------------------------------------------------------------------ what is found


def gap(problem: SearchProblem) -> float | None:
    """How far what is found is above the least of all schedules; None where there are too many."""
    found = feasible_result(problem, "p", None)
    assert found.result.bound <= found.price * (1 + 1e-12)
    assert problem.facts.floor <= found.price * (1 + 1e-12)
    apart = feasible_result(replace(problem, overlap=False), "p", None)
    own = evaluated(problem, apart.result.decisions)
    assert found.price <= own.seconds * (1 + 1e-6)
    names = problem.moves.mesh.names
    axes = AxesProblem(replace(problem, weights=Weights(ties=0.0)), problem.undecided(), names, one_by_one(problem))
    if math.prod(map(len, axes.options)) > 1500:
        return None
    choices = itertools.product(*(range(len(options)) for options in axes.options))
    least = min(evaluated(problem, axes.chosen(choice)).seconds for choice in choices)
    assert problem.facts.floor <= least * (1 + 1e-12)
    if len(names) == 1:
        assert found.result.bound <= least * (1 + 1e-12)
    assert least <= found.price * (1 + 1e-9)
    return found.price / least


def require_gaps(seeds: range, tried: int, met: float, furthest: float) -> None:
    problems = [beside(own) for own in map(drawn, seeds) if own.moves.objective == "seconds"]
    gaps = [found for found in map(gap, problems) if found is not None]
    assert len(gaps) >= tried
    assert sum(one < 1 + 1e-6 for one in gaps) >= met * len(gaps)
    assert max(gaps) < furthest


def test_of_random_programs() -> None:
    """A true bound, no worse than without overlap, and nearly always the least of all."""
    require_gaps(range(40), 6, 0.9, 1.1)


@pytest.mark.exhaustive
def test_of_many_random_programs() -> None:
    require_gaps(range(40, 300), 30, 0.9, 1.3)


def test_gathers_of_sharded_weights_hide_behind_longer_products() -> None:
    """Four layers, examples and weights cut by one axis: all but the first gather is hidden."""
    args = ([models.form(1024, 1024)] * 4, models.form(65536, 1024))
    pins = {"in_shardings": ([PartitionSpec("d")] * 4, PartitionSpec("d")), "out_shardings": PartitionSpec("d")}
    apart = rd.search(models.chain, args, {"d": 8}, machine="tpu", progress=False, **pins)[0]
    found = rd.search(models.chain, args, {"d": 8}, machine="tpu", progress=False, overlap=True, **pins)[0]
    own = found.feasible.evaluation
    assert own is not None
    assert own.computing > own.moving > 0
    assert found.seconds == pytest.approx(own.computing + own.moving / 4, rel=1e-6)
    assert found.seconds == pytest.approx(found.simulation.seconds, rel=1e-6)
    assert found.seconds < apart.seconds
    assert found.bound <= found.seconds
    assert "run beside each other" in str(found)


def test_what_is_found_runs() -> None:
    """The schedule of a training step with a loop, gathered ahead, on devices."""
    args = of_layers()
    found = rd.search(step, args, {"d": 4}, state={"params": 0}, machine="tpu", progress=False, overlap=True)[0]
    for own, want in zip(*map(jax.tree.leaves, (found.distributed(*args), step(*args))), strict=True):
        np.testing.assert_allclose(own, want, rtol=2e-4, atol=1e-5)
    assert found.seconds <= found.feasible.evaluation.computing + found.feasible.evaluation.moving


def test_a_memory_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves_module, "PLANNED", 1)
    args, options = models.block_args(6, 64, 32, 64, 8), {"state": {"params": 0}, "machine": "tpu", "progress": False}
    mesh = {"d": 8, "t": 8}
    free = rd.search(models.block_step, args, mesh, limit=3, overlap=True, **options)[0]
    tight = rd.search(models.block_step, args, mesh, limit=3, overlap=True, memory_limit=free.memory - 1, **options)[0]
    assert tight.memory < free.memory
    assert tight.joint_bound <= tight.seconds


# ------------------------------------------------------------------------------------------------ how it is asked for


def test_it_is_for_seconds_and_not_for_pipelines() -> None:
    args: Any = ([models.form(8, 8)] * 2, models.form(8, 8))
    with pytest.raises(ProgramError, match="bytes are the same with overlap and without"):
        rd.search(models.chain, args, {"d": 2}, objective="bytes", overlap=True)
    with pytest.raises(ProgramError, match="pipelines are timed without"):
        rd.search(models.chain, args, devices=2, pipeline=True, batch={"x": 0}, overlap=True)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(
        "from tests.programs.search import models\n"
        "def case():\n"
        "    return models.chain, [models.form(64, 64)] * 2, models.form(64, 64)\n"
    )
    out = tmp_path / "schedule.json"
    target = f"{tmp_path / 'own.py'}:case"
    assert main(["search", target, "--mesh", "d=2", "--machine", "gpu", "--overlap", "-o", str(out)]) == 0
    assert "run beside each other" in capsys.readouterr().out
    assert json.loads(out.read_text())
