"""A function to search, in a module that registers an order and a family of layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

import redistrib as rd
from redistrib import ir


@ir.register_order("one after another")
def one_by_one(devices: int, microbatches: int, chunks: int = 1) -> list[list[ir.PipelineTask]]:
    passes = [(m, back) for m in range(microbatches) for back in (False, True)]
    return [[ir.PipelineTask(device, m, back) for m, back in passes] for device in range(devices)]


@ir.register_layouts("by twos")
def by_twos(devices: int, examples: int, most: int) -> Iterator[rd.Layout]:
    yield rd.Layout(data=devices // 2, pipeline=2, microbatches=2, order="one after another")


def case() -> tuple[Any, ...]:
    """Two layers and their loss."""

    def layers(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w["up"]) @ w["down"]

    weights = {"up": jax.ShapeDtypeStruct((64, 256), "float32"), "down": jax.ShapeDtypeStruct((256, 64), "float32")}
    return layers, weights, jax.ShapeDtypeStruct((32, 64), "float32")
