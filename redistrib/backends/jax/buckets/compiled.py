"""Compiled programs that move several arrays by their plans, as rows of tiles over a flat mesh of devices.

The shards of an array become rows without a copy (see `rows`), and the rows of the result become the shards of the
target. So the meshes of source and target may name and order the devices in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import repeat
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax.boxes import box, ratio
from redistrib.backends.jax.buckets.coalesced import coalesced, coalescing_key, pattern_of
from redistrib.backends.jax.context import context_of
from redistrib.backends.jax.dummies import on_some, over_all
from redistrib.backends.jax.move import CompiledMove, can_exist, rows
from redistrib.backends.jax.padding import tile_program
from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.rows import AXIS, line_of
from redistrib.backends.jax.values import as_dtype, as_integer_bits, bits_of, is_packed
from redistrib.backends.jax.with_sharding import argument, with_sharding
from redistrib.cache import Cache
from redistrib.launches.moves import PlanEntry
from redistrib.plans.steps import AllToAll, Exchange

# The arrays on their targets, and arrays that show that the launch has ended: with shards on all devices of this
# process that take part, also where it has no device of a target.
Launched: TypeAlias = tuple[list[jax.Array], list[jax.Array]]


class CompiledBucket:
    """A program that moves several arrays by their plans, over devices in the order of their numbers.

    The constructor lowers the program; `compile` is a separate call, so that several programs may compile at the same
    time. A `numbered` program takes numbers as arguments, so that the compiler does not see their values, if it then
    compiles faster. The numbers stay on the devices, in 4 bytes each.

    XLA ends the process at arrays of 2^63 bytes. No machine has any, so their program is not lowered, and its memory is
    what plans predict.

    Attributes:
        entries: the arrays of one call, one entry after the other.
        devices: of all plans.
    """

    def __init__(
        self,
        entries: Sequence[PlanEntry],
        devices: Sequence[Any],
        *,
        numbered: bool = False,
    ) -> None:
        self.entries, self.devices = tuple(entries), tuple(devices)
        self._packed = any(is_packed(entry.dtype) for entry in self.entries)
        self._exists = all(
            can_exist((entry.plan.devices, entry.plan.height), entry.plan.itemsize) for entry in self.entries
        )
        self._is_compiled = False
        if not self._exists:
            return
        self._rows = [rows(self.devices, entry.plan.source.local_shape, entry.dtype) for entry in self._entries()]
        self._platform = Platform(self.devices[0].platform, tuple(device.process_index for device in self.devices))
        self._quirks = self._platform.quirks
        self._widening = self._quirks.widening if self._moves_bfloat16() else None
        movers = self._movers()
        most = max(mover.numbers for mover, _ in movers) if numbered else 0
        number = rows(self.devices, (), np.int32)
        self._numbers = tuple(argument(each, (), number.sharding) for each in numbers(frozenset(devices), most))
        self._move = self._lower(movers)
        if self._widening is not None and self._widening.selecting.search(self._move.text):
            self._lower_as_integers()

    def _moves_bfloat16(self) -> bool:
        """Whether the program could move bfloat16 as it is: it moves some, adds none, and has no packed elements."""
        adds = any(step.on_sums for entry in self.entries for step in entry.plan.steps)
        return not self._packed and not adds and any(map(_is_bfloat16, self.entries))

    def _lower_as_integers(self) -> None:
        """Lower the program anew, with integers in place of bfloat16, which take longer to compile and to run."""
        self._widening = None
        self._move = self._lower(self._movers())

    def _movers(self) -> list[_Placed]:
        """The functions that move the arrays, each with the numbers of its arrays."""
        entries = list(self._entries())
        alone: list[Sequence[int]] = []
        together: dict[Hashable, list[int]] = {}
        end = 0
        for entry in self.entries:
            places = range(end, end + entry.count)
            end += entry.count
            key = coalescing_key(entry.plan, entry.dtype, self._quirks) if entry.stacked else None
            if key is None:
                alone.append(places)
            else:
                together.setdefault(key, []).extend(places)
        return [
            (_Mover([entries[k] for k in places], self._platform, self._widening is not None, is_together), places)
            for is_together, several in ((False, alone), (True, together.values()))
            for places in several
        ]

    def _lower(self, movers: Sequence[_Placed]) -> CompiledMove:
        count = len(self._numbers)
        scalars = [rows(self.devices, (), np.int32)] * count
        reused = [count + k for k, entry in enumerate(self._entries()) if entry.reused]
        return CompiledMove(_moving(movers, count), [*scalars, *self._rows], tuple(self._rows), reused)

    def _entries(self) -> Iterator[PlanEntry]:
        """The entry of every array."""
        for entry in self.entries:
            yield from repeat(entry, entry.count)

    def compile(self) -> CompiledBucket:
        """The compiled program; the first call compiles it."""
        if self._exists and not self._is_compiled:
            options = self._quirks.compiler_options(
                sum(entry.plan.before.tile_size * entry.plan.itemsize for entry in self._entries())
            )
            if self._widening is not None:
                self._move.compile({**options, **self._widening.options})
                if self._widening.converting.search(self._move.hlo):
                    self._lower_as_integers()  # the compiler ignored the options
            self._move.compile(options)
            self._is_compiled = True
        return self

    @cached_property
    def added_bytes(self) -> int:
        """Bytes per device that a call takes besides its inputs: outputs and scratch, as the compiler reports them."""
        reported = self.compile()._move.added_bytes if self._exists else None
        if reported is not None:
            return reported
        return sum(
            entry.plan.peak_bytes - entry.plan.before.tile_size * entry.plan.itemsize for entry in self._entries()
        )

    def hlo(self) -> str:
        """The compiled program as text."""
        return self.compile()._move.hlo

    def __call__(self, arrays: Sequence[jax.Array], targets: Sequence[Sharding]) -> list[jax.Array]:
        """Move arrays to their targets; each array and target is on some or all devices of the program."""
        return self.launch(arrays, targets)[0]

    def launch(self, arrays: Sequence[jax.Array], targets: Sequence[Sharding]) -> Launched:
        """Move arrays to their targets, which may have no device of this process."""
        tiles = list(map(self._row, arrays, self._rows))
        moved = self.compile()._move(*self._numbers, *tiles)
        results = [
            with_sharding(result, entry.plan.target.padded_shape, target, weak=bool(array.aval.weak_type))
            if array.ndim == len(entry.plan.shape)
            else on_some(result, array.shape, target)
            for array, result, entry, target in zip(arrays, moved, self._entries(), targets, strict=True)
        ]
        return results, list(moved)

    def _row(self, array: jax.Array, row: jax.ShapeDtypeStruct) -> jax.Array:
        """An array as an argument of the program."""
        if array.sharding.device_set != row.sharding.device_set:
            return over_all(array, row.shape, row.sharding)
        if self._packed:
            return with_sharding(array, row.shape, row.sharding, weak=False)
        return argument(array, row.shape, row.sharding)


class _Mover:
    """The program of some arrays on a device: of one entry, or of several whose tiles are coalesced.

    Attributes:
        numbers: how many of the context's numbers it uses.
    """

    def __init__(self, entries: Sequence[PlanEntry], platform: Platform, plain: bool, together: bool) -> None:
        self._plans, self._first = [entry.plan for entry in entries], entries[0]
        plan, self._stacked = self._first.plan, self._first.stacked
        self._pattern = pattern_of(plan) if together else None
        self._plain = plain and _is_bfloat16(self._first)
        order = tuple(range(plan.devices))
        context = context_of(plan, (AXIS,), (plan.devices,), order, self._first.schedule, platform)
        self._context = replace(context, batched=self._stacked)
        parts = [max(ratio(step.after, step.before)) for step in plan.steps if isinstance(step, AllToAll)]
        places = [len(entries)] if self._stacked else []
        self.numbers = max(parts + places, default=0) if context.quirks.numbers else 0
        self._is_long = any(isinstance(step, AllToAll | Exchange) for step in plan.steps)

    def __call__(self, tiles: Sequence[jax.Array], numbers: tuple[jax.Array, ...]) -> list[jax.Array]:
        if not self._pattern and (not self._stacked or len(tiles) == 1):
            # Traced and lowered once for all arrays, if the plan is long.
            move = jax.jit(self._moved) if len(tiles) > 1 and self._is_long else self._moved
            return [move(tile, numbers) for tile in tiles]
        dtype, context = self._first.dtype, replace(self._context, numbers=numbers)
        bits = None if self._plain else bits_of(dtype)
        bare = (as_dtype(tile, bits) for tile in tiles)
        if self._pattern:
            with jax.named_scope(f"redistrib:{len(tiles)}_coalesced"):
                rows = coalesced(list(bare), self._plans, self._pattern, context)
        else:
            stack = lax.concatenate([lax.expand_dims(tile, (0,)) for tile in bare], 0)
            moved = jax.vmap(self._moved, in_axes=(0, None))(stack, numbers)
            rows = [box(moved, [context.number(k)], (1,)).reshape(moved.shape[1:]) for k in range(len(tiles))]
        return [as_dtype(row, bits and dtype) for row in rows]

    def _moved(self, tile: jax.Array, numbers: tuple[jax.Array, ...]) -> jax.Array:
        program = tile_program(self._first.plan, replace(self._context, numbers=numbers))
        return program(tile) if self._plain else as_integer_bits(program)(tile)


_Placed: TypeAlias = tuple[_Mover, Sequence[int]]


def _moving(movers: Sequence[_Placed], count: int) -> Callable[..., tuple[jax.Array, ...]]:
    """The program of one device on so many numbers and its tiles."""

    def run(*args: jax.Array) -> tuple[jax.Array, ...]:
        numbers, tiles = args[:count], args[count:]
        moved: dict[int, jax.Array] = {}
        for mover, places in movers:
            moved |= zip(places, mover([tiles[k] for k in places], numbers), strict=True)
        return tuple(moved[k] for k in range(len(tiles)))

    return run


# The numbers below a power of two, on all of some devices; programs hold those that they use.
_NUMBERS: Cache[tuple[jax.Array, ...]] = Cache(256)


def numbers(devices: frozenset[Any], count: int) -> tuple[jax.Array, ...]:
    """The numbers 0 to `count - 1`, each a scalar on every device, as arguments of programs."""
    if not count:
        return ()
    power = 1 << (count - 1).bit_length()

    def scalars() -> tuple[jax.Array, ...]:
        everywhere = NamedSharding(line_of(sorted(devices, key=lambda device: device.id)), PartitionSpec())
        # A program that makes the numbers takes longer to compile than many programs that take them as arguments.
        with jax.transfer_guard_host_to_device("allow"):  # a guard concerns arrays of users; these belong to programs
            return tuple(
                jax.make_array_from_callback((), everywhere, partial(_same, np.int32(value))) for value in range(power)
            )

    return _NUMBERS.get((devices, power), scalars)[:count]


def _same(value: np.int32, _: Any) -> np.int32:
    return value


def _is_bfloat16(entry: PlanEntry) -> bool:
    return bool(entry.dtype == jnp.bfloat16)
