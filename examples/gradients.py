"""Data-parallel gradients straight to the shards of a fully sharded optimizer: one call, and no sum on every device.

Each of 8 devices computes the gradient of its part of the batch. Those are summands of the gradient, which `shard_map`
returns as what they are: arrays that are unreduced along the axis `data`. The model is all-MiniLM-L6-v2, with weights
drawn at random where those of the extra `demo` are not installed. Beside our call are what JAX code does today, `psum`
and a slice, and what XLA makes of the same request under `jit`. Run me, also as one `jax.distributed` job:

    python examples/gradients.py
    python examples/gradients.py --processes 4
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import statistics
import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jobs import join, launch

import redistrib as rd
from redistrib.demo import training_spec, weights
from redistrib.explain.profiling.inspect import inspect
from redistrib.report import rendered

DEVICES = 8
ORDERS = (tuple(range(DEVICES)), (5, 2, 7, 0, 1, 6, 3, 4))
LAYERS, WORDS, POSITIONS, WIDTH, INNER = 6, 30522, 512, 384, 1536
HEADS, EPSILON = 12, 1e-12
PAIRS = 16
SUMMANDS = P(unreduced={"data"})
Tree = Mapping[str, Any]
Way = Callable[[Tree], Tree]


def line(order: Any) -> Mesh:
    """A mesh of 8 devices in an order; summands are along Explicit axes."""
    return Mesh(np.array(jax.devices())[list(order)], ("data",), axis_types=(AxisType.Explicit,))


def shards(params: Tree, mesh: Mesh) -> dict[str, NamedSharding]:
    """Fully sharded, as `redistrib demo` has it."""
    cut = {name: training_spec(array.shape) for name, array in params.items()}
    return {name: NamedSharding(mesh, P(*["data" if axis else None for axis in spec])) for name, spec in cut.items()}


# ------------------------------------------------------------------------------------------------- the model


def shapes() -> dict[str, tuple[int, ...]]:
    """Of the parameters that have gradients: all but those of the pooler, which sentence embeddings do not use."""
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        products = dict.fromkeys((f"{at}.attention.self.{part}" for part in ("query", "key", "value")), (WIDTH, WIDTH))
        products |= {f"{at}.attention.output.dense": (WIDTH, WIDTH), f"{at}.intermediate.dense": (INNER, WIDTH)}
        products |= {f"{at}.output.dense": (WIDTH, INNER)}
        for name, (out, into) in products.items():
            found |= {f"{name}.weight": (out, into), f"{name}.bias": (out,)}
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
    return found | {f"{name}.{part}": (WIDTH,) for name in norms for part in ("weight", "bias")}


def drawn() -> dict[str, np.ndarray]:
    """Weights at random, the same in every process."""
    draw = np.random.default_rng(0)
    return {
        name: draw.normal(name.endswith("LayerNorm.weight"), 0.05, shape).astype(np.float32)
        for name, shape in shapes().items()
    }


def parameters(layers: int, words: int) -> Tree:
    """Of the whole model, or of its first layers and words."""
    try:
        found = weights()
    except ModuleNotFoundError:
        found = drawn()
    wanted = ("embeddings.", *(f"encoder.layer.{layer}." for layer in range(layers)))
    return {
        name: array[:words] if "word_embeddings" in name else array
        for name, array in found.items()
        if name.startswith(wanted)
    }


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


def placed(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array that every process has, on the devices of all of them."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def summands(params: Tree, pairs: np.ndarray, mesh: Mesh) -> Tree:
    """The gradient, as a summand of it on every device: nothing travels."""
    local = jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(P(), P("data")), out_specs=SUMMANDS, check_vma=False)
    with jax.set_mesh(mesh):
        everywhere = {name: placed(array, NamedSharding(mesh, P())) for name, array in params.items()}
        gradient: Tree = jax.jit(local)(everywhere, placed(pairs, NamedSharding(mesh, P("data"))))
    return jax.block_until_ready(gradient)


def by_psum(gradient: Tree, mesh: Mesh) -> Way:
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


def by_jit(gradient: Tree, mesh: Mesh) -> Way:
    """What XLA makes of it."""
    cuts = shards(gradient, mesh)
    return lambda tree: {name: jax.sharding.reshard(array, cuts[name]) for name, array in tree.items()}


def ways(gradient: Tree, mesh: Mesh) -> tuple[dict[str, Way], dict[str, int], int]:
    """Ways from summands to shards, the bytes that all devices receive in each, and the fewest that they can."""
    found: dict[str, Way] = {}
    received = {}
    targets = shards(gradient, mesh)
    for order in ("fixed", "any"):
        plan = rd.reshard_plan(gradient, targets, order=order)
        found[name := f"reshard, order={order!r}"] = functools.partial(rd.reshard, shardings=targets, order=order)
        received[name] = plan.received_bytes
    for name, way in (("psum, then slice", by_psum), ("jit, by XLA", by_jit)):
        with jax.set_mesh(mesh):
            found[name] = compiled = jax.jit(way(gradient, mesh)).lower(gradient).compile()
        received[name] = inspect(compiled).received_bytes
    return found, received, plan.lower_bound_bytes


# ---------------------------------------------------------------------------------------------- the figures


def check(result: Tree, expected: Tree) -> None:
    """Every element that this process has, against the gradient of the whole batch on one device."""
    for name, array in result.items():
        for shard in array.addressable_shards:
            np.testing.assert_allclose(shard.data, expected[name][shard.index], rtol=1e-3, atol=1e-5, err_msg=name)


def fingerprint(result: Tree) -> np.ndarray:
    """`[arrays, parts, 2]` checksums of the bits of every part of every array, in every process."""
    sums = np.zeros((len(result), DEVICES, 2), np.uint32)
    for row, array in zip(sums, result.values(), strict=True):
        for shard in array.addressable_shards:
            part = max((cut.start or 0) * DEVICES // n for cut, n in zip(shard.index, array.shape, strict=True))
            bits = np.asarray(shard.data).tobytes()
            row[part] = np.frombuffer(hashlib.blake2b(bits, digest_size=8).digest(), np.uint32)
    if jax.process_count() == 1:
        return sums
    whole: np.ndarray = multihost_utils.process_allgather(sums).sum(axis=0, dtype=np.uint32)
    return whole


def seconds(found: Mapping[str, Way], gradient: Tree, rounds: int) -> dict[str, list[float]]:
    """Of each way, in alternating order, from when all processes are ready until this one has its shards."""
    taken: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(rounds):
        for name in list(found)[:: 1 if turn % 2 == 0 else -1]:
            if jax.process_count() > 1:
                multihost_utils.sync_global_devices("ready")
            start = perf_counter()
            jax.block_until_ready(found[name](gradient))
            taken[name].append(perf_counter() - start)
    return taken


def measure(layers: int, words: int, time: int, rounds: int) -> dict[str, Any]:
    """All figures. Bytes and bits are of all processes, seconds of this one; every result is checked before it counts.

    Args:
        layers, words: how much of the model, from its first layer and word on.
        time: tokens of a sentence.
        rounds: calls of each way that are timed.
    """
    params = parameters(layers, words)
    pairs = np.random.default_rng(0).integers(0, words, (PAIRS, 2, time))
    expected = jax.device_get(jax.jit(jax.grad(loss))(dict(params), pairs))
    bits: dict[str, list[np.ndarray]] = {}
    figures: dict[str, Any] = {}
    for order in ORDERS:
        mesh = line(order)
        gradient = summands(params, pairs, mesh)
        found, received, bound = ways(gradient, mesh)
        for name, way in found.items():
            result = way(gradient)
            check(result, expected)
            bits.setdefault(name, []).append(fingerprint(result))
            del result
        if not figures:
            figures = {"received": received, "bound": bound, "times": seconds(found, gradient, rounds)}
    same = {name: np.array_equal(*both) for name, both in bits.items()}
    size = sum(array.nbytes for array in params.values())
    return {**figures, "same": same, "gradients": len(params), "bytes": size, "processes": jax.process_count()}


def show(figures: Mapping[str, Any]) -> None:
    rows = []
    for name, received in figures["received"].items():
        taken = f"{statistics.median(figures['times'][name]):.3f}"
        over = f"{received / figures['bound']:.2f}"
        rows.append([name, f"{received:,}", over, taken, "yes" if figures["same"][name] else "no"])
    head = ("way", "bytes received", "over the bound", "seconds", "same bits on both orders")
    print(rendered("", head, rows))
    processes = f"{figures['processes']} process{'es' if figures['processes'] > 1 else ''}"
    print(f"{figures['gradients']} gradients, {figures['bytes']:,} bytes, on {DEVICES} devices of {processes}")
    print("bytes are those that all devices receive, seconds the median")


def main(layers: int = LAYERS, words: int = WORDS, time: int = 16, rounds: int = 3, processes: int = 1) -> None:
    """Measure and print, in this process or as a job of several, of which this may be one already."""
    if processes > 1:
        launch(__file__, processes, layers, words, time, rounds)
        return
    figures = measure(layers, words, time, rounds)
    if jax.process_index() == 0:
        show(figures)
    fixed, free = (f"reshard, order={order!r}" for order in ("fixed", "any"))
    assert figures["received"][fixed] == figures["received"][free] == figures["bound"]
    assert figures["same"][fixed]


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        *job, layers, words, time, rounds = sys.argv[1:]
        join(main, DEVICES, *job, *map(int, (layers, words, time, rounds)))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        for option, default in (("layers", LAYERS), ("rounds", 3), ("processes", 1)):
            parser.add_argument(f"--{option}", type=int, default=default)
        jax.config.update("jax_num_cpu_devices", DEVICES)
        main(**vars(parser.parse_args()))
