"""Plans and lowered programs for accelerators, as text.

`python -m tests.jax.without_xla_cpu presets`, or `chips`, prints them as JSON, where the folder of XLA:CPU is gone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import execute, move, platforms
from redistrib.backends.jax.move import CompiledMove
from redistrib.backends.jax.platforms import Platform
from redistrib.cost.presets import MODELS
from redistrib.launches import buckets
from redistrib.plans.plan import Plan
from tests.jax.running import jax_mesh
from tests.synthesis.kept_plans import Call, kept, plan_of

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
NO_CHIPS = {"paper", "exact", "cpu", "gloo", *LOWERED_AS}
PART = 1 << 14  # bytes of tiles in a launch, here


# ------------------------------------------------------------------------------------------------------- plans


def plan_for(problem: str, preset: str) -> Plan:
    source, target = PROBLEMS[problem]
    return rd.synthesize(source, target, MESH, machine=preset)


def calls() -> list[Call]:
    """Forty kept calls: uneven, of partial sums, under a memory limit, on hosts or a torus, and others."""
    rng, chosen = random.Random(36), list[Call]()
    fit = [call for call, was in kept() if was.get("steps") and math.prod(size for _, size in call["mesh"][0]) <= 10]
    for is_fit in (
        lambda call: "~" in call["source"] + call["target"] or "^" in call["source"] + call["target"],
        lambda call: any(kind in call["source"] + call["target"] for kind in (" sum{", " max{", " min{")),
        lambda call: "memory_limit" in call,
        lambda call: "topology" in call or "torus" in call,
        lambda call: True,
    ):
        some = [call for call in fit if is_fit(call) and call not in chosen]
        chosen += rng.sample(some, 8)
    return chosen


def planned(machine: str) -> list[str]:
    """The plans of a machine: a digest of each, or why there is none."""
    told = []
    for call in calls():
        try:
            text = plan_of({**call, "cost_model": machine}).to_json()
        except rd.errors.RedistribError as error:
            text = f"{type(error).__name__}: {error}"
        told.append(hashlib.sha256(text.encode()).hexdigest())
    return told + [plan_for(problem, machine).to_json() for problem in PROBLEMS]


# ------------------------------------------------------------------------------------------ programs of one plan


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


# ------------------------------------------------------------------------------------------- programs of a tree


class _JaxFor:
    """JAX, whose `jit` lowers for a platform."""

    def __init__(self, platform: str) -> None:
        self._platforms = (LOWERED_AS.get(platform, platform),)

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)

    def jit(self, function: Callable[..., Any], **options: Any) -> Any:
        jitted, platforms = jax.jit(function, **options), self._platforms

        class Jitted:
            @staticmethod
            def lower(*args: Any) -> Any:
                return jitted.trace(*args).lower(lowering_platforms=platforms)

        return Jitted


def _array(shape: tuple[int, ...], dtype: Any, mesh: Mesh, *spec: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def several_leaves(mesh: Mesh, platform: str) -> None:
    """Buckets of leaves of several types and sizes: coalesced, side by side, and each by itself."""
    tree = {f"small {k}": _array((8 * max(k, 2), 16), jnp.float32, mesh, "x") for k in range(5)}
    tree |= {f"half {k}": _array((64, 32), jnp.bfloat16, mesh, ("x", "y")) for k in range(4)}
    tree |= {"bytes": _array((64, 8), jnp.int8, mesh, "y"), "flags": _array((32, 8), jnp.bool, mesh, "x", "y")}
    there = {"small": P(), "half": P(None, ("x", "y")), "bytes": P("x"), "flags": P(("y", "x"))}
    targets = {name: NamedSharding(mesh, there[name.split()[0]]) for name in tree}
    for options in ({}, {"donate": True}, {"memory_limit": "1 MiB", "donate": True}):
        rd.reshard_plan(tree, targets, machine=platform, **options)


def in_parts(mesh: Mesh, platform: str) -> None:
    """A large leaf to other devices."""
    low, high = (Mesh(side, ("z",)) for side in mesh.devices)
    for dtype in (jnp.float32, jnp.bfloat16):
        array = _array((192, 192), dtype, low, "z")
        plan = rd.reshard_plan(array, NamedSharding(high, P(None, "z")), machine=platform)
        assert plan.batches[0].parts[0][1].times > 1


def between_meshes(mesh: Mesh, platform: str) -> None:
    """Between meshes of other axes, orders and devices, by launches."""
    everyone = mesh.devices.ravel()
    turned = Mesh(everyone[::-1].reshape(4, 2), ("a", "b"))
    six = Mesh(everyone[2:].reshape(3, 2), ("a", "b"))
    tree = {"w": _array((48, 24), jnp.float32, mesh, "x", "y"), "b": _array((24,), jnp.float16, mesh, "y")}
    for other in (turned, six):
        rd.reshard_plan(
            tree, {"w": NamedSharding(other, P("b", "a")), "b": NamedSharding(other, P())}, machine=platform
        )


def through_a_function(mesh: Mesh, platform: str) -> None:
    """What packs, exchanges and unpacks with a function on the way."""
    low, high = (Mesh(side, ("z",)) for side in mesh.devices)
    tree = {name: _array((16, 24), jnp.float32, low, "z") for name in "qkv"} | {"s": _array((), jnp.float32, low)}
    weights = np.arange(24, dtype=np.float32)

    def fused(tree: dict[str, jax.Array]) -> jax.Array:
        return (jnp.concatenate([tree["q"] * tree["s"], tree["k"], tree["v"].T.T * weights], 1)).astype(jnp.bfloat16)

    for function, spec in ((fused, P(None, "z")), (lambda tree: tree["q"].T + tree["k"].T, P("z"))):
        rd.reshard_plan(tree, NamedSharding(high, spec), through=function)


TREES = (several_leaves, in_parts, between_meshes, through_a_function)


def programs(platform: str) -> dict[str, list[str]]:
    """The programs of trees as StableHLO, as they would be made on devices of a platform; none is compiled."""
    for name in ("entry", "through.prepared"):
        import_module(f"redistrib.resharding.{name}")  # first, or it would bind what is patched in for ever
    found: dict[str, list[str]] = {}
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    with pytest.MonkeyPatch.context() as patch:
        quirks_of = platforms.quirks_of
        for module in [each for name, each in sys.modules.items() if name.startswith("redistrib.")]:
            if hasattr(module, "quirks_of"):
                patch.setattr(module, "quirks_of", lambda _, processes=1: quirks_of(platform, processes))
        patch.setattr(buckets, "BUCKET_BYTES", PART)
        patch.setattr(move, "jax", _JaxFor(platform))
        patch.setattr(CompiledMove, "compile", lambda self, options=None: told.append(self.text) or self)
        for name, value in {"added_bytes": 0, "scratch_bytes": 0, "hlo": ""}.items():
            patch.setattr(CompiledMove, name, value)
        for tree in TREES:
            told: list[str] = []
            rd.clear_caches()
            tree(mesh, platform)
            found[tree.__name__] = sorted(told)  # programs may be lowered at the same time
        rd.clear_caches()
        patch.setattr(Platform, "of", classmethod(lambda cls, mesh: Platform(platform)))
        found["under jit"] = list(_under_jit(mesh, platform))
    rd.clear_caches()
    return found


def _under_jit(mesh: Mesh, platform: str) -> Iterator[str]:
    """Moves inside a function: on one mesh, and across two."""
    other = Mesh(mesh.devices.reshape(4, 2), ("a", "b"))
    source = NamedSharding(mesh, P("x", "y"))
    for target in (NamedSharding(mesh, P("y", "x")), NamedSharding(other, P("b", "a")), NamedSharding(other, P())):

        def moved(array: jax.Array, target: NamedSharding = target) -> jax.Array:
            return rd.reshard(array, target, source=source, machine=platform)

        traced = jax.jit(moved).trace(_array((128, 128), jnp.float32, mesh, "x", "y"))
        yield str(traced.lower(lowering_platforms=(LOWERED_AS.get(platform, platform),)).as_text())


def presets() -> dict[str, list[str]]:
    """The plans of both presets, and every lowered program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platforms, "TPU", replace(platforms.TPU, chunk=1 << 12))  # a bound that the arrays exceed
        found = {platform: texts(platform) for platform in LOWERED_AS}
        for platform in LOWERED_AS:
            found |= {f"{platform}, {name}": several for name, several in programs(platform).items()}
    return found | {f"plans: {name}": planned(name) for name in LOWERED_AS}


def chips() -> dict[str, list[str]]:
    """The plans of every chip."""
    return {f"plans: {name}": planned(name) for name in MODELS if name not in NO_CHIPS}


MADE = {"presets": presets, "chips": chips}


if __name__ == "__main__":
    assert importlib.util.find_spec("redistrib.backends.jax.xla_cpu") is None, "the folder is to be gone"
    print(json.dumps(MADE[sys.argv[1]]()))
