"""Other platforms than CPUs plan and lower the same without `backends/jax/xla_cpu` and half-duplex links."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.backends.jax import adding, context, execute, private, profiling, xla_cpu
from redistrib.backends.jax.buckets import compiled
from redistrib.backends.jax.context import Platform
from redistrib.backends.jax.xla_cpu import half_duplex, quirks
from redistrib.backends.jax.xla_cpu.quirks import Quirks
from redistrib.cost.presets import PRESETS
from redistrib.plans.plan import Plan
from redistrib.synthesis import groups
from redistrib.theory.topology import Topology
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
        traced = jax.jit(move._move.run).trace(argument)
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
    monkeypatch.setattr(quirks, "ONE_PROCESS", replace(quirks.ONE_PROCESS, chunk=1 << 12))


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_other_platforms_get_the_same_without_the_quirks(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = texts(platform)
    monkeypatch.setattr(context, "quirks_of", lambda platform, processes=1: Quirks())
    monkeypatch.setattr(context, "has_ragged_all_to_all", lambda platform: True)
    monkeypatch.setattr(adding, "has_reliable_reduce_scatter", lambda platform: True)
    for name in ("HalfDuplexLinks", "two_turns", "relayed"):
        monkeypatch.setattr(half_duplex, name, deleted)
    rd.clear_caches()
    assert texts(platform) == programs


def deleted(*_: object) -> None:
    """Stands for a function that is gone."""
    raise AssertionError("half-duplex schedules belong to profiles that ask for them")


HOSTS = Topology.of("aabbccdd")
SWAPPED = ("[64{y}128, 128]", "[64{z}128, 128]", "x=2,y=2,z=2")  # where senders can be chosen
SLOW_SWAPS = replace(PRESETS["gpu"], name="half duplex", swap_bandwidth=25e9)


@pytest.mark.parametrize("preset", ["gpu", "tpu"])
def test_other_presets_plan_the_same_without_half_duplex_links(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On hosts, whose links the profile of CPUs takes for half duplex."""
    problems = [(*ends, MESH) for ends in PROBLEMS.values()] + [SWAPPED]

    def plans() -> list[str]:
        return [rd.synthesize(*problem, cost_model=preset, topology=HOSTS).to_json() for problem in problems]

    before = plans()
    monkeypatch.setattr(groups, "without_swaps", deleted)
    assert plans() == before
    monkeypatch.setitem(PRESETS, preset, replace(PRESETS[preset], swap_bandwidth=1e12))  # no slower than one way alone
    assert plans() == before


@pytest.mark.parametrize("model", ["cpu", SLOW_SWAPS])
def test_profiles_of_slow_swaps_do_not(model: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would say nothing."""
    monkeypatch.setattr(groups, "without_swaps", deleted)
    with pytest.raises(AssertionError, match=r"^half-duplex schedules belong to profiles that ask for them$"):
        rd.synthesize(*SWAPPED, cost_model=model, topology=HOSTS)


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
            if file.parent != Path(xla_cpu.__file__).parent and file != makes_virtual_devices:
                nodes = ast.walk(ast.parse(file.read_text()))
                assert not any(isinstance(node, ast.Constant) and node.value == "cpu" for node in nodes), file


def test_only_launches_with_small_tiles_are_not_optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one process of virtual devices alone."""
    told: list[dict[str, Any]] = []

    def compiled_with(lowered: Any, options: dict[str, Any]) -> Any:
        told.append(options)
        return private.compiled_with(lowered, options)

    monkeypatch.setattr(compiled, "compiled_with", compiled_with)
    mesh = jax.make_mesh((8,), ("x",))
    source, target = (NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec(None, "x")))
    for rows in (512, 520):  # 128 KiB of source tile per device, and more
        rd.clear_caches()
        rd.reshard(jax.device_put(np.zeros((rows, 512), np.float32), source), target)
    assert told == [{"xla_backend_optimization_level": 0}, {}]
    assert quirks.quirks_of("gpu").compiler_options(1) == {}


@pytest.mark.parametrize(("processes", "piecewise"), [(1, True), (8, True)])
def test_programs_of_a_plan_get_the_quirks_of_their_processes(processes: int, piecewise: bool) -> None:
    plan = rd.synthesize(*PROBLEMS["all-to-all"], MESH)
    mesh = plan.source_mesh
    names, sizes = tuple(axis.name for axis in mesh.axes), tuple(axis.size for axis in mesh.axes)
    for name in ("cpu", "gpu"):
        platform = Platform(name, tuple(k * processes // 8 for k in range(8)))
        found = context.context_of(plan, names, sizes, tuple(range(8)), None, platform)
        assert found.quirks == quirks.quirks_of(name, processes)
        assert found.quirks.piecewise == (piecewise and name == "cpu")
