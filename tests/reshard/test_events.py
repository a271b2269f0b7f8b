"""What `jax.monitoring` and profilers are told of `reshard`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.resharding import events

MESH = Mesh(np.array(jax.devices()[:8]), ("x",))
ROWS, COLUMNS = NamedSharding(MESH, P("x")), NamedSharding(MESH, P(None, "x"))

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def counts() -> Iterator[Counter[str]]:
    """Events by name, and by cache; scalars added up."""
    found: Counter[str] = Counter()

    def event(name: str, **values: object) -> None:
        if name.startswith("/redistrib/"):
            found[f"{name} {values['cache']}" if values else name] += 1

    def scalar(name: str, value: float, **_: object) -> None:
        found[name] += int(value) if name.startswith("/redistrib/") else 0

    jax.monitoring.register_event_listener(event)
    jax.monitoring.register_scalar_listener(scalar)
    yield found
    jax.monitoring.clear_event_listeners()


@pytest.mark.usefixtures("by_collectives")
def test_launches_bytes_and_cache_misses_are_counted(counts: Counter[str]) -> None:
    tree = {name: jax.device_put(jnp.ones((64, 64)), ROWS) for name in "abc"}
    plan = rd.reshard_plan(tree, COLUMNS)
    assert counts[f"{events.CACHE_MISS} trees"] == 1
    assert counts[f"{events.CACHE_MISS} plans"] == 1
    rd.reshard(tree, COLUMNS)
    rd.reshard(tree, COLUMNS)
    assert counts[events.LAUNCH] == 2 * len(plan.batches)
    assert counts[events.RECEIVED_BYTES] == 2 * plan.received_bytes == 2 * 3 * 7 * 64 * 64 * 4 // 8
    assert counts[f"{events.CACHE_MISS} trees"] == 1


def test_what_runs_on_devices_bears_the_names_of_plan_and_step() -> None:
    plan = rd.synthesize("[1{x}8, 8]", "[8, 1{x}8]", "x=8")
    move = rd.to_jax(plan, MESH)
    text = jax.jit(move).lower(jax.device_put(jnp.ones((8, 8)), move.source_sharding)).compile().as_text()
    (line,) = [line for line in text.splitlines() if " all-to-all(" in line]
    assert f"redistrib:[1x8,8]->[8,1x8]/1.{plan.steps[0].kind}/" in line


def test_moves_inside_a_program_bear_the_name_of_the_array() -> None:
    f = rd.distribute(
        lambda x, w: x @ w, (jnp.ones((8, 8)), jnp.ones((8, 8))), "x=8", schedule=[rd.along("x", {"x": 0, "w": 1})]
    )
    moved = {op.value for op in f.program.ops if hasattr(op, "plan") and op.plan is not None}
    assert moved
    text = f.lower().compile().as_text()
    assert all(f"/{name}/redistrib:" in text for name in moved), text
