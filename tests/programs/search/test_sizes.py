"""A schedule at once, of models at real size and without a device: seconds of the processor, whatever else runs."""

from __future__ import annotations

import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import redistrib as rd
from bench.language_models import LLAMA_70B, decode
from bench.programs import transformer
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.tactics import apply
from redistrib.programs.search.evaluation import evaluated
from redistrib.programs.search.starting import decided_by, starting
from tests.programs.search import sized_models

SECONDS = 5.0


def searched(function: Any, args: Any, mesh: dict[str, int], **options: Any) -> Any:
    began = time.process_time()
    found = rd.search(function, args, mesh, machine="v5p", memory_limit="95GB", progress=False, **options)[0]
    return found, time.process_time() - began


@pytest.mark.parametrize("overlap", [False, True])
def test_a_mixture_of_experts_of_60_layers_on_256_chips(overlap: bool) -> None:
    args = sized_models.mixture_args(256, 4096)
    mesh, options = {"data": 32, "model": 8}, {"state": {"params": 0}, "overlap": overlap}
    found, seconds = searched(sized_models.mixture_step, args, mesh, limit=0.1, **options)
    assert seconds < SECONDS
    assert found.memory <= 95 * 10**9
    assert found.joint_bound <= found.seconds < 2 * found.joint_bound


def test_decoding_with_a_cache_of_32768_tokens_on_64_chips() -> None:
    """What is found in five seconds keeps weights where they are, cut by both axes (Pope et al. 2022)."""
    params = LLAMA_70B.parameters(stacked=True)
    cache = (sized_models.form(80, 64, 8, 32768, 128),) * 2
    args = (params, cache, sized_models.form(64, dtype="int32"), sized_models.form(dtype="int32"))
    mesh, options = {"data": 8, "model": 8}, {"state": {"cache": 0}}
    first, seconds = searched(decode, args, mesh, limit=0.1, **options)
    assert seconds < SECONDS
    assert first.memory <= 95 * 10**9
    found, seconds = searched(decode, args, mesh, limit=60, **options)
    assert seconds < 4 * SECONDS
    assert found.joint_bound <= found.seconds < 1.5 * found.joint_bound
    cut = found.result.decisions.ends
    assert all({*cut[f"params/layers/{name}"]} == {"data", "model"} for name in ("gate", "up", "down"))


@pytest.mark.parametrize("tight", [False, True])
def test_weights_sharded_over_both_axes_are_found_early(tight: bool) -> None:
    """Two blocks of an 8B model on 16 x 16 chips: no worse than examples and weights cut by both, as one writes it."""
    width, hidden = 4096, 14336
    shapes = {**dict.fromkeys(("wq", "wk", "wv"), (width, 32, 128)), "wo": (32, 128, width), "up": (width, hidden)}
    shapes |= {"down": (hidden, width), "norm1": (width,), "norm2": (width,)}
    layers = [{name: sized_models.form(*shape) for name, shape in shapes.items()}] * 2

    def loss(layers: Any, x: Any, y: Any) -> Any:
        for layer in layers:
            x = transformer.block(layer, x)
        return jnp.mean((x - y) ** 2)

    def step(layers: Any, x: Any, y: Any) -> Any:
        return jax.tree.map(lambda weight, slope: weight - slope, layers, jax.grad(loss)(layers, x, y))

    args, mesh = (layers, *[sized_models.form(1024, 2048, width)] * 2), {"data": 16, "model": 16}
    options = {"machine": "v5p", "state": {"layers": 0}, "progress": False, "limit": 0.1}
    problem = rd.search(step, args, mesh, **options)[0].problem
    propagation = Propagation(problem.graph, problem.moves.mesh)
    examples = {"x": 0, "y": 0}
    weights = {"wq": 0, "wk": 0, "wv": 0, "wo": 2, "up": 0, "down": 1, "norm1": 0, "norm2": 0}
    tactics = [rd.along(axis, cuts) for cuts in (examples, weights) for axis in mesh]
    apply(tactics, propagation)
    written = evaluated(problem, decided_by(problem, propagation))
    second = next(itertools.islice(starting(problem), 2, None))
    assert evaluated(problem, second).seconds == pytest.approx(written.seconds, rel=1e-6)
    limit = {"memory_limit": written.memory} if tight else {}
    found = rd.search(step, args, mesh, **options | {"limit": 6}, **limit)[0]
    assert found.seconds <= written.seconds * (1 + 1e-6)
    assert found.memory <= written.memory
