"""Plans and lowered programs for accelerators, as text; `python -m tests.jax.without_xla_cpu` prints them as JSON."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace

import jax
import pytest

import redistrib as rd
from redistrib.backends.jax import execute, platforms
from redistrib.backends.jax.platforms import Platform
from redistrib.cost.presets import PRESETS
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
    return rd.synthesize(source, target, MESH, machine=preset)


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


def made() -> dict[str, list[str]]:
    """What is made for GPUs and TPUs: every plan by every preset that is not the CPUs', and every lowered program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platforms, "TPU", replace(platforms.TPU, chunk=1 << 12))  # a bound that the arrays exceed
        programs = {platform: texts(platform) for platform in LOWERED_AS}
    plans = {name: [plan_for(problem, name).to_json() for problem in PROBLEMS] for name in PRESETS if name != "cpu"}
    return {f"plans: {name}": found for name, found in plans.items()} | programs


if __name__ == "__main__":
    assert importlib.util.find_spec("redistrib.backends.jax.xla_cpu") is None, "the folder is to be gone"
    print(json.dumps(made()))
