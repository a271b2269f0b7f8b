"""Samplers of numpyro and blackjax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.zoo.layers import normal
from bench.zoo.program import Program


def programs() -> Iterator[Program]:
    import blackjax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import potential_energy

    def regression(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros(8), 1).to_event(1))
        numpyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)

    x, y = normal(64, 8), normal(64, seed=1)

    def slope(w: Any, x: Any, y: Any) -> Any:
        return jax.value_and_grad(lambda w: potential_energy(regression, (x, y), {}, {"w": w}))(w)

    yield Program("regression, rows", "numpyro", slope, (normal(8, seed=2), x, y), (("d", {"x": 0, "y": 0}),))

    def gammas(key: Any, rate: Any) -> Any:
        return dist.Gamma(rate, 2.0).sample(jax.random.wrap_key_data(key))

    key = np.asarray(jax.random.key_data(jax.random.key(1)))
    yield Program("gammas, draws", "numpyro", gammas, (key, np.abs(normal(64)) + 0.5), (("d", {"rate": 0}),))

    def logdensity(w: Any, x: Any, y: Any) -> Any:
        return -0.5 * jnp.sum((x @ w - y) ** 2) - 0.5 * jnp.sum(w**2)

    def chains(w: Any, x: Any, y: Any) -> Any:
        kernel = blackjax.hmc(lambda w: logdensity(w, x, y), 1e-2, jnp.ones(8), 4)
        keys = jax.random.split(jax.random.key(3), w.shape[0])
        step = lambda key, w: kernel.step(key, kernel.init(w))[0].position  # noqa: E731
        return jax.vmap(step)(keys, w)

    starts = normal(16, 8, seed=4)
    yield Program("HMC, chains", "blackjax", chains, (starts, x, y), (("d", {"w": 0}),), tolerance=1e-3)
    yield Program("HMC, rows", "blackjax", chains, (starts[:2], x, y), (("d", {"x": 0, "y": 0}),), tolerance=1e-3)

    def nuts(w: Any, x: Any, y: Any) -> Any:
        kernel = blackjax.nuts(lambda w: logdensity(w, x, y), 1e-2, jnp.ones(8), max_num_doublings=3)
        return kernel.step(jax.random.key(3), kernel.init(w))[0].position

    yield Program("NUTS, rows", "blackjax", nuts, (starts[0], x, y), (("d", {"x": 0, "y": 0}),), tolerance=1e-3)
