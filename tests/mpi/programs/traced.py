"""A step of training that `rd.distribute` has cut, on 4 ranks; prints JSON on rank 0."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from mpi4py import MPI

import redistrib as rd

comm = MPI.COMM_WORLD


def step(params: Any, x: Any) -> Any:
    def loss(p: Any) -> Any:
        y = jax.nn.relu(x @ p["a"]) @ p["b"]
        return jnp.sum(y * y)

    return jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params))


def layers(params: Any, x: Any) -> Any:
    """Gradients of layers by scan: cut weights gathered, and their gradients scattered, in every step; then a while."""

    def loss(p: Any) -> Any:
        y = jax.lax.scan(lambda y, w: (y + y @ w["a"] @ w["b"], y.sum()), x, p)
        return y[0].sum() + y[1].sum()

    grads = jax.grad(loss)(params)
    return grads, jax.lax.while_loop(lambda x: x.sum() < 1000, lambda x: 2 * x, x)


square = np.arange(64, dtype=np.float32).reshape(8, 8)
args = ({"a": square % 3, "b": square % 5}, np.ones((8, 8), np.float32))  # small integers: sums are exact
schedule = [rd.along("d", {"x": 0}), rd.along("t", {"params/a": 1})]
f = rd.distribute(step, args, {"d": 2, "t": 2}, schedule=schedule)
with rd.to_mpi(f.program, comm) as execute:
    tiles = execute.scatter(*(jax.tree.leaves(args) if comm.rank == 0 else []))
    found = execute.gather(*execute(*tiles))
stacked = {"a": np.stack([square % 2] * 3), "b": np.stack([square % 3] * 3)}
cuts = [rd.along("d", {"x": 0}), rd.along("d", {"a": 1, "b": 2})]
g = rd.distribute(layers, (stacked, args[1]), {"d": 4}, schedule=cuts)
for limit in (None, "1 MiB"):
    with rd.to_mpi(g.program, comm, memory_limit=limit) as execute:
        tiles = execute.scatter(*(jax.tree.leaves((stacked, args[1])) if comm.rank == 0 else []))
        looped = execute.gather(*execute(*tiles))
    if comm.rank == 0:
        for one, wanted in zip(looped, jax.tree.leaves(layers(stacked, args[1])), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-5)


def slid(x: Any, k: Any) -> Any:
    """Convolutions and poolings cut in space, and their gradients: ranks exchange halos."""

    def loss(x: Any, k: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers)
        y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 1, 1), "SAME")
        return (jax.lax.conv_transpose(y, k, (2, 1), "SAME", dimension_numbers=numbers) ** 2).sum()

    return jax.grad(loss, (0, 1))(x, k)


plane = (np.arange(16 * 16 * 2) % 5 - 2).astype(np.float32).reshape(1, 16, 16, 2)
kernel = (np.arange(3 * 3 * 2 * 2) % 3 - 1).astype(np.float32).reshape(3, 3, 2, 2)
cuts = [rd.along("d", {"x": 1}), rd.along("t", {"x": 2})]
h = rd.distribute(slid, (plane, kernel), {"d": 2, "t": 2}, schedule=cuts)
assert any(move.out.has_halos for move in h.program.moves)
with rd.to_mpi(h.program, comm) as execute:
    tiles = execute.scatter(*((plane, kernel) if comm.rank == 0 else []))
    halos = execute.gather(*execute(*tiles))
if comm.rank == 0:
    for one, wanted in zip(halos, jax.jit(slid)(plane, kernel), strict=True):
        np.testing.assert_array_equal(one, wanted)
    for one, wanted in zip(found, jax.tree.leaves(step(*args)), strict=True):
        np.testing.assert_array_equal(one, wanted)
    print(json.dumps({"moves": len(f.program.moves)}))
