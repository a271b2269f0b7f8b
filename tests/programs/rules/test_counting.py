"""Look-ups at `x[arange(n), i]`, whose first index counts along the batch, receive nothing where the batch is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd

BATCH = 8
X = np.arange(BATCH * 6 * 5, dtype=np.float32).reshape(BATCH, 6, 5)
FIRST = np.array([0, 5, -1, 3, 9, -9, 2, 1], np.int32)
SECOND = np.array([4, 0, 7, -5, -1, 2, 3, -8], np.int32)


def received(function: Callable[..., Any], x: Any = X) -> int:
    """Bytes that are received where the batch is cut over 8 devices; the results are those of `jax.jit`."""
    args = (x, FIRST, SECOND)
    cut = {"x": 0} if len(x) % BATCH == 0 else {}
    f = rd.distribute(
        lambda x, i, j: function(x, i, j), args, {"d": BATCH}, schedule=[rd.along("d", {**cut, "i": 0, "j": 0})]
    )
    for one, other in zip(jax.tree.leaves(f(*args)), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    return f.cost.received_bytes


def n(x: Any) -> Any:
    return jnp.arange(x.shape[0])


LOCAL: dict[str, Callable[..., Any]] = {
    "one index": lambda x, i, j: x[n(x), i],
    "two indices": lambda x, i, j: x[n(x), i, j],
    "not the first": lambda x, i, j: x[n(x), :, j],
    "of NumPy": lambda x, i, j: x[np.arange(BATCH), i],
    "as bytes": lambda x, i, j: x[n(x).astype(jnp.int8), i],
    "rows of indices": lambda x, i, j: x[n(x)[:, None], jnp.stack([i, j], 1)],
    "filled": lambda x, i, j: x.at[n(x), i].get(mode="fill"),
    "clipped": lambda x, i, j: x.at[n(x), i, j].get(mode="clip"),
    "set": lambda x, i, j: x.at[n(x), i].set(-1.0),
    "added": lambda x, i, j: x.at[n(x), i, j].add(2.0),
    "multiplied": lambda x, i, j: x.at[n(x)[:, None], jnp.stack([i, j], 1)].mul(2.0),
    "largest": lambda x, i, j: x.at[n(x), i].max(40.0),
    "gradient": lambda x, i, j: jax.grad(lambda x: (x[n(x), i, j] ** 2).sum())(x),
    "transposed": lambda x, i, j: x.transpose(1, 0, 2)[i, n(x)],
    "in a loop": lambda x, i, j: lax.fori_loop(0, 3, lambda k, y: y.at[n(x), i].add(y[n(x), (i + k) % 6]), x),
    "from outside a loop": lambda x, i, j, n=n: (
        lambda rows: lax.scan(lambda y, k: (y.at[rows, i].mul(k), y[rows, i, j]), x, jnp.arange(3.0))
    )(n(x)),
    "under vmap": lambda x, i, j: jax.vmap(lambda y: y[jnp.arange(BATCH), i], in_axes=2, out_axes=1)(x),
}


@pytest.mark.parametrize("name", LOCAL)
def test_nothing_is_received(name: str) -> None:
    assert received(LOCAL[name]) == 0


LIKE: dict[str, Callable[..., Any]] = {
    "beyond by one": lambda x, i, j: x[n(x) + 1, i],
    "from the end": lambda x, i, j: x[n(x)[::-1], i],
    "below by one": lambda x, i, j: x[n(x) - 1, i],
    "halves": lambda x, i, j: x[n(x) // 2, i],
    "wrapped": lambda x, i, j: x[(n(x) * 37).astype(jnp.int8), i],
    "the sign of another": lambda x, i, j: x[jnp.where(j < 0, n(x), 0), i],
    "of another dimension": lambda x, i, j: x[:, jnp.arange(6)[None].repeat(8, 0)[i % 8, 0], j % 5],
    "written from the end": lambda x, i, j: x.at[n(x)[::-1], i].set(jnp.arange(5.0)),
    "twice the same": lambda x, i, j: x.at[i, n(x) % 6].add(1.0),
    "both": lambda x, i, j: x[:5, :, :][jnp.arange(5), jnp.arange(5)],
}


@pytest.mark.parametrize("name", LIKE)
def test_indices_that_only_look_like_it_are_right(name: str) -> None:
    received(LIKE[name])


@pytest.mark.parametrize("rows", [7, 9, 16])
def test_an_array_of_more_or_fewer_rows_than_the_batch_is_right(rows: int) -> None:
    x = np.arange(rows * 6 * 5, dtype=np.float32).reshape(rows, 6, 5)
    for change in (
        lambda x, i, j: x[jnp.arange(BATCH), i],
        lambda x, i, j: x.at[jnp.arange(BATCH), i, j].set(-1.0),
        lambda x, i, j: x.at[jnp.arange(BATCH), i].get(mode="fill"),
    ):
        received(change, x)
