"""Plans between two meshes over the same devices, carried out on tiles alone.

The shards of an array are rewrapped, without a copy, as the rows of one array cut along its first dimension over a
flat mesh of the devices; the plan's program runs there; and the rows that come out are rewrapped as the shards of the
target. So source and target may name and order the devices as they like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding, use_abstract_mesh

from redistrib.backends.jax.execute import carried
from redistrib.backends.jax.lowering import Schedule, frame_of, local_program
from redistrib.plans.plan import Plan

AXIS = "devices"
MOST_AVALS = 4096

# Abstract values of arrays that have been rewrapped, by shape, dtype, sharding and weak type.
_AVALS: dict[tuple[Any, ...], Any] = {}


class FlatProgram:
    """A plan for `count` arrays at once, each of the plan's shape, over devices in the order of their numbers.

    Made, it is lowered; `compile` is apart so that several may be compiled at the same time. Without a `schedule`, it
    is the one that the plan's memory limit asks for; see `redistrib.backends.jax.lowering`. The compiler is given
    `options`.

    Attributes:
        plan: what each array goes through; of rank 1 at least.
        count: arrays moved by one call.
        stacked: whether their tiles travel side by side in the same collectives: fewer launches, two more copies.
        reuses: whether outputs take the place of inputs in memory, which are then gone; needs tiles of one shape.
    """

    def __init__(
        self,
        plan: Plan,
        devices: Sequence[Any],
        dtype: Any,
        *,
        count: int = 1,
        stacked: bool = False,
        reuses: bool = False,
        schedule: Schedule | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan, self.count, self.stacked, self.reuses = plan, count, stacked, reuses
        self.devices, self.dtype, self._options = tuple(devices), dtype, dict(options or {})
        mesh = jax.sharding.Mesh(np.array(self.devices), (AXIS,), axis_types=(AxisType.Auto,))
        self._mesh = mesh
        self._sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        self._rows_in = self._rows(plan.before.tile)
        order = tuple(range(plan.devices))
        frame = frame_of(plan, (AXIS,), (plan.devices,), order, schedule, self.devices[0].platform)
        # The inner jit is traced and lowered once for all the arrays.
        program = self._program(jax.jit(carried(local_program(plan.steps, frame))))
        with alone_on(mesh):
            mapped = jax.shard_map(
                program, mesh=mesh, in_specs=PartitionSpec(AXIS), out_specs=PartitionSpec(AXIS), check_vma=False
            )
            self._jitted = jax.jit(mapped, donate_argnums=tuple(range(count)) if reuses else ())
            abstract = jax.ShapeDtypeStruct(self._rows_in, dtype, sharding=self._sharding)
            self._lowered = self._jitted.lower(*[abstract] * count)

    def _rows(self, tile: tuple[int, ...]) -> tuple[int, ...]:
        return (self.plan.devices * tile[0], *tile[1:])

    def _program(self, one: Callable[[jax.Array], jax.Array]) -> Callable[..., tuple[jax.Array, ...]]:
        def run(*tiles: jax.Array) -> tuple[jax.Array, ...]:
            if self.stacked and len(tiles) > 1:
                moved = one(jnp.stack([_as_bits(tile) for tile in tiles], axis=-1))
                return tuple(_from_bits(moved[..., k], self.dtype) for k in range(len(tiles)))
            return tuple(one(tile) for tile in tiles)

        return run

    @cached_property
    def _compiled(self) -> Any:
        return self._lowered.compile(compiler_options=self._options or None)

    def compile(self) -> FlatProgram:
        """The program, compiled; at once if it has been before."""
        assert self._compiled is not None
        return self

    @cached_property
    def added_bytes(self) -> int:
        """Bytes per device that a call takes besides its inputs: outputs and scratch, as the compiler reports them."""
        sizes = self._compiled.memory_analysis()
        if sizes is None:
            return self.count * (self.plan.peak_bytes - self.plan.before.tile_size * self.plan.itemsize)
        return int(sizes.output_size_in_bytes - sizes.alias_size_in_bytes + sizes.temp_size_in_bytes)

    def hlo(self) -> str:
        """The compiled program as text."""
        return str(self._compiled.as_text())

    def __call__(self, arrays: Sequence[jax.Array], targets: Sequence[Sharding]) -> list[jax.Array]:
        """Move `count` arrays, each to its target, a sharding over the same devices."""
        rows = [rewrapped(array, self._rows_in, self._sharding, weak=False) for array in arrays]
        if _is_packed(self.dtype):  # rewrapped, such arrays do not say that they are packed, and an executable minds
            with alone_on(self._mesh):
                moved = self._jitted(*rows)
        else:
            moved = self._compiled(*rows)
        return [
            rewrapped(result, self.plan.shape, target, weak=bool(array.aval.weak_type))
            for array, result, target in zip(arrays, moved, targets, strict=True)
        ]


@contextmanager
def alone_on(mesh: jax.sharding.Mesh) -> Iterator[None]:
    """A context in which no other mesh, such as one that the caller has set, is taken for ours."""
    try:
        context: Any = jax.set_mesh(mesh)
    except ValueError:  # while something is traced only the abstract mesh can be set
        context = use_abstract_mesh(mesh.abstract_mesh)
    with context:
        yield


def _as_bits(tile: jax.Array) -> jax.Array:
    """Narrow floats as integers, which compilers copy as they are; see `carried`."""
    if jnp.issubdtype(tile.dtype, jnp.floating) and jnp.finfo(tile.dtype).bits < 32:
        return lax.bitcast_convert_type(tile, jnp.dtype(f"uint{jnp.finfo(tile.dtype).bits}"))
    return tile


def _from_bits(tile: jax.Array, dtype: Any) -> jax.Array:
    return tile if tile.dtype == dtype else lax.bitcast_convert_type(tile, dtype)


def _is_packed(dtype: Any) -> bool:
    """Whether elements are smaller than a byte."""
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).bits < 8
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 8


def rewrapped(array: jax.Array, shape: tuple[int, ...], sharding: Sharding, weak: bool) -> jax.Array:
    """The same buffers as an array of another global shape and sharding over the same devices; nothing is copied."""
    held = _held(array)
    if isinstance(sharding, NamedSharding):
        tiles = [held[device] for device in _own(sharding.mesh)]
    else:
        tiles = [held[device] for device in sharding.devices_indices_map(shape) if device in held]
    key = (shape, array.dtype, sharding, weak)
    make: Any = type(array)
    known = _AVALS.get(key)  # once, as another thread may clear them
    if known is not None:  # no public function makes an array without checking, each time, that its shards fit
        result: jax.Array = make(known, sharding, tiles, committed=True, _skip_checks=True)
        return result
    result = jax.make_array_from_single_device_arrays(shape, sharding, tiles, dtype=array.dtype)
    if weak:  # nor one that is weakly typed, without computing it
        result = make(result.aval.update(weak_type=True), sharding, tiles, committed=True)
    if isinstance(sharding, NamedSharding) and not jnp.issubdtype(array.dtype, jax.dtypes.extended):
        if len(_AVALS) >= MOST_AVALS:
            _AVALS.clear()
        _AVALS[key] = result.aval
    return result


def _held(array: jax.Array) -> dict[Any, jax.Array]:
    """What each of this process's devices holds of an array."""
    sharding = array.sharding
    if isinstance(sharding, NamedSharding) and not array.is_fully_replicated:  # shards are slow to make
        return {device: array.addressable_data(k) for k, device in enumerate(_own(sharding.mesh))}
    return {shard.device: shard.data for shard in array.addressable_shards}


@lru_cache(maxsize=256)
def _own(mesh: jax.sharding.Mesh) -> tuple[Any, ...]:
    """This process's devices in the order of a mesh."""
    return tuple(device for device in mesh.devices.flat if device.process_index == jax.process_index())
