"""Plans between two meshes over the same devices, carried out on tiles alone.

The shards of an array are rewrapped, without a copy, as the rows of one array cut along its first dimension over a flat
mesh of the devices; the plan's program runs there; and the rows that come out are rewrapped as the shards of the target.
So source and target may name and order the devices as they like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax.execute import carried
from redistrib.backends.jax.lowering import Frame, Schedule, local_program
from redistrib.plans.plan import Plan

AXIS = "devices"


class FlatProgram:
    """A plan compiled for `count` arrays at once, each of the plan's shape, over devices in the order of their numbers.

    Attributes:
        plan: what each array goes through.
        count: arrays moved by one call.
        stacked: whether their tiles travel side by side in the same collectives: fewer launches, two more copies.
    """

    def __init__(
        self,
        plan: Plan,
        devices: Sequence[Any],
        dtype: Any,
        *,
        count: int = 1,
        stacked: bool = False,
        donate: bool = False,
        schedule: Schedule = "overlap",
    ) -> None:
        self.plan, self.count, self.stacked = plan, count, stacked
        self.devices = tuple(devices)
        mesh = jax.sharding.Mesh(np.array(self.devices), (AXIS,), axis_types=(AxisType.Auto,))
        self._sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        on_cpu = self.devices[0].platform == "cpu"
        frame = Frame((AXIS,), (plan.devices,), tuple(range(plan.devices)), schedule, pieces=32 if on_cpu else 0)
        program = self._program(carried(local_program(plan.steps, frame), plan.steps))
        mapped = jax.shard_map(program, mesh=mesh, in_specs=PartitionSpec(AXIS), out_specs=PartitionSpec(AXIS), check_vma=False)
        self._rows_in = self._rows(plan.before.tile)
        jitted = jax.jit(mapped, donate_argnums=tuple(range(count)) if donate else ())
        abstract = jax.ShapeDtypeStruct(self._rows_in, dtype, sharding=self._sharding)
        self.compiled = jitted.lower(*[abstract] * count).compile()

    def _rows(self, tile: tuple[int, ...]) -> tuple[int, ...]:
        return (self.plan.devices * tile[0], *tile[1:])

    def _program(self, one: Callable[[jax.Array], jax.Array]) -> Callable[..., tuple[jax.Array, ...]]:
        def run(*tiles: jax.Array) -> tuple[jax.Array, ...]:
            if self.stacked and len(tiles) > 1:
                moved = one(jnp.stack(tiles, axis=-1))
                return tuple(moved[..., k] for k in range(len(tiles)))
            return tuple(one(tile) for tile in tiles)

        return run

    def __call__(self, arrays: Sequence[jax.Array], target: NamedSharding) -> list[jax.Array]:
        """Move `count` arrays to `target`, a sharding over the same devices."""
        rows = [rewrapped(array, self._rows_in, self._sharding) for array in arrays]
        return [rewrapped(result, self.plan.shape, target) for result in self.compiled(*rows)]


def rewrapped(array: jax.Array, shape: tuple[int, ...], sharding: NamedSharding) -> jax.Array:
    """The same buffers as an array of another global shape and sharding over the same devices; nothing is copied."""
    held = {shard.device: shard.data for shard in array.addressable_shards}
    return jax.make_array_from_single_device_arrays(
        shape, sharding, [held[device] for device in sharding.mesh.devices.flat if device in held]
    )
