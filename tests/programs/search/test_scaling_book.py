"""Where links bind a transformer's feed-forward block, beside the worked answers of "How to Scale Your Model", part 5.

The book (jax-ml.github.io/scaling-book/training) has a TPU v5p compute 4.59e14 operations in bfloat16 and receive
1.8e11 bytes a second along each axis of its torus: 2,550 operations for a byte. It leaves out latencies, local copies,
and the tile that a device has itself, so ours are a little stricter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import pytest

import redistrib as rd
from redistrib.lang.mesh import Mesh
from redistrib.programs.run.prepared import prepare
from redistrib.programs.search.evaluation import Evaluation, evaluated
from redistrib.programs.search.options import problem_of
from redistrib.programs.search.starting import propagated
from redistrib.programs.time.constants import machine

WIDTH, HIDDEN = 8192, 32768
DEVICES = 64
RATIO = 2550.0


def block(x: Any, up: Any, down: Any) -> Any:
    return (x @ up) @ down


def taken(tokens: int, devices: int, dims: int, pins: Any, results: Any) -> Evaluation:
    """What the forward pass takes where an axis lies on so many dimensions of the torus."""
    mesh = Mesh.of({"a": devices})
    shapes = ((tokens, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH))
    args = tuple(jax.ShapeDtypeStruct(shape, "bfloat16") for shape in shapes)
    given = prepare(block, args, mesh, None, results, None)
    on = machine("v5p")
    on = replace(on, links=replace(on.links, axis_bandwidth={"a": dims * 180e9}))  # type: ignore[type-var]
    problem = problem_of(given, mesh, pins, {}, on, "seconds")
    return evaluated(problem, propagated(problem, ["a"]))


def is_bound(tokens: int, devices: int, dims: int, pins: Any, results: Any) -> bool:
    """Whether moves take longer than products."""
    found = taken(tokens, devices, dims, pins, results)
    assert found.received > 0
    return found.moving > found.seconds - found.moving


FSDP = [rd.along("a", {"x": 0}), rd.along("a", {"up": 0, "down": 0})]
TENSOR = [rd.along("a", {"up": 1, "down": 0}), rd.along("a", {"x": 1})]


@pytest.mark.parametrize(("dims", "book"), [(1, RATIO), (3, RATIO / 3)])
def test_sharded_data_is_bound_by_links_below_so_many_tokens_a_chip(dims: int, book: float) -> None:
    """The book: 2,550 tokens a chip with one axis, 850 with three."""
    low, high = 1, 40_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_bound(middle * DEVICES, DEVICES, dims, FSDP, None) else (low, middle)
    assert book * 0.95 <= high <= book * 1.35, high


@pytest.mark.parametrize("dims", [1, 2])
def test_tensor_parallel_is_bound_by_links_beyond_so_many_chips(dims: int) -> None:
    """The book: up to axes x F / 2,550 chips, whatever the number of tokens."""
    book = dims * HIDDEN / RATIO
    results = rd_spec()
    bound = [n for n in (2, 4, 8, 16, 32, 64) if is_bound(65536, n, dims, TENSOR, results)]
    fine = [n for n in (2, 4, 8, 16, 32, 64) if n not in bound]
    assert max(fine, default=1) <= book * 1.1
    assert min(bound) <= 2 * book
    assert max(fine, default=1) >= book / 4


def rd_spec() -> Any:
    from jax.sharding import PartitionSpec

    return PartitionSpec(None, "a")
