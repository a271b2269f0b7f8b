"""Seconds of one call of `synthesize`, problem by problem, with parsing, search, lowering and verification.

`python -m bench planning` runs these tests and saves their figures for the report; by hand, `pytest
bench/test_planning.py`. Every round plans another problem, and all problems are planned `PASSES` times. A problem's
figure is its fastest pass, as other processes slow some passes; medians, percentiles and the worst are over problems.
"""

from __future__ import annotations

import random
import resource
from typing import Any

import pytest

import redistrib as rd
from bench.problems import Problem, draw, problem_set
from redistrib.lang.mesh import Mesh

pytestmark = pytest.mark.benchmark(warmup=False)

PASSES = 3
MESHES = ((16, 16, 16), (8, 8, 8, 8), (4,) * 6, (2,) * 12, (64, 64))  # 4,096 devices each
WAYS: dict[str, dict[str, str]] = {"default": {}, "exact": {"machine": "exact"}, "paper": {"algorithm": "paper"}}


def measure(benchmark: Any, problems: list[Problem], way: str) -> None:
    """One round per problem and pass, in order, after five calls that are not counted."""
    work = [(p.source, p.target, Mesh.of(p.axes)) for p in problems]
    for problem in work[:5]:
        rd.synthesize(*problem, **WAYS[way])
    ahead = iter(work * PASSES)
    benchmark.pedantic(
        lambda *problem: rd.synthesize(*problem, **WAYS[way]),
        setup=lambda: (next(ahead), {}),
        rounds=len(work) * PASSES,
        iterations=1,
    )
    benchmark.extra_info["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["U222", "H222"])
def test_8_devices(benchmark: Any, name: str, way: str) -> None:
    measure(benchmark, problem_set(name, count=300), way)


@pytest.mark.parametrize("way", WAYS)
def test_4096_devices_of_rank_6(benchmark: Any, way: str) -> None:
    rng = random.Random(1)
    measure(
        benchmark, [draw(rng, "rank 6", mesh, "U", small_dimensions=True, ranks=(6, 6)) for mesh in MESHES * 12], way
    )


@pytest.mark.parametrize("way", WAYS)
def test_65536_devices(benchmark: Any, way: str) -> None:
    rng = random.Random(1)
    meshes = [(64, 32, 32), (256, 256), (16,) * 4]
    measure(benchmark, [draw(rng, "large", mesh, "U", small_dimensions=True, ranks=(2, 4)) for mesh in meshes * 3], way)
