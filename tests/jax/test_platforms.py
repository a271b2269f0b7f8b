"""Other platforms than CPUs plan and lower the same without `backends/jax/xla_cpu` and half-duplex links."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.backends.jax import context, move, platforms, private, xla_cpu
from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.xla_cpu import quirks
from redistrib.cost.presets import PRESETS
from redistrib.synthesis import groups
from redistrib.theory.topology import Topology
from tests.jax.without_xla_cpu import MADE, MESH, PROBLEMS, cases, programs, texts


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds on bytes that the arrays of this file exceed."""
    monkeypatch.setattr(quirks, "ONE_PROCESS", replace(quirks.ONE_PROCESS, chunk=1 << 12))


@pytest.mark.parametrize("part", MADE)
def test_accelerators_get_the_same_where_the_folder_of_xla_cpu_is_gone(tmp_path: Path, part: str) -> None:
    package = Path(rd.__file__).parent
    shutil.copytree(package, tmp_path / "redistrib", ignore=shutil.ignore_patterns("xla_cpu", "__pycache__"))
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    command = [sys.executable, "-P", "-m", "tests.jax.without_xla_cpu", part]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, text=True, **pipes) as without:
        found = MADE[part]()
        output, errors = without.communicate()
    assert without.returncode == 0, errors
    assert json.loads(output) == found


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
        return [rd.synthesize(*problem, machine=preset, topology=HOSTS).to_json() for problem in problems]

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
        rd.synthesize(*SWAPPED, machine=model, topology=HOSTS)


@pytest.mark.usefixtures("small_bounds")
def test_virtual_cpu_devices_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would say nothing."""
    programs = texts("cpu")
    monkeypatch.setattr(platforms, "quirks_of", lambda platform, processes=1: Quirks())
    differing = {case[0] for case, a, b in zip(cases(), programs, texts("cpu"), strict=True) if a != b}
    assert {"all-gather", "all-to-all"} <= differing


def test_trees_on_virtual_cpu_devices_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first test would say nothing of them."""
    here = programs("cpu")
    monkeypatch.setattr(platforms, "quirks_of", lambda platform, processes=1: Quirks())
    plain = programs("cpu")
    assert all(len(several) >= 2 for several in plain.values()), plain
    assert {"several_leaves", "in_parts"} <= {name for name, several in plain.items() if several != here[name]}


def test_no_other_file_asks_for_the_platform_of_virtual_devices() -> None:
    package = Path(rd.__file__).parent
    may = {Path(platforms.__file__), package / "explain" / "profiling" / "compare.py"}  # the door, and what makes them
    rooms = ("backends/jax", "resharding", "explain", "weights", *(f"programs/{k}" for k in ("rules", "run", "stages")))
    for room in rooms:
        for file in (package / room).rglob("*.py"):
            if file.parent != Path(xla_cpu.__file__).parent and file not in may:
                nodes = ast.walk(ast.parse(file.read_text()))
                assert not any(isinstance(node, ast.Constant) and node.value in ("cpu", "tpu") for node in nodes), file


def test_only_launches_with_small_tiles_are_not_optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one process of virtual devices alone."""
    told: list[dict[str, Any]] = []

    def compiled_with(lowered: Any, options: dict[str, Any]) -> Any:
        told.append(options)
        return private.compiled_with(lowered, options)

    monkeypatch.setattr(move, "compiled_with", compiled_with)
    mesh = jax.make_mesh((8,), ("x",))
    source, target = (NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec(None, "x")))
    for rows in (512, 520):  # 128 KiB of source tile per device, and more
        rd.clear_caches()
        rd.reshard(jax.device_put(np.zeros((rows, 512), np.float32), source), target)
    assert told == [{"xla_backend_optimization_level": 0}, {}]
    assert platforms.quirks_of("gpu").compiler_options(1) == {}


@pytest.mark.parametrize(("processes", "piecewise"), [(1, True), (8, True)])
def test_programs_of_a_plan_get_the_quirks_of_their_processes(processes: int, piecewise: bool) -> None:
    plan = rd.synthesize(*PROBLEMS["all-to-all"], MESH)
    mesh = plan.source_mesh
    names, sizes = tuple(axis.name for axis in mesh.axes), tuple(axis.size for axis in mesh.axes)
    for name in ("cpu", "gpu"):
        platform = Platform(name, tuple(k * processes // 8 for k in range(8)))
        found = context.context_of(plan, names, sizes, tuple(range(8)), None, platform)
        assert found.quirks == platforms.quirks_of(name, processes)
        assert found.quirks.piecewise == (piecewise and name == "cpu")
