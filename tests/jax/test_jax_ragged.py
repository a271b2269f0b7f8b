"""An exchange as one ragged all-to-all, with the collective itself stood in for: XLA:CPU has none."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from jax import lax
from jax.experimental import topologies
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.lowering import local_program
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.ragged import tables
from redistrib.cost.presets import PRESETS
from redistrib.plans.reference import run_step, scatter
from redistrib.plans.steps import Exchange
from redistrib.plans.verify import verify
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.testing import RedistributionCase, redistributions
from redistrib.theory.placement import placement_of

ONE_CALL = replace(PRESETS["tpu"], fused_exchange=True)


def by_definition(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, *, axis_name):
    """Row r of a device's output comes from the sender whose piece lies there, as `lax.ragged_all_to_all` says."""
    me = lax.axis_index(axis_name)
    everyone = lax.all_gather((operand, input_offsets, send_sizes, output_offsets), axis_name)
    operands, starts, sizes, landings = everyone
    first, size, landing = (table[:, me] for table in (starts, sizes, landings))
    row = jnp.arange(output.shape[0])
    past = row - landing[:, None]
    inside = (past >= 0) & (past < size[:, None]) & (size == recv_sizes)[:, None]  # sender by row
    sender = inside.argmax(0)
    taken = operands[sender, jnp.clip(past[sender, row] + first[sender], 0, operands.shape[1] - 1)]
    return jnp.where(inside.any(0).reshape(-1, *[1] * (output.ndim - 1)), taken, output)


def run_alone(step: Exchange, order: list[int], extra: tuple[int, ...] = (), **options: int) -> np.ndarray:
    """The step on numbered tiles, by the program of one device on the devices in that order; tiles by device number."""
    devices = len(order)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("x",), axis_types=(AxisType.Auto,))
    program = local_program(
        [step], LoweringContext(("x",), (devices,), tuple(order), quirks=Quirks(ragged=True), **options)
    )
    run = jax.jit(jax.shard_map(program, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    tiles = np.stack(numbered_tiles(step, extra))[order]
    found = np.asarray(run(tiles.reshape(-1, *tiles.shape[2:])))
    result = np.empty((devices, *step.after.tile, *extra), found.dtype)
    result[order] = found.reshape(result.shape)
    return result


def numbered_tiles(step: Exchange, extra: tuple[int, ...] = ()) -> list[np.ndarray]:
    whole = np.arange(1, np.prod(step.before.shape) + 1, dtype=np.float32).reshape(step.before.shape)
    tiles = scatter(whole, step.before)
    return [
        np.multiply.outer(tile, np.arange(1, np.prod(extra) + 1, dtype=np.float32).reshape(extra)) for tile in tiles
    ]


@pytest.fixture
def one_collective(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []

    def counted(*operands, axis_name):
        calls.append(1)
        return by_definition(*operands, axis_name=axis_name)

    monkeypatch.setattr(lax, "ragged_all_to_all", counted)
    return calls


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pair=redistributions(max_devices=12, two_meshes=False, max_size=2_000))
def test_every_exchange_arrives_as_in_the_reference(one_collective: list[int], pair: RedistributionCase) -> None:
    before, after = placement_of(pair.source, pair.mesh), placement_of(pair.target, pair.mesh)
    order = np.random.default_rng(before.devices).permutation(before.devices).tolist()
    for (found,) in in_rounds(Problem.plain(before, after)):
        if not isinstance(found, Exchange) or not len(found.shares):
            continue
        step = replace(found, implementation="ragged")
        one_collective.clear()
        np.testing.assert_array_equal(run_alone(step, order), np.stack(run_step(step, numbered_tiles(step))))
        assert len(one_collective) == 1


def test_dimensions_beyond_the_plan_travel_along(one_collective: list[int]) -> None:
    plan = synthesize_swap()
    (step,) = plan.steps
    (alone,) = [run_alone(step, list(range(24)), (3, 2))]
    expected = np.stack(run_step(step, numbered_tiles(step)))
    np.testing.assert_array_equal(alone, np.multiply.outer(expected, np.arange(1, 7, dtype=np.float32).reshape(3, 2)))
    assert len(one_collective) == 1


def test_shares_that_no_index_counts_go_in_rounds(one_collective: list[int]) -> None:
    (step,) = synthesize_swap().steps
    alone = run_alone(step, list(range(24)), largest_index=1)
    np.testing.assert_array_equal(alone, np.stack(run_step(step, numbered_tiles(step))))
    assert not one_collective


def synthesize_swap() -> rd.Plan:
    return rd.synthesize("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6", machine=ONE_CALL)


def test_a_model_of_one_call_plans_a_ragged_all_to_all_at_the_bound() -> None:
    plan = verify(synthesize_swap())
    (step,) = plan.steps
    assert isinstance(step, Exchange)
    assert step.implementation == "ragged"
    assert plan.collectives == 1
    assert sum(plan.received) == sum(plan.lower_bound)


def test_on_cpus_it_goes_in_rounds() -> None:
    plan = synthesize_swap()
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:24]).reshape(4, 6), ("x", "y"))
    move = rd.to_jax(plan, mesh)
    whole = np.arange(144, dtype=np.float32).reshape(12, 12)
    moved = move(jax.device_put(whole, move.source_sharding))
    np.testing.assert_array_equal(np.asarray(moved), whole)


def test_tables_are_those_of_the_definition() -> None:
    """Device 0 sends 2 then 4 elements to device 2 and 4 to device 1; device 1 sends 2 to device 2."""
    pairs = [np.array([[0, 2]]), np.array([[0, 2], [1, 0]]), np.array([[0, 1], [1, 2]])]
    at = tables([2, 4, 2], pairs, 3)
    assert (at.unit, at.length) == (2, 4)
    assert at.send_sizes.tolist() == [[0, 1, 3], [2, 0, 1], [0, 0, 0]]
    assert at.recv_sizes.tolist() == at.send_sizes.T.tolist()
    assert at.input_offsets[0].tolist() == [0, 0, 1]
    assert at.output_offsets[:, 2].tolist() == [0, 3, 4]
    assert at.pack[0].tolist() == [1, 2, 0]
    assert at.unpack[2].tolist() == [0, 1, 3]


@pytest.mark.usefixtures("libtpu")
def test_the_tpu_compiler_takes_it() -> None:
    devices = topologies.get_topology_desc("v5e:2x4", platform="tpu").devices
    plan = rd.synthesize("[512{x}1024, 256{y}1024]", "[256{y}1024, 512{x}1024]", "x=2,y=4", machine=ONE_CALL)
    assert [step.kind for step in plan.steps] == ["exchange"]
    move = rd.to_jax(plan, jax.sharding.Mesh(np.array(devices).reshape(2, 4), ("x", "y")))
    argument = jax.ShapeDtypeStruct(plan.shape, plan.dtype, sharding=move.source_sharding)
    text = jax.jit(move).lower(argument).compile().as_text()
    assert "ragged" in text
    assert "collective-permute(" not in text
