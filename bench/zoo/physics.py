"""Particles and bodies: jax-md and brax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from bench.zoo.program import Program


def programs() -> Iterator[Program]:
    from jax_md import energy, space

    _, shift = space.periodic(8.0)
    displacement, _ = space.periodic(8.0)
    total = energy.soft_sphere_pair(displacement)
    positions = np.random.default_rng(0).uniform(0, 8, (64, 3)).astype(np.float32)

    def descended(positions: Any) -> Any:
        return shift(positions, -0.01 * jax.grad(total)(positions))

    yield Program("soft spheres, particles", "jax-md", descended, (positions,), (("d", {"positions": 0}),))

    many = np.random.default_rng(1).uniform(0, 8, (16, 32, 3)).astype(np.float32)
    batched = lambda positions: jax.vmap(descended)(positions)  # noqa: E731
    yield Program("soft spheres, systems", "jax-md", batched, (many,), (("d", {"positions": 0}),))

    from brax import envs

    environment = envs.get_environment("fast")

    def stepped(actions: Any) -> Any:
        keys = jax.random.split(jax.random.key(0), actions.shape[0])
        states = jax.vmap(environment.reset)(keys)
        return jax.vmap(environment.step)(states, actions).obs

    actions = np.zeros((16, environment.action_size), np.float32)
    yield Program("a step of an environment, worlds", "brax", stepped, (actions,), (("d", {"actions": 0}),))
