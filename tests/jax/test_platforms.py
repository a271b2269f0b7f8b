"""What only virtual CPU devices want lies in `xla_cpu`: without it, other platforms get the same programs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import pytest

import redistrib as rd
from redistrib.backends.jax import adding, context, execute, profiling, xla_cpu
from redistrib.backends.jax.context import Platform
from redistrib.backends.jax.xla_cpu import Quirks
from redistrib.plans.plan import Plan
from tests.jax.running import jax_mesh

MESH = "x=2,y=4"
PROBLEMS = {
    "slice": ("[64{x}128, 128]", "[16{y,x}128, 128]"),
    "all-gather": ("[128, 32{y}128]", "[128, 128]"),
    "all-to-all": ("[16{y,x}128, 128]", "[128, 16{y,x}128]"),
    "permute": ("[16{x,y}128, 128]", "[16{y,x}128, 128]"),
    "exchange": ("[4{x,y}32, 24]", "[32, 3{y,x}24]"),
    "sum": ("[128, 128] sum{x}", "[64{x}128, 128]"),
}
PROCESSES = {"one process": (), "two processes": (0,) * 4 + (1,) * 4}
LOWERED_AS = {"gpu": "cuda", "tpu": "tpu"}


def plan_for(problem: str, preset: str) -> Plan:
    source, target = PROBLEMS[problem]
    return rd.synthesize(source, target, MESH, cost_model=preset)


def lowered(plan: Plan, platform: str, processes: tuple[int, ...], schedule: str) -> str:
    """The program of a plan as StableHLO, as it would be made on devices of a platform."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Platform, "of", classmethod(lambda cls, mesh: Platform(platform, processes)))
        move = execute.to_jax(plan, jax_mesh(plan.source_mesh), schedule=schedule, stacked=bool(plan.source.partial))
        shape = move._ends[0].global_shape
        argument = jax.ShapeDtypeStruct(shape, plan.dtype, sharding=move.source_sharding)
        traced = jax.jit(move._mapped).trace(argument)
        return str(traced.lower(lowering_platforms=(LOWERED_AS.get(platform, platform),)).as_text())


def cases() -> Iterator[tuple[str, tuple[int, ...], str]]:
    for problem in PROBLEMS:
        for processes in PROCESSES.values():
            for schedule in ("overlap", "sequential"):
                yield problem, processes, schedule


def texts(platform: str) -> list[str]:
    return [lowered(plan_for(problem, platform), platform, *rest) for problem, *rest in cases()]


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds on bytes that the arrays of this file exceed."""
    monkeypatch.setattr(context, "TPU_CHUNK", 1 << 12)
    monkeypatch.setattr(xla_cpu, "ONE_PROCESS", replace(xla_cpu.ONE_PROCESS, chunk=1 << 12))


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_other_platforms_get_the_same_without_the_quirks(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [plan_for(problem, platform).to_json() for problem in PROBLEMS]
    programs = texts(platform)
    monkeypatch.setattr(context, "quirks_of", lambda platform, processes=1: Quirks())
    monkeypatch.setattr(context, "has_ragged_all_to_all", lambda platform: True)
    monkeypatch.setattr(adding, "has_reliable_reduce_scatter", lambda platform: True)
    rd.clear_caches()
    assert [plan_for(problem, platform).to_json() for problem in PROBLEMS] == plans
    assert texts(platform) == programs


@pytest.mark.usefixtures("small_bounds")
def test_virtual_cpu_devices_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would say nothing."""
    programs = texts("cpu")
    monkeypatch.setattr(context, "quirks_of", lambda platform, processes=1: Quirks())
    differing = {case[0] for case, a, b in zip(cases(), programs, texts("cpu"), strict=True) if a != b}
    assert {"all-gather", "all-to-all"} <= differing


def test_no_other_file_asks_for_the_platform_of_virtual_devices() -> None:
    package = Path(rd.__file__).parent
    makes_virtual_devices = Path(profiling.__file__).parent / "compare.py"
    for room in ("backends/jax", "resharding", "pipelines", "distribution"):
        for file in (package / room).rglob("*.py"):
            if file not in (Path(xla_cpu.__file__), makes_virtual_devices):
                nodes = ast.walk(ast.parse(file.read_text()))
                assert not any(isinstance(node, ast.Constant) and node.value == "cpu" for node in nodes), file
