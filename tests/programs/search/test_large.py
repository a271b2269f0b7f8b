"""Search at real size: repeated layers decided once, moves priced along axes, better schedules one after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest

import redistrib as rd
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import PRESETS
from redistrib.errors import MemoryLimitError, RedistribError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.run.prepared import prepare
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search import descent, exact
from redistrib.programs.search import moves as moves_module
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.axis_prices import AxisPrices
from redistrib.programs.search.classes import classes_of
from redistrib.programs.search.constants import STEEP, STRIDE
from redistrib.programs.search.deadline import Deadline
from redistrib.programs.search.descent import searched
from redistrib.programs.search.elimination import Elimination
from redistrib.programs.search.entry import tied
from redistrib.programs.search.evaluation import evaluated
from redistrib.programs.search.found import program_of
from redistrib.programs.search.layers import fold, harmonized, unfold
from redistrib.programs.search.moves import Moves
from redistrib.programs.search.options import problem_of
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.starting import starting
from redistrib.programs.time.constants import machine
from redistrib.programs.time.entry import simulate
from redistrib.programs.time.torus_layout import laid
from redistrib.synthesis.synthesize import synthesize
from tests.programs.search import models, oracle

UPPER = 1.16  # of the price of a plan, that a closed price is at most in what follows: it prices what can be done

MESH = Mesh.of({"d": 8, "t": 8})


def problem(layers: int, mesh: Mesh = MESH, profile: str = "tpu", pins: Any = ()) -> SearchProblem:
    args = models.block_args(layers, 64, 32, 64, 8)
    given = prepare(models.block_step, args, mesh, None, None, None)
    return problem_of(given, mesh, pins, tied(models.block_step, given, {"params": 0}), machine(profile), "seconds")


# ------------------------------------------------------------------------------------------ closed prices

SIMPLE = {
    "gather": ("[4{x}16, 16]", "[16, 16]"),
    "gather both": ("[4{x}16, 8{y}16]", "[16, 16]"),
    "slice": ("[16, 16]", "[4{x}16, 16]"),
    "all-to-all": ("[4{x}16, 16]", "[16, 4{x}16]"),
    "reduce-scatter": ("[16, 8{y}16] sum{x}", "[4{x}16, 8{y}16]"),
    "all-reduce": ("[4{x}16, 16] sum{y}", "[4{x}16, 16]"),
}


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("profile", ["tpu", "gpu", "axes"])
def test_a_collective_along_axes_has_the_price_of_the_step_of_a_plan(name: str, profile: str) -> None:
    """On uniform links, on hosts, and on axes of their own speed; the bytes are those of the plan, exactly.

    Plans may add up sums in rounds, which copy a little less than a reduce-scatter does.
    """
    mesh = Mesh.of({"y": 2, "x": 4})
    links = replace(PRESETS["gpu"], devices_per_host=4) if profile == "gpu" else PRESETS["tpu"]
    if profile == "axes":
        links = replace(links, axis_bandwidth={"x": 90e9, "y": 20e9})
    scale = 2**20  # large, so that plans do not trade bytes for launches
    source, target = (_scaled(DistType.parse(text), scale) for text in SIMPLE[name])
    prices = AxisPrices(mesh, links)
    steps = prices.collectives(source, target, "float32")
    plan = synthesize(source, mesh, target, mesh, dtype="float32", model=links)
    received = mesh.size * sum(step.received for step in steps)
    assert received == sum(plan.received) * 4
    seconds = sum(links.prices(4, links.topology(mesh)).step(step) for step in plan.steps)
    price = sum(map(prices.seconds, steps))
    assert seconds <= price * (1 + 1e-9)
    assert price <= seconds * (UPPER if source.partial else 1 + 1e-9)


IN_TURN = {  # moves along one axis, whose latency several collectives in turn shorten
    "gather": ("[{part}{{d}}{rows}, 64]", "[{rows}, 64]"),
    "gather of columns": ("[64, {part}{{d}}{rows}]", "[64, {rows}]"),
    "all-to-all": ("[{part}{{d}}{rows}, {rows}]", "[{rows}, {part}{{d}}{rows}]"),
    "all-reduce": ("[{rows}, 64] sum{{d}}", "[{rows}, 64]"),
    "reduce-scatter": ("[{rows}, 64] sum{{d}}", "[{part}{{d}}{rows}, 64]"),
    "zeros beside a tile": ("[{part}{{d}}{rows}, 64]", "[{rows}, 64] sum{{d}}"),
    "zeros in place of a tile": ("[{rows}, 64]", "[{rows}, 64] sum{{d}}"),
}


@pytest.mark.parametrize("devices", [16, 100, 512, 8192])
@pytest.mark.parametrize("name", IN_TURN)
@pytest.mark.parametrize("profile", ["tpu", "v5p"])
def test_a_move_along_a_long_axis_has_the_price_of_its_plan(profile: str, name: str, devices: int) -> None:
    mesh = Mesh.of({"d": devices})
    links = laid(machine(profile), mesh)[0].links
    assert isinstance(links, LatencyBandwidth)
    ends = [DistType.of(text.format(part=2, rows=2 * devices)) for text in IN_TURN[name]]
    prices = AxisPrices(mesh, links)
    plan = synthesize(ends[0], mesh, ends[1], mesh, dtype="float32", model=links)
    price = sum(map(prices.seconds, prices.collectives(*ends, "float32")))
    assert price == pytest.approx(plan.cost, rel=1e-9)
    if devices == 8192 and name in ("gather", "all-reduce", "all-to-all"):
        assert len(plan.steps) >= 3


def _scaled(form: DistType, scale: int) -> DistType:
    dims = (replace(form.dims[0], tile=form.dims[0].tile * scale, size=form.dims[0].size * scale), *form.dims[1:])
    return replace(form, dims=dims)


def test_no_move_receives_less_than_the_least_that_is_lacking() -> None:
    """A closed price is that of something that can be done: it never receives less than the lower bound of a plan."""
    mesh, random = Mesh.of({"x": 2, "y": 2, "z": 2}), Random(0)
    prices = AxisPrices(mesh, PRESETS["tpu"])
    ratios = []
    for _ in range(150):
        source, target = (_drawn(random, mesh) for _ in range(2))
        plan = synthesize(source, mesh, target, mesh, dtype="float32", model=PRESETS["tpu"])
        received = mesh.size * sum(step.received for step in prices.collectives(source, target, "float32"))
        assert received >= 4 * sum(plan.lower_bound) * (1 - 1e-9), (source, target)
        if sum(plan.received):
            ratios.append(received / (4 * sum(plan.received)))
    assert np.exp(np.mean(np.log(ratios))) < 1.25


def _drawn(random: Random, mesh: Mesh) -> DistType:
    axes: dict[int, list[str]] = {}
    for axis in random.sample(mesh.names, len(mesh.names)):
        dim = random.choice([None, 0, 1])
        if dim is not None:
            axes.setdefault(dim, []).append(axis)
    return DistType.cut((64, 64), axes, mesh)


# ------------------------------------------------------------------------------------------ folding


@pytest.mark.parametrize("keep", [None, 16])
def test_a_folded_graph_takes_and_holds_what_the_whole_one_does(keep: int | None) -> None:
    own = fold(problem(9))
    assert own.folded is not None
    assert own.whole is not None
    assert len(own.graph.operations) < 0.6 * len(own.whole.graph.operations)
    assert sum(own.facts.times) == len(own.whole.graph.operations)
    count = 0
    for decisions in starting(own):
        alike = harmonized(own, decisions, classes_of(own))
        few = evaluated(own, alike.kept(keep))
        whole, found = unfold(own, alike)
        every = evaluated(whole, found.kept(keep))
        assert few.seconds == pytest.approx(every.seconds, rel=1e-9)
        assert few.received == every.received
        assert few.memory == every.memory
        count += 1
    assert count > 3


def test_schedules_that_people_write_are_derived_with_repeated_layers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though every layer is decided by itself in the end; the first ones are those of the whole program."""
    own, derived = problem(9), list[int]()

    def listed(begun: SearchProblem) -> Iterator[Propagation]:
        derived.append(len(begun.graph.operations))
        return starting(begun)

    monkeypatch.setattr(descent, "starting", listed)
    found = searched(own, "p", None, Deadline.after(0.0))
    assert derived == [len(fold(own).graph.operations)]
    assert derived[0] < 0.6 * len(own.graph.operations)
    assert found.problem is own
    first = next(decisions for decisions in islice(starting(own), 1, None))
    assert found.improvements[0].price == pytest.approx(evaluated(own, first).seconds, rel=1e-9)


def test_a_neighbourhood_is_decided_again_only_where_something_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a schedule of one axis to one of which no neighbourhood gets better; not all are decided twice."""
    own = problem(6)
    decisions = next(starting(own))
    axes_problem = AxesProblem(own, decisions, ("d",), classes_of(own))
    choices, start, tried = axes_problem.choices, axes_problem.choice_of(decisions), list[bool]()
    improved = exact._improved

    def counted(tables: Elimination, current: list[int], nodes: Sequence[int]) -> list[int]:
        changed = improved(tables, current, nodes)
        tried.append(bool(changed))
        return changed

    monkeypatch.setattr(exact, "_improved", counted)
    best = exact._neighbourhood_search(Elimination(choices), start)
    centres = len(range(0, len(start), STRIDE))
    assert any(tried)
    assert choices.price(best) < choices.price(start)
    assert centres <= len(tried) < 2 * centres
    tried.clear()
    assert exact._neighbourhood_search(Elimination(choices), best) == best
    assert tried == [False] * centres


def test_layers_that_are_not_alike_are_not_folded() -> None:
    assert len(fold(problem(4)).graph.operations) == len(problem(4).graph.operations)
    pins = [rd.along("t", {"params/4/up": 1})]
    whole = problem(9, pins=pins)
    own = fold(whole)
    name = "params/4/up"
    assert own is whole or (own.folded is not None and own.folded.inputs[name] == name)


def test_a_graph_without_layers_stands_for_itself() -> None:
    for seed in range(20):
        own = oracle.problem(oracle.program(Random(seed)), "x=4")
        assert fold(own).graph.operations == own.graph.operations


# ------------------------------------------------------------------------------------------ evaluation


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed prices on meshes of any size."""
    monkeypatch.setattr(moves_module, "PLANNED", 1)


@pytest.mark.usefixtures("closed")
def test_an_evaluation_is_that_of_the_program() -> None:
    """Of the schedules that people write: bytes held, and seconds, as far as plans are collectives along axes.

    Where a plan holds less than such collectives, the evaluation is above it, and never below: what fits does fit.
    """
    mesh, equal = Mesh.of({"d": 2, "t": 4}), 0
    own = problem(1, mesh)
    schedules = list(starting(own))
    for decisions in schedules:
        guess = evaluated(own, decisions)
        program = program_of(own, decisions, "p")
        seconds = simulate(program, own.machine).seconds
        assert seconds * (1 - 1e-6) <= guess.seconds <= seconds * UPPER
        assert guess.memory >= oracle.peak(program)
        equal += guess.memory == oracle.peak(program)
    assert equal >= 0.9 * len(schedules) > 20


@pytest.mark.usefixtures("closed")
def test_bounds_hold_at_any_precision() -> None:
    """No schedule that the search finds is below its bound."""
    for seed in range(60):
        own = oracle.problem(oracle.program(Random(seed)), "x=2,y=2")
        assert own.moves.by_axes is not None
        result = searched(own, "p", None)
        assert result.problem.facts.floor <= result.evaluation.seconds * (1 + 1e-12), seed
        assert result.result.bound <= result.evaluation.seconds * (1 + 1e-12), seed
        prices = [step.price for step in result.improvements]
        assert prices == sorted(prices, reverse=True)
        assert prices[-1] == result.evaluation.seconds


# ------------------------------------------------------------------------------------------ at real size


def test_nothing_is_planned_device_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 2**18 devices no plan is made and no placement computed, and what is found fits the limit."""

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("something was planned device by device")

    monkeypatch.setattr(moves_module, "synthesize", never)
    monkeypatch.setattr(Mesh, "coordinates", property(never))
    args, mesh = models.block_args(8, 2**10, 256, 512, 256), {"d": 2**10, "t": 2**8}
    result = rd.search(
        models.block_step, args, mesh, state={"params": 0}, machine="tpu", limit=2, memory_limit="100MB", progress=False
    )[0]
    assert result.memory <= 100 * 10**6
    assert "closed prices of moves, not those of plans" in str(result)
    assert result.joint_bound <= result.seconds
    assert result.improvements
    assert result.schedule.starts["x"].local_shape[0] < 2**10


@pytest.mark.usefixtures("closed")
def test_what_is_found_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule of folded layers, on devices: the same values as the function itself."""
    import jax

    random = np.random.default_rng(0)
    args = (
        [random.standard_normal((16, 16), np.float32) * 0.3 for _ in range(8)],
        random.standard_normal((8, 16), np.float32),
    )

    def step(params: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: models.chain(p, x).sum())(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    monkeypatch.setattr(descent, "ALONE", 0)
    result = rd.search(step, args, {"d": 2, "t": 2}, state={"params": 0}, machine="tpu", progress=False)[0]
    assert len(result.problem.graph.operations) < len(result.prepared.traced.graph.operations)
    for own, want in zip(result.distributed(*args), step(*args), strict=True):
        np.testing.assert_allclose(own, want, rtol=2e-5, atol=1e-5)
    again = rd.distribute(step, args, {"d": 2, "t": 2}, schedule=result.schedule)
    assert again.program.received_bytes == result.distributed.program.received_bytes


def test_what_does_not_fit_is_said_at_once_with_the_smallest_that_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    args = models.block_args(6, 64, 32, 64, 8)

    def never(*_: Any) -> None:
        raise AssertionError("a search for what is proved not to be there")

    monkeypatch.setattr(descent._Descent, "run", never)
    with pytest.raises(MemoryLimitError, match=r"bytes are held at .* by every one") as caught:
        rd.search(models.block_step, args, MESH, state={"params": 0}, machine="tpu", limit=3, memory_limit=1000)
    assert caught.value.proved
    assert 1000 < caught.value.least < math.inf


def test_where_each_operation_is_decided_bytes_begin_with_the_price_that_was_come_to_for_classes() -> None:
    lines: list[str] = []
    searched(problem(1), "p", 4_800_000, report_progress=lines.append)
    prices = [float(line.split()[1]) for line in lines if line.startswith("memory, ")]
    assert len(prices) > 6  # bytes have a price again
    assert sum(price < STEEP * prices[0] for price in prices) == 1


def test_it_stops_when_the_time_is_up() -> None:
    result = searched(problem(6), "p", None, Deadline.after(0.0))
    assert result.result.stopped
    assert math.isfinite(result.evaluation.seconds)
    assert not isinstance(result, RedistribError)
    assert isinstance(result.result.decisions, Propagation)
    assert isinstance(result.problem.moves, Moves)
