"""Losses over a mask in stages: what depends on no parameter is computed before them, once for each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from tests.programs.stages.steps import ARGS, PARAMS, deep

Layout = rd.Layout
LAYOUTS = [
    Layout(1, 1, 2, 2),
    Layout(2, 1, 2, 4, order="gpipe"),
    Layout(1, 2, 2, 2, chunks=2, order="interleaved"),
    Layout(2, 2, 2, 2, zero=3),
    Layout(4, 1, 1, 1),
    Layout(microbatches=16),
]
CLASSES = jnp.linspace(0.5, 2, 4)  # a constant of the function, a weight for each class


def nll(params: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(deep(params, x) / 100) ** 2, -1)


@jax.jit
def count(mask: Any) -> Any:
    return jnp.maximum(jnp.sum(mask), 1)


@jax.custom_vjp
def mean_of(values: Any, mask: Any) -> Any:
    return jnp.sum(values * mask) / jnp.sum(mask)


mean_of.defvjp(
    lambda values, mask: (mean_of(values, mask), mask),
    lambda mask, slope: (slope * mask / jnp.sum(mask), jnp.zeros_like(mask)),
)

DENOMINATORS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda values, mask: jnp.sum(values * mask) / jnp.sum(mask),
    "mean": lambda values, mask: jnp.mean(values * mask) / jnp.mean(mask),
    "maximum": lambda values, mask: jnp.sum(values * mask) / jnp.maximum(jnp.sum(mask), 1),
    "jitted": lambda values, mask: jnp.sum(values * mask) / count(mask),
    "custom vjp": mean_of,
    "remat": jax.checkpoint(lambda values, mask: jnp.sum(values * mask) / jnp.sum(mask)),
    "two": lambda values, mask: (
        jnp.sum(values * mask) / jnp.sum(mask) + jnp.sum(values * (1 - mask)) / (1e-3 + jnp.sum(1 - mask))
    ),
    "guarded": lambda values, mask: jnp.where(jnp.any(mask > 0), jnp.sum(values * mask) / count(mask), 0.0),
    "weights": lambda values, mask: jnp.sum(values * (mask / jnp.sum(mask))),
    "largest": lambda values, mask: jnp.sum(values * mask / jnp.max(mask)),
    "classes": lambda values, mask: jnp.sum(values * CLASSES[mask.astype(int)]) / jnp.sum(CLASSES[mask.astype(int)]),
    "average": lambda values, mask: jnp.average(values, weights=mask + 1e-3),
}
MASKS = {
    "floats": (np.arange(16) % 3 > 0).astype(np.float32),
    "uneven": np.r_[np.ones(3), np.zeros(13)].astype(np.float32),
    "zeros": np.zeros(16, np.float32),
    "integers": (np.arange(16) % 4).astype(np.int32),
}


def step_of(of: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def step(params: Any, x: Any, mask: Any) -> Any:
        value, grads = jax.value_and_grad(lambda params: of(nll(params, x), mask))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), grads, value

    return step


def same_as_jit(step: Callable[..., Any], args: Any, batch: dict[str, int], layout: Any) -> rd.ir.Pipelined:
    f = rd.pipeline(step, args, batch, layout)
    for _ in range(2):  # a call leaves the arguments as they are
        for found, wanted in zip(*map(jax.tree.leaves, (f(*args), jax.jit(step)(*args))), strict=True):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return f


def cases() -> list[Any]:
    """Every denominator with every mask, each on a layout; a short run has one mask for each denominator."""
    table = []
    for k, name in enumerate(DENOMINATORS):
        for n, mask in enumerate(MASKS):
            if name == "custom vjp" and mask == "integers":
                continue  # its gradient of the mask would be of another type
            quick = LAYOUTS[(k + n) % len(LAYOUTS)]
            for one in LAYOUTS if name == "sum" and mask == "floats" else [quick]:
                marks = [] if n == k % len(MASKS) and one is quick else [pytest.mark.long]
                table.append(pytest.param(name, mask, one, marks=marks, id=f"{name}-{mask}-{one}"))
    return table


@pytest.mark.parametrize(("name", "mask", "layout"), cases())
def test_a_loss_over_a_mask_is_that_of_jit(name: str, mask: str, layout: Any) -> None:
    same_as_jit(step_of(DENOMINATORS[name]), (PARAMS, ARGS[1], MASKS[mask]), {"x": 0, "mask": 0}, layout)


def test_new_masks_have_new_sums_and_the_count_may_be_returned() -> None:
    def step(params: Any, x: Any, mask: Any) -> Any:
        return jax.grad(lambda params: jnp.sum(nll(params, x) * mask) / jnp.sum(mask))(params), jnp.sum(mask)

    f = rd.pipeline(step, (PARAMS, ARGS[1], MASKS["floats"]), {"x": 0, "mask": 0}, Layout(1, 1, 2, 2))
    for mask in (MASKS["floats"], MASKS["uneven"], jnp.asarray(MASKS["floats"][::-1])):
        args = (PARAMS, ARGS[1], mask)
        for found, wanted in zip(*map(jax.tree.leaves, (f(*args), jax.jit(step)(*args))), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_program_that_needs_no_prologue_has_none() -> None:
    def step(params: Any, x: Any, mask: Any) -> Any:
        sums = jax.grad(lambda params: jnp.sum(nll(params, x) * mask))(params)
        return jax.tree.map(lambda g: g / mask.sum(), sums)

    f = same_as_jit(step, (PARAMS, ARGS[1], MASKS["floats"]), {"x": 0, "mask": 0}, Layout(1, 1, 2, 2))
    assert not any("before" in value.name for value in f.program.inputs)
    f = same_as_jit(step_of(DENOMINATORS["sum"]), (PARAMS, ARGS[1], MASKS["floats"]), {"x": 0, "mask": 0}, Layout())
    assert [str(v.type) for v in f.program.inputs if "before" in v.name] == ["[]"]


def test_a_denominator_may_be_bounded_by_another_argument() -> None:
    def step(params: Any, x: Any, mask: Any, least: Any) -> Any:
        return jax.grad(lambda params: jnp.sum(nll(params, x) * mask) / jnp.maximum(jnp.sum(mask), least))(params)

    args = (PARAMS, ARGS[1], MASKS["floats"], np.float32(20))
    same_as_jit(step, args, {"x": 0, "mask": 0}, Layout(1, 1, 2, 2))
