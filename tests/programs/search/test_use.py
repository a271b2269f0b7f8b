"""Pins, reports, numbers of devices, and the command."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib.cli import main
from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import CutError, ProgramError
from redistrib.programs.ir.text import to_text
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.schedule import Schedule
from redistrib.programs.search import descent
from redistrib.programs.search.evaluation import Walk
from redistrib.programs.search.integer import Solution
from redistrib.programs.search.meshes import meshes_of
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.ranking import Ranking
from redistrib.programs.search.result import Candidate
from redistrib.programs.search.staged import even
from redistrib.programs.search.timed import Measured
from redistrib.programs.show.entry import content_of
from redistrib.programs.time.constants import machine
from redistrib.report import lines_shown
from tests.messages import exactly
from tests.programs.search import models
from tests.programs.stages.scans import BATCH, args_of, deep, momentum

ROW = (models.form(64, 256), models.form(256, 256))


def product(x: Any, w: Any) -> Any:
    return x @ w


def test_pins_hold_and_say_what_they_cost() -> None:
    pins = [rd.along("d", {"x": 1}), rd.work("d", {"dot_general": "n0"})]
    found = rd.search(product, ROW, {"d": 4}, pins=pins, machine="gpu")[0]
    assert [str(value.type) for value in found.program.inputs] == ["[64, 64{d}256]", "[256, 64{d}256]"]
    assert str(found.program.values[found.program.outputs[0]].type) == "[64, 64{d}256]"
    argument, operation = found.pin_costs()
    assert (argument.name, operation.name) == ("argument x", "operation dot_general")
    assert argument.free < argument.held == pytest.approx(found.seconds, rel=1e-3)
    assert argument.moves == (("x", 64 * 192 * 4 * 4),)
    assert str(argument).endswith("x (196,608 bytes)")


@pytest.mark.parametrize(
    "ends",
    [
        {"in_shardings": ("[16{d}64, 256]", None)},
        {"in_shardings": (None, "[256, 64{d}256]")},
        {"out_shardings": "[64, 64{d}256]"},
    ],
)
def test_a_search_without_time_finds_what_distribute_makes_of_the_types(ends: Any) -> None:
    found = rd.search(product, ROW, {"d": 4}, machine="gpu", limit=1e-9, **ends)[0]
    made = rd.distribute(product, ROW, {"d": 4}, **ends).program
    assert (found.program.inputs, found.program.ops) == (made.inputs, made.ops)
    assert not found.program.moves


def test_types_of_arguments_and_results_are_pins() -> None:
    ends = {"in_shardings": ("[16{d}64, 256]", None), "out_shardings": "[64, 64{d}256]"}
    found = rd.search(product, ROW, {"d": 4}, machine="gpu", **ends)[0]
    assert str(found.program.inputs[0].type) == "[16{d}64, 256]"
    assert str(found.program.values[found.program.outputs[0]].type) == "[64, 64{d}256]"
    assert [cost.name for cost in found.pin_costs()] == ["argument x", "results"]


def test_what_costs_as_much_either_way_goes_to_every_device() -> None:
    """Whole or cut, no byte moves."""
    found = rd.search(lambda x: 2 * x, ROW[:1], {"d": 4}, objective="bytes")[0]
    assert "x                       [16{d}64, 256]" in str(found.schedule)


def test_a_report_has_the_bound_and_what_was_next_best() -> None:
    args = models.form(4096, 4096), models.form(4096, 4096)
    found = rd.search(product, args, {"d": 4}, machine="gpu", pins=rd.along("d", {"x": 0}))
    first = found[0].decisions[0]
    assert (first.name, first.taken) == ("dot_general", "m0")
    worse = rd.work("d", {"dot_general": first.other})
    other = rd.search(product, args, {"d": 4}, machine="gpu", pins=[rd.along("d", {"x": 0}), worse])
    assert first.loss > 0

    assert other[0].seconds - found[0].seconds == pytest.approx(first.loss, rel=0.02)
    text = str(found)
    assert "1 candidate on gpu" in text
    assert "at most 0.00% from the optimum" in text
    assert "runner-up" in text
    assert found[0].received_bytes == 0


@pytest.mark.parametrize(
    ("objective", "mesh", "layers", "limit"),
    [("seconds", {"d": 2, "t": 2}, 3, 1_600_000), ("bytes", {"d": 4}, 2, 900_000)],
)
def test_a_runner_up_that_is_better_and_does_not_fit_is_said_not_to(
    objective: Literal["seconds", "bytes"], mesh: dict[str, int], layers: int, limit: int
) -> None:
    """Under a limit of memory the next best way may be faster: then it says that it does not fit, and no loss."""

    def step(params: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: jnp.sum(models.chain(p, x)))(params)
        return jax.tree.map(lambda p, g: p - g, params, grads)

    args, state = ([models.form(256, 256)] * layers, models.form(256, 256)), {"params": 0} if len(mesh) > 1 else None
    found = rd.search(step, args, mesh, machine="gpu", objective=objective, memory_limit=limit, state=state)[0]
    unfit = [decision for decision in found.decisions if not decision.fits]
    assert unfit
    assert unfit == found.decisions[-len(unfit) :]
    assert all(decision.loss < 0 for decision in unfit)
    assert all(decision.loss >= -1e-9 * found.rank[0] for decision in found.decisions if decision.fits)
    with lines_shown(None):
        text = str(found)
    assert text.count("does not fit") == len(unfit)
    (page,) = [table for table in content_of(found).tables if table.title == "Decisions"]
    assert [row[-1] for row in page.rows].count("does not fit") == len(unfit)
    better = next(decision for decision in unfit if decision.name.startswith("params/"))
    pin = rd.along(better.axis, {better.name: None if better.other == "whole" else int(better.other)})
    free = rd.search(step, args, mesh, machine="gpu", objective=objective, pins=pin, state=state)[0]
    assert free.rank[0] < found.rank[0]
    assert free.memory > limit


AGAIN = """
import redistrib as rd
from tests.programs.stages.scans import BATCH, args_of, deep, momentum
from tests.programs.search import models
args = models.block_args(1, 4, 64, 128, 4)
found = rd.search(models.block_step, args, {"d": 4}, state={"params": 0}, machine="gpu")
print(found.schedule.to_json())
"""


def test_the_same_is_found_again_and_in_another_process() -> None:
    """In another process sets of texts have another order."""
    args = models.block_args(1, 4, 64, 128, 4)
    one, other = (rd.search(models.block_step, args, {"d": 4}, state={"params": 0}, machine="gpu") for _ in range(2))
    assert one.schedule == other.schedule
    environment = {**os.environ, "PYTHONHASHSEED": "17", "JAX_PLATFORMS": "cpu"}
    root = Path(__file__).parents[3]
    said = subprocess.run(
        [sys.executable, "-c", AGAIN], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == one.schedule.to_json().strip()


def test_without_time_pins_are_spread_and_no_other_schedule_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    priced, walked = list[Propagation](), descent.walked

    def noted(problem: SearchProblem, decisions: Propagation) -> Walk:
        priced.append(decisions)
        return walked(problem, decisions)

    monkeypatch.setattr(descent, "walked", noted)
    args = models.block_args(1, 4, 64, 128, 4)
    pins = [rd.along("a", {"x": 0, "y": 0})]
    found = rd.search(models.block_step, args, {"a": 2, "b": 2}, machine="gpu", limit=0, pins=pins)[0]
    forms = {value.name: str(value.type) for value in found.program.inputs}
    assert (forms["x"], forms["y"]) == ("[2{a}4, 64, 128]",) * 2
    assert 0 < found.bound <= found.seconds
    assert not found.result.complete
    assert len(priced) == 1


def test_a_limit_holds_in_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by one each time that it is read: wherever the time runs out, there is a schedule."""
    args = ([models.form(64, 256), models.form(256, 64)], models.form(512, 64))
    prices = []
    for steps in (1, 10, 30, 100, 300, 100000):
        asked = itertools.count()
        monkeypatch.setattr(time, "monotonic", lambda asked=asked: float(next(asked)))
        found = rd.search(models.chain, args, {"a": 2, "b": 2}, machine="gpu", limit=steps)[0]
        monkeypatch.undo()
        assert found.bound <= found.seconds
        assert found.seconds == pytest.approx(found.result.price, rel=2e-3)
        prices.append(found.seconds)
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > prices[-1]


def test_little_time_gives_something() -> None:
    args = models.block_args(1, 4, 64, 128, 4)
    found = rd.search(models.block_step, args, {"a": 2, "b": 2}, machine="gpu", limit=0.01)[0]
    assert found.seconds >= found.bound * (1 - 1e-3)


def test_bytes_alone_do_not_run_everything_everywhere() -> None:
    fast, few = (rd.search(product, ROW, {"d": 4}, machine="tpu", objective=what)[0] for what in ("seconds", "bytes"))
    assert few.received_bytes == 0
    assert all(op.parts[0].cut.axes == ("d",) for op in few.program.ops if hasattr(op, "parts"))
    assert fast.seconds <= few.seconds


def mlp(params: Any, x: Any) -> Any:
    for w in params:
        x = jnp.maximum(x @ w, 0)
    return x


def step(params: Any, x: Any) -> Any:
    grads = jax.grad(lambda p: jnp.sum(mlp(p, x)))(params)
    return jax.tree.map(lambda p, g: p - g, params, grads)


def test_a_number_of_devices_is_meshes_and_pipelines() -> None:
    args = ([np.ones((8, 8), np.float32)] * 2, np.ones((8, 8), np.float32))
    best = rd.search(step, args, devices=4, pipeline=True, batch={"x": 0}, microbatches=(2, 2), machine="v100")
    names = [one.name for one in best]
    assert {"{a:4}", "{a:2, b:2}", "data 4", "data 2, pipeline 2, microbatches 2"} <= {*names}
    assert [one.seconds for one in best] == sorted(one.seconds for one in best)
    assert best.table(2).count("\n") == 4
    wanted = step(*args)
    for name in ("{a:4}", "data 2, pipeline 2, microbatches 2"):
        one = best[names.index(name)]
        for a, b in zip(jax.tree.leaves(one.distributed(*args)), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_array_equal(a, b)
    assert best[0].measure(args, repeats=1).seconds > 0


@pytest.mark.parametrize(
    ("devices", "layouts", "tensor"),
    [
        (2, [rd.Layout(1, 1, 2, 2)], "tensor 2"),
        pytest.param(
            4,
            [rd.Layout(1, 1, 4, 2), rd.Layout(2, 1, 2, 2)],
            "tensor 2, pipeline 2, microbatches 2",
            marks=pytest.mark.long,
        ),
    ],
    ids=["2", "4"],
)
def test_stages_of_a_search_take_runs_of_the_layers_that_are_scanned(
    devices: int, layouts: list[rd.Layout], tensor: str
) -> None:
    """As those of `rd.pipeline`: a loop each, and the weights of its layers alone."""
    args, scanned = args_of(4), momentum(deep)
    options: Any = {"pipeline": True, "batch": BATCH, "microbatches": (2, 2), "machine": "v100"}
    results = {one.name: one for one in rd.search(scanned, args, devices=devices, **options)}
    wanted = jax.jit(scanned)(*args)
    for layout in layouts:
        one = results[layout.in_words]
        same = rd.pipeline(scanned, args, BATCH, layout, machine=machine("v100").links)
        assert to_text(one.program) == to_text(same.program)
        assert not one.distributed.unrolled
        for a, b in zip(jax.tree.leaves(one.distributed(*args)), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
    with_parts = results[tensor].distributed
    assert not with_parts.unrolled
    for a, b in zip(jax.tree.leaves(with_parts(*args)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_meshes_of_a_number_of_devices_are_its_factorisations() -> None:
    """In every order where some links are slower, since then it counts."""
    links = LatencyBandwidth.from_json(machine("v100").links.to_json())
    apart = replace(machine("v100"), links=replace(links, slow_bandwidth=1e9, devices_per_host=2))
    shapes = [tuple(axis.size for axis in mesh.axes) for mesh in meshes_of(12, machine("v100"))]
    assert shapes == [(12,), (2, 6), (2, 2, 3), (3, 4)]
    every = {(12,), (2, 6), (6, 2), (3, 4), (4, 3), (2, 2, 3), (2, 3, 2), (3, 2, 2)}
    assert {tuple(axis.size for axis in mesh.axes) for mesh in meshes_of(12, apart)} == every


def test_what_goes_on_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda bar, task, description: said.append(description))
    rd.search(product, ROW, {"d": 4}, machine="gpu", progress=True)
    assert said[0].startswith("{d:4}, ") and said[0].endswith(" bytes on a device")
    del said[:]
    rd.search(product, ROW, {"d": 4}, machine="gpu", progress=False)
    assert not said


def test_a_picture_of_what_was_found(tmp_path: Path) -> None:
    found = rd.search(product, ROW, {"d": 4}, machine="gpu")[0]
    assert isinstance(found, Candidate)
    assert found.picture(tmp_path / "found.svg").read_text().count("dot_general") >= 1


def test_stages_as_even_as_can_be() -> None:
    work = np.array([5.0, 1, 1, 1, 1, 5, 2])
    done, sent = np.concatenate([[0.0], work.cumsum()]), np.array([0.0, 0, 9, 0, 0, 0, 0, 0])
    cuts = even(done, sent, 3)
    longest = max(done[b] - done[a] + sent[b] for a, b in zip([0, *cuts], [*cuts, 7], strict=True))
    every = [
        max(done[b] - done[a] + sent[b] for a, b in ((0, i), (i, j), (j, 7)))
        for i in range(1, 6) for j in range(i + 1, 7)
    ]  # fmt: skip
    assert longest == min(every) == 7


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({}, ProgramError, "give either a mesh, or a number of devices"),
        ({"mesh": {"d": 2}, "devices": 2}, ProgramError, "give either a mesh, or a number of devices"),
        (
            {"devices": 2, "pins": rd.along("d", {"x": 0})},
            ProgramError,
            "a number of devices has none; give a mesh",
        ),
        (
            {"devices": 2, "pipeline": True},
            ProgramError,
            "a pipeline needs devices=, and batch=, the arguments with examples",
        ),
        ({"mesh": {"d": 2}, "pins": rd.along("e", {"x": 0})}, CutError, "has no axis 'e'"),
        ({"mesh": {"d": 2}, "pins": [3]}, CutError, "3 is no tactic"),
        (
            {"mesh": {"d": 2}, "pins": [rd.along("d", {"x": 0}), rd.along("d", {"x": 1})]},
            CutError,
            "array 'x': axis 'd' is to cut both dimension 0 and dimension 1; name one of them",
        ),
        ({"mesh": {"d": 2}, "state": {"w": 1}}, ProgramError, "there is no result 1"),
        ({"mesh": {"d": 2}, "state": {"w": 0}}, ProgramError, "result 0 has the shapes [(64, 256)]"),
    ],
)
def test_what_makes_no_sense(options: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind) as caught:
        rd.search(product, ROW, **options)
    assert says in str(caught.value)


def test_pins_that_leave_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is stored in one way can be moved to another; a solver that finds no choice is no timeout."""
    monkeypatch.setattr(descent, "solved", lambda *_: Solution(None, math.inf, feasible=False, optimal=False))
    with pytest.raises(ProgramError) as caught:
        rd.search(product, ROW, {"d": 4}, in_shardings=("[64, 64{d}256]", "[256, 64{d}256]"))
    assert str(caught.value) == "nothing was found along axis 'd'; loosen the pins"


def test_a_schedule_of_another_function() -> None:
    schedule = rd.search(product, ROW, {"d": 4}, machine="gpu").schedule
    assert "argument or operation" in str(schedule)
    with pytest.raises(CutError, match=exactly("the schedule is for the mesh {d:4}, and not for {d:2}")):
        rd.distribute(product, ROW, {"d": 2}, schedule=schedule)
    with pytest.raises(CutError, match=exactly("array 'x': the schedule is of a function of other arguments")):
        rd.distribute(product, (ROW[1], ROW[1]), {"d": 4}, schedule=schedule)
    with pytest.raises(
        CutError,
        match=exactly("operation 'dot_general': there is no such operation: the schedule is of another function"),
    ):
        rd.distribute(lambda x, w: x + w, (ROW[1], ROW[1]), {"d": 4}, schedule=schedule)
    with pytest.raises(
        CutError,
        match=exactly(
            "the text is no schedule: its format is no redistrib-schedule of version 1; `redistrib "
            "search -o` and `to_json` write one"
        ),
    ):
        Schedule.from_json("{}")


def case() -> Any:
    return product, *ROW


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schedule.json"
    target = f"{__name__}:case"
    assert main(["search", target, "--devices", "4", "--machine", "gpu", "-o", str(file)]) == 0
    out = capsys.readouterr().out
    assert "2 candidates on gpu" in out
    assert "what mattered" in out
    assert Schedule.from_json(file.read_text()).mesh.size == 4
    assert main(["search", target, "--mesh", "d=4", "--state", "w"]) == 2
    assert "write it as argument=number" in capsys.readouterr().err


def test_the_best_candidates_are_run_and_ranked(tmp_path: Path) -> None:
    args = ([np.ones((8, 8), np.float32)] * 2, np.ones((8, 8), np.float32))
    best = rd.search(step, args, devices=4, machine="cpu")
    ranking = best.measure(top=2, repeats=3, progress=False)
    assert [run[1] for run in sorted(ranking.runs, key=lambda run: run[1])] == [1, 2]
    for name, place, predicted, ran in ranking.runs:
        assert (name, predicted) == (best[place - 1].name, best[place - 1].seconds)
        assert len(ran.each) == 3
        assert min(ran.each) <= ran.seconds <= max(ran.each)
    seconds = [run[3].seconds for run in ranking.runs]
    assert seconds == sorted(seconds)
    lines = str(ranking).splitlines()
    assert lines[0].strip() == "2 candidates run, predicted for cpu"
    assert ranking.picture(tmp_path / "top.png").stat().st_size > 1000
    assert len(best.measure(args, top=99, repeats=1).runs) == len(best)


def test_the_command_runs_the_best_of_them(tmp_path: Path) -> None:
    text = "import numpy as np\ndef case():\n    return (lambda x: x @ x), np.ones((8, 8), np.float32)\n"
    (tmp_path / "small.py").write_text(text)
    hidden = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | {"JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = str(Path(rd.__file__).parents[1])
    command = [sys.executable, "-m", "redistrib", "search", "small:case", "--devices", "4", "--machine", "cpu"]
    asked = [*command, "--measure", "2", "--picture", "top.png"]
    done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert "2 candidates run, predicted for cpu" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "top.png").stat().st_size
    asked = [*command, "--picture", "top.png"]
    done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "say how many candidates with --measure 10" in done.stderr


def test_numbers_of_candidates_beside_each_other_can_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    runs = ((6.0, 21.5), (6.0, 22.6), (20.0, 259.0))
    Ranking("cpu", tuple(("", 0, predicted, Measured(ran, (ran,))) for predicted, ran in runs)).picture(tmp_path / "a")
    (figure,) = drawn
    FigureCanvasAgg(figure).draw()
    boxes = [text.get_window_extent().padded(2) for text in figure.axes[0].texts]
    assert len(boxes) == 3
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_rank_correlation_is_of_predicted_and_measured() -> None:
    def of(*pairs: tuple[float, float]) -> Ranking:
        return Ranking("cpu", tuple(("", 0, predicted, Measured(ran, (ran,))) for predicted, ran in pairs))

    assert of((1.0, 10.0), (2.0, 20.0), (3.0, 21.0)).correlation == pytest.approx(1.0)
    assert of((3.0, 10.0), (2.0, 20.0), (1.0, 21.0)).correlation == pytest.approx(-1.0)
    assert "rank correlation 1.00" in str(of((1.0, 10.0), (2.0, 20.0)))
    for alone in (of((1.0, 2.0)), of((1.0, 2.0), (1.0, 3.0))):
        assert np.isnan(alone.correlation)
        assert "correlation" not in str(alone)


def test_what_cannot_be_run_is_not_measured() -> None:
    shapes = jax.ShapeDtypeStruct((8, 8), np.float32)
    best = rd.search(lambda x: x @ x, (shapes,), devices=4, machine="cpu")
    with pytest.raises(ProgramError, match="shapes cannot be run; give measure"):
        best.measure()
    with pytest.raises(ProgramError, match="top is 0; give a positive number"):
        best.measure((np.ones((8, 8), np.float32),), top=0)
