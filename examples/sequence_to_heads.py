"""Sequence parallel outside attention, head parallel inside: one all-to-all each way, forwards and backwards.

Everywhere else the sequence is cut over the devices; attention needs all of it, so there the heads are cut instead.

    python examples/sequence_to_heads.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.explain.profiling.inspect import inspect
from transformer import mesh

BATCH, TIME, HEADS, SIZE = 2, 64, 8, 16


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def main() -> None:
    line = mesh(x=8)
    by_time, by_head = NamedSharding(line, P(None, "x")), NamedSharding(line, P(None, None, "x"))

    def parallel_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        q, k, v = rd.reshard((q, k, v), by_head, source=by_time)
        return rd.reshard(attention(q, k, v), by_time, source=by_head)

    keys = jax.random.split(jax.random.key(0), 3)
    whole = [jax.random.normal(key, (BATCH, TIME, HEADS, SIZE)) for key in keys]
    cut = jax.device_put(whole, by_time)

    layer = jax.jit(parallel_attention, out_shardings=by_time)
    assert np.allclose(layer(*cut), attention(*whole), atol=1e-5)

    def gradient_of(layer):
        return jax.grad(lambda qkv: jnp.sum(jnp.sin(layer(*qkv))))

    gradient = jax.jit(gradient_of(parallel_attention), out_shardings=by_time)
    for ours, expected in zip(gradient(cut), gradient_of(attention)(whole), strict=True):
        assert np.allclose(ours, expected, atol=1e-5)

    for name, function, arguments in (("forwards", layer, cut), ("and backwards", gradient, (cut,))):
        seen = inspect(function.lower(*arguments).compile()).kinds
        print(f"{name}: {dict(seen)}")
        assert set(seen) == {"all-to-all"}


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
