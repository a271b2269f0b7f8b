"""A chip of a user: a `Machine` made outside of the package, wherever machines are taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib.cost.chips import Chip
from redistrib.cost.latency import Latency
from redistrib.errors import ProfileError
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


CHIP = Chip(
    flops={"bfloat16": 2e14},
    memory=2**34,
    memory_bandwidth=1e12,
    link=50e9,
    network=5e9,
    group=64,
    torus=3,
    ring=4,
    source="invented",
)


def test_a_search_over_devices_lays_axes_on_the_torus_of_a_chip() -> None:
    """Axes have the speeds of the dimensions on which they lie; without the chip each has that of all links."""
    x = jax.ShapeDtypeStruct((8192, 8192), np.float32)

    def searched(on: Machine) -> rd.ir.Searched:
        return rd.search(lambda x: jnp.tanh(x @ x), (x,), devices=16, machine=on, state={"x": 0})

    own = Machine.of_chip("own", CHIP)
    on_torus, without = searched(own), searched(replace(own, chip=None))
    assert [found.name for found in on_torus if "{a:4, b:4}" in found.name] == [
        "{a:4, b:4}, a on 2 dimensions of the torus, b on a ring of the torus",
        "{a:4, b:4}, a on a ring of the torus, b on 2 dimensions of the torus",
    ]
    speeds = {found.name: found.problem.machine.links.axis_bandwidth for found in on_torus}
    assert speeds["{a:16}, a on 3 dimensions of the torus"] == {"a": 3 * CHIP.link}  # 16 closes to no ring of 4**3
    assert sorted(found.name for found in without) == ["{a:16}", "{a:2, b:2, c:4}", "{a:2, b:8}", "{a:4, b:4}"]
    assert on_torus[0].seconds > 1.5 * without[0].seconds


@pytest.mark.parametrize(
    ("other", "words"),
    [({"flops": {"float32": 1e14}}, "a chip has no flops of 'bfloat16'"), ({"ring": 0}, "give ring= at least 1")],
)
def test_figures_that_are_none_of_a_chip_are_refused(other: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        replace(CHIP, **other)
