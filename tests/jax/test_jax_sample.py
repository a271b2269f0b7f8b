"""Redistributions on 8, 12 and 24 devices, two thousand in all: every element, and every collective of the program.

Compiling dominates, so plans whose larger tiles are equal are compiled together, some dozens to a program. The program
must hold the collectives of its plans and no others, and no array of data larger than that tile.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator

import jax
import numpy as np
import pytest

import redistrib as rd
from redistrib.backends.jax.sharding import named_sharding
from redistrib.explain.profiling.compare import mesh_for, wrong_elements
from redistrib.explain.profiling.inspect import inspect
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Exchange

MESHES = {
    8: ({"a": 2, "b": 2, "c": 2}, {"a": 4, "b": 2}, {"a": 8}),
    12: ({"a": 3, "b": 4}, {"a": 2, "b": 3, "c": 2}, {"a": 12}),
    24: ({"a": 4, "b": 6}, {"a": 2, "b": 3, "c": 4}),
}
PER_DEVICES = {8: 1000, 12: 600, 24: 420}
SOME = {8: 160, 12: 80, 24: 140}  # of these, in the long tests
TOGETHER = 40
KINDS = {
    AllGather: "all-gather",
    AllToAll: "all-to-all",
    AllPermute: "collective-permute",
    Exchange: "collective-permute",
}


def draw_type(rng: random.Random, axes: dict[str, int], shape: tuple[int, ...]) -> str:
    """A type that cuts each dimension by axes drawn at random, replicated along the others."""
    cuts: list[list[str]] = [[] for _ in shape]
    for name in axes:
        choice = rng.randrange(len(shape) + 1)
        if choice:
            cuts[choice - 1].append(name)
    for cut in cuts:
        rng.shuffle(cut)
    dims = [
        f"{size // math.prod(axes[name] for name in cut)}{{{','.join(cut)}}}{size}"
        for size, cut in zip(shape, cuts, strict=True)
    ]
    return f"[{', '.join(dims)}]"


def batches(devices: int, algorithm: str, count: int) -> Iterator[tuple[dict[str, int], list[rd.Plan]]]:
    """Plans of distinct problems, grouped by mesh and larger tile."""
    rng = random.Random(f"{devices} {algorithm}")
    wanted = count // 2
    grouped: dict[tuple[int, int], list[rd.Plan]] = defaultdict(list)
    seen = set()
    while len(seen) < wanted:
        number = rng.randrange(len(MESHES[devices]))
        axes = MESHES[devices][number]
        shape = (devices,) * rng.randint(1, 3)
        problem = (number, draw_type(rng, axes, shape), draw_type(rng, axes, shape))
        if problem in seen:
            continue
        seen.add(problem)
        model = "exact" if algorithm == "best" else "paper"
        plan = rd.synthesize(*problem[1:], axes, machine=model, algorithm=algorithm)
        tile = max(plan.before.tile_size, plan.after.tile_size)
        grouped[(number, tile)].append(plan)
    for (number, _), plans in grouped.items():
        for k in range(0, len(plans), TOGETHER):
            yield MESHES[devices][number], plans[k : k + TOGETHER]


def expected(plans: list[rd.Plan]) -> Counter[str]:
    """The collectives that the plans ask for."""
    counts: Counter[str] = Counter()
    for plan in plans:
        for step in plan.steps:
            if type(step) in KINDS:
                counts[KINDS[type(step)]] += step.collectives
    return +counts


@pytest.mark.parametrize("algorithm", ["best", "paper"])
@pytest.mark.parametrize(
    ("devices", "count"),
    [
        *(pytest.param(*each, marks=pytest.mark.long) for each in SOME.items()),
        *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in PER_DEVICES.items()),
    ],
)
def test_values_and_collectives(devices: int, count: int, algorithm: str) -> None:
    checked = 0
    for _, plans in batches(devices, algorithm, count):
        mesh = mesh_for(plans[0], jax.devices()[:devices])
        values = [np.arange(math.prod(p.shape), dtype=np.float32).reshape(p.shape) + k for k, p in enumerate(plans)]
        arrays = [
            jax.device_put(value, named_sharding(plan.source, plan.source_mesh, mesh))
            for value, plan in zip(values, plans, strict=True)
        ]
        moves = [rd.to_jax(plan, mesh) for plan in plans]
        program = (
            jax.jit(
                lambda *xs, moves=moves: tuple(move(x) for move, x in zip(moves, xs, strict=True)),
                out_shardings=tuple(move.target_sharding for move in moves),
            )
            .lower(*arrays)
            .compile()
        )
        for value, result in zip(values, program(*arrays), strict=True):
            assert wrong_elements(result, value) == 0
        compiled = inspect(program)
        assert compiled.kinds == expected(plans)
        assert compiled.received_bytes == 4 * sum(sum(plan.received) for plan in plans)
        largest = compiled.largest_array({"f32"})
        assert largest is not None
        assert largest.bytes <= 4 * max(plans[0].before.tile_size, plans[0].after.tile_size)
        checked += len(plans)
    assert checked == count // 2
