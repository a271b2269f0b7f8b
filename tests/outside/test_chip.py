"""A chip of a user: a `Machine` made outside of the package, wherever machines are taken."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import redistrib as rd
from redistrib.cost.latency import Latency
from redistrib.programs.time.machine import Machine, Rates

LINKS = rd.LatencyBandwidth(
    name="own links",
    latency={step: Latency(1e-6, 1e-6) for step in ("allgather", "alltoall", "allpermute")},
    bandwidth=100e9,
    memory_bandwidth=1e12,
    slow_bandwidth=10e9,
    source="invented",
)
OWN = Machine("own", Rates(1e-6, 1e12, 1e14), LINKS, memory=2**20, flops={"bfloat16": 2e14}, fuses=True)


def layers(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w["up"]) @ w["down"]


ARGS = jnp.ones((32, 16)), {"up": jnp.ones((16, 64)), "down": jnp.ones((64, 16))}


def test_it_is_a_machine_like_those_of_the_library() -> None:
    f = rd.distribute(layers, ARGS, {"d": 4}, schedule=rd.along("d", {"up": 1, "down": 0}), machine=OWN)
    np.testing.assert_allclose(f(*ARGS), layers(*ARGS), rtol=1e-6)
    run = rd.simulate(f.program, OWN)
    assert run.machine is OWN and f.cost.seconds == run.seconds and f.memory == max(run.peak_bytes.values())
    slower = Machine("slower", Rates(1e-3, 1e12, 1e14), LINKS, fuses=True)
    assert rd.simulate(f.program, slower).seconds > run.seconds + 0.9e-3  # by a launch at least
    found = rd.search(layers, ARGS, {"d": 4}, machine=OWN)[0]
    simulated = rd.simulate(found.distributed.program, OWN)
    assert found.machine is not None and found.machine.name == "own"
    assert found.seconds == simulated.seconds == found.distributed.cost.seconds <= f.cost.seconds
    dear = rd.LatencyBandwidth(
        name="dear", latency=LINKS.latency, bandwidth=1e3, memory_bandwidth=1e12, slow_bandwidth=1e3
    )
    still = rd.search(layers, ARGS, {"d": 4}, machine=Machine("dear", Rates(1e-6, 1e12, 1e14), dear, fuses=True))
    assert still.distributed.program.received_bytes == 0 < f.program.received_bytes  # its links decide
