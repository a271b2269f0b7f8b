"""Data-parallel gradients straight to the shards of a fully sharded optimizer: one call, and no sum on every device.

Each of 8 devices computes the gradient of its part of the batch. Those are summands of the gradient, which `shard_map`
returns as what they are: arrays that are unreduced along the axis `data`. The model is all-MiniLM-L6-v2; its weights
come with the extra `demo`. Run me:

    python examples/gradients.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.measure.inspect import inspect
from redistrib.demo import training_spec, weights
from redistrib.report import rendered

HEADS, EPSILON = 12, 1e-12
SUMMANDS = P(unreduced={"data"})
Tree = Mapping[str, Any]


def line(order: Any) -> Mesh:
    """A mesh of 8 devices in an order; summands are along Explicit axes."""
    return Mesh(np.array(jax.devices())[list(order)], ("data",), axis_types=(AxisType.Explicit,))


def shards(params: Tree, mesh: Mesh) -> dict[str, NamedSharding]:
    """Fully sharded, as `redistrib demo` has it."""
    cut = {name: training_spec(array.shape) for name, array in params.items()}
    return {name: NamedSharding(mesh, P(*["data" if axis else None for axis in spec])) for name, spec in cut.items()}


# ------------------------------------------------------------------------------------------------- the model


def normed(params: Tree, name: str, x: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    scaled = centred * lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + EPSILON)
    return scaled * params[f"{name}.weight"] + params[f"{name}.bias"]


def dense(params: Tree, name: str, x: jax.Array) -> jax.Array:
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def embedded(params: Tree, tokens: jax.Array) -> jax.Array:
    """`[batch, width]` sentence embeddings of `[batch, time]` tokens."""
    x = params["embeddings.word_embeddings.weight"][tokens]
    x = x + params["embeddings.position_embeddings.weight"][: tokens.shape[1]]
    x = normed(params, "embeddings.LayerNorm", x + params["embeddings.token_type_embeddings.weight"][0])
    layer = 0
    while (at := f"encoder.layer.{layer}") + ".output.dense.weight" in params:
        q, k, v = (
            dense(params, f"{at}.attention.self.{part}", x).reshape(*x.shape[:2], HEADS, -1)
            for part in ("query", "key", "value")
        )
        attended = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = normed(
            params, f"{at}.attention.output.LayerNorm", x + dense(params, f"{at}.attention.output.dense", attended)
        )
        inner = jax.nn.gelu(dense(params, f"{at}.intermediate.dense", x), approximate=False)
        x = normed(params, f"{at}.output.LayerNorm", x + dense(params, f"{at}.output.dense", inner))
        layer += 1
    pooled = jnp.mean(x, axis=1)
    return pooled / jnp.linalg.norm(pooled, axis=-1, keepdims=True)


def loss(params: Tree, pairs: jax.Array) -> jax.Array:
    """How far apart the two sentences of each pair `[batch, 2, time]` are, summed over the pairs."""
    left, right = embedded(params, pairs[:, 0]), embedded(params, pairs[:, 1])
    return jnp.sum(1 - jnp.sum(left * right, axis=-1))


# --------------------------------------------------------------------------------------------- the gradient


def summands(params: Tree, pairs: np.ndarray, mesh: Mesh) -> Tree:
    """The gradient, as a summand of it on every device: nothing travels."""
    local = jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(P(), P("data")), out_specs=SUMMANDS, check_vma=False)
    with jax.set_mesh(mesh):
        placed = jax.device_put(dict(params), NamedSharding(mesh, P()))
        gradient: Tree = jax.jit(local)(placed, jax.device_put(pairs, NamedSharding(mesh, P("data"))))
    return gradient


def by_psum(gradient: Tree, mesh: Mesh) -> Callable[[Tree], Tree]:
    """Add everything up on every device, then keep a part."""
    cuts = {name: sharding.spec for name, sharding in shards(gradient, mesh).items()}

    def local(tile: jax.Array, spec: P) -> jax.Array:
        (dim,) = [i for i, axis in enumerate(spec) if axis]
        size = tile.shape[dim] // mesh.size
        return lax.dynamic_slice_in_dim(lax.psum(tile, "data"), lax.axis_index("data") * size, size, dim)

    return jax.shard_map(
        lambda tree: {name: local(tile, cuts[name]) for name, tile in tree.items()},
        mesh=mesh, in_specs=SUMMANDS, out_specs=cuts, check_vma=False,
    )  # fmt: skip


def by_jit(gradient: Tree, mesh: Mesh) -> Callable[[Tree], Tree]:
    """What XLA makes of it."""
    cuts = shards(gradient, mesh)
    return lambda tree: {name: jax.sharding.reshard(array, cuts[name]) for name, array in tree.items()}


def main(layers: int = 6, words: int = 30522, time: int = 16) -> None:
    """Of the whole model, or of its first layers and words."""
    params = {
        name: array[:words] if "word_embeddings" in name else array
        for name, array in weights().items()
        if name.startswith(("embeddings.", *(f"encoder.layer.{layer}." for layer in range(layers))))
    }
    pairs = np.random.default_rng(0).integers(0, words, (16, 2, time))
    meshes = [line(range(8)), line((5, 2, 7, 0, 1, 6, 3, 4))]
    gradients = [summands(params, pairs, mesh) for mesh in meshes]

    results: dict[str, list[Tree]] = {}
    received: dict[str, int] = {}
    for order in ("fixed", "any"):
        name = f"reshard, order={order!r}"
        plan = rd.reshard_plan(gradients[0], shards(params, meshes[0]), order=order)
        received[name] = plan.received_bytes
        results[name] = [
            rd.reshard(gradient, shards(params, mesh), order=order)
            for gradient, mesh in zip(gradients, meshes, strict=True)
        ]
    for name, way in (("psum, then slice", by_psum), ("jit, by XLA", by_jit)):
        results[name] = []
        for gradient, mesh in zip(gradients, meshes, strict=True):
            with jax.set_mesh(mesh):
                compiled = jax.jit(way(gradient, mesh)).lower(dict(gradient)).compile()
                results[name].append(compiled(dict(gradient)))
            received[name] = inspect(compiled).received_bytes

    expected = jax.jit(jax.grad(loss))({name: jnp.asarray(array) for name, array in params.items()}, pairs)
    rows = []
    for name, (first, other) in results.items():
        for each in params:
            np.testing.assert_allclose(first[each], expected[each], rtol=1e-3, atol=1e-5)
        same = all(np.array_equal(first[each], other[each]) for each in params)
        over = received[name] / plan.lower_bound_bytes
        rows.append([name, f"{received[name]:,}", f"{over:.2f}", "yes" if same else "no"])
        assert same or "fixed" not in name
    print(
        rendered("", ("way", "bytes received, all devices", "over the bound", "same bits on both device orders"), rows)
    )
    print(f"{len(params)} gradients, {sum(array.nbytes for array in params.values()):,} bytes, on 8 devices")
    assert received["reshard, order='fixed'"] == plan.lower_bound_bytes


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
