"""Plans between two meshes over the same devices, carried out on tiles alone.

The shards of an array are rewrapped, without a copy, as the rows of one array cut along its first dimension over a
flat mesh of the devices; the plan's program runs there; and the rows that come out are rewrapped as the shards of the
target. So source and target may name and order the devices as they like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding, use_abstract_mesh

from redistrib.backends.jax.boxes import box, ratio
from redistrib.backends.jax.execute import bits_of, carried
from redistrib.backends.jax.frame import Frame, Schedule, frame_of
from redistrib.backends.jax.lowering import local_program
from redistrib.backends.jax.pile import company, piled, way_of
from redistrib.backends.jax.rewrap import argument, rewrapped
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Exchange

AXIS = "devices"

# What leaves bfloat16 as it is: nothing is computed here, so XLA:CPU has no need to widen it.
AS_IT_IS = {"xla_disable_hlo_passes": "float-normalization-bf16"}


@dataclass(frozen=True)
class Load:
    """Arrays of one shape that go through one plan.

    Without a `schedule`, it is the one that the plan's memory limit asks for; see `redistrib.backends.jax.lowering`.

    Attributes:
        plan: what each array goes through; of rank 1 at least.
        dtype: of the arrays.
        count: how many there are.
        stacked: whether their tiles travel side by side in the same collectives: fewer of them, two more copies. Whole
            tiles that go one way do so whatever their shapes, with those of other such loads.
        reuses: whether outputs take the place of inputs in memory, which are then gone; needs tiles of one shape.
        schedule: of rounds.
    """

    plan: Plan
    dtype: Any
    count: int = 1
    stacked: bool = False
    reuses: bool = False
    schedule: Schedule | None = None

    @property
    def cut_bytes(self) -> int:
        """Bytes on a device of tiles of which boxes are cut out or written, by loops that compilers make.

        Whole tiles are permuted and gathered as they are, or row by row.
        """
        plan = self.plan
        if all(isinstance(step, AllGather | AllPermute) for step in plan.steps):
            return 0
        return self.count * (plan.before.tile_size + plan.after.tile_size) * plan.itemsize

    def rows(self, tile: Sequence[int]) -> tuple[int, ...]:
        """The shape of an array that has a tile on every device, cut along its first dimension."""
        return (self.plan.devices * tile[0], *tile[1:])


class FlatProgram:
    """Plans for several arrays at once, over devices in the order of their numbers.

    Made, it is lowered; `compile` is apart so that several may be compiled at the same time. The compiler is given
    `options`. A `numbered` program is given numbers that the compiler does not see, if that makes it quick to compile;
    they stay on the devices, in 4 bytes each.

    Attributes:
        loads: what one call moves, one load after the other.
        devices: over which all plans run.
    """

    def __init__(
        self,
        loads: Sequence[Load],
        devices: Sequence[Any],
        options: Mapping[str, Any] | None = None,
        *,
        numbered: bool = False,
    ) -> None:
        self.loads, self.devices, self._options = tuple(loads), tuple(devices), dict(options or {})
        self._mesh = jax.sharding.Mesh(np.array(self.devices), (AXIS,), axis_types=(AxisType.Auto,))
        self._sharding = NamedSharding(self._mesh, PartitionSpec(AXIS))
        self._packed = any(_is_packed(load.dtype) for load in self.loads)
        plain = self.devices[0].platform == "cpu" and not self._packed and any(map(_is_bfloat16, self.loads))
        movers = self._movers(plain)
        most = max(mover.numbers for mover, _ in movers) if numbered else 0
        self._numbers = tuple(
            argument(number, (), NamedSharding(self._mesh, PartitionSpec()))
            for number in numbers(frozenset(devices), most)
        )
        self._plain, self._done = plain, None
        self._jitted, self._lowered = self._lower(movers)

    def _movers(self, plain: bool) -> list[_Placed]:
        """What moves the arrays, each with the places of those that it moves."""
        each = list(self._each())
        piles: dict[Hashable, list[int]] = {}
        movers: list[_Placed] = []
        end = 0
        for load in self.loads:
            places = range(end, end + load.count)
            end += load.count
            others = company(load.plan, load.dtype, self.devices[0].platform) if load.stacked else None
            if others is None:
                movers.append((_Mover(load, self.devices, plain), places))
            else:
                piles.setdefault(others, []).extend(places)
        return movers + [
            (_Pile([each[k] for k in several], self.devices, plain), several) for several in piles.values()
        ]

    def _lower(self, movers: Sequence[_Placed]) -> tuple[Any, Any]:
        """The program, and the same lowered."""
        arrays = [
            jax.ShapeDtypeStruct(load.rows(load.plan.before.tile), load.dtype, sharding=self._sharding)
            for load in self._each()
        ]
        reused = tuple(k for k, load in enumerate(self._each(), start=1) if load.reuses)
        with alone_on(self._mesh):
            mapped = jax.shard_map(
                _moving(movers),
                mesh=self._mesh,
                in_specs=(PartitionSpec(), *[PartitionSpec(AXIS)] * len(arrays)),
                out_specs=PartitionSpec(AXIS),
                check_vma=False,
            )
            jitted = jax.jit(mapped, donate_argnums=reused)
            return jitted, jitted.lower(self._numbers, *arrays)

    def _each(self) -> Iterator[Load]:
        """The load of every array."""
        for load in self.loads:
            yield from repeat(load, load.count)

    def compile(self) -> FlatProgram:
        """The program, compiled; at once if it has been before."""
        if self._done is None:
            self._done = self._made()
        return self

    @property
    def _compiled(self) -> Any:  # a cached property of Python 3.11 would let no two programs compile at a time
        return self.compile()._done

    def _made(self) -> Any:
        if self._plain:
            compiled = self._compiled_with(self._options | AS_IT_IS)
            if not _is_widened(str(compiled.as_text())):
                return compiled
            # Another compiler than was known: the integers that it cannot widen take longer to compile and to run.
            self._jitted, self._lowered = self._lower(self._movers(False))
        return self._compiled_with(self._options)

    def _compiled_with(self, options: Mapping[str, Any]) -> Any:
        """The program compiled with options, or without where the compiler is one that does not know them all."""
        try:
            return self._lowered.compile(compiler_options=dict(options) or None)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
            return self._lowered.compile()

    @cached_property
    def added_bytes(self) -> int:
        """Bytes per device that a call takes besides its inputs: outputs and scratch, as the compiler reports them."""
        sizes = self._compiled.memory_analysis()
        if sizes is None:
            return sum(load.plan.peak_bytes - load.plan.before.tile_size * load.plan.itemsize for load in self._each())
        return int(sizes.output_size_in_bytes - sizes.alias_size_in_bytes + sizes.temp_size_in_bytes)

    def hlo(self) -> str:
        """The compiled program as text."""
        return str(self._compiled.as_text())

    def __call__(self, arrays: Sequence[jax.Array], targets: Sequence[Sharding]) -> list[jax.Array]:
        """Move arrays, each to its target, a sharding over the same devices."""
        loads = list(self._each())
        shapes = [load.rows(load.plan.before.tile) for load in loads]
        if self._packed:
            rows = [rewrapped(*each, self._sharding, weak=False) for each in zip(arrays, shapes, strict=True)]
            # Rewrapped, arrays of packed elements do not say that they are packed, and an executable minds.
            with alone_on(self._mesh):
                moved = self._jitted(self._numbers, *rows)
        else:
            rows = [argument(*each, self._sharding) for each in zip(arrays, shapes, strict=True)]
            moved = self._compiled(self._numbers, *rows)
        return [
            rewrapped(result, load.plan.shape, target, weak=bool(array.aval.weak_type))
            for array, result, load, target in zip(arrays, moved, loads, targets, strict=True)
        ]


class _Mover:
    """The program of one load on one device.

    Attributes:
        numbers: how many of the frame's numbers it has use for.
    """

    def __init__(self, load: Load, devices: Sequence[Any], plain: bool) -> None:
        self._load, self._plain = load, plain and _is_bfloat16(load)
        self._frame = _frame(load, devices)
        parts = [max(ratio(step.after, step.before)) for step in load.plan.steps if isinstance(step, AllToAll)]
        own = [load.count] if load.stacked else []
        self.numbers = max(parts + own, default=0) if self._frame.unique else 0
        self._is_long = any(isinstance(step, AllToAll | Exchange) for step in load.plan.steps)

    def __call__(self, tiles: Sequence[jax.Array], numbers: tuple[jax.Array, ...]) -> list[jax.Array]:
        if not self._load.stacked or len(tiles) == 1:
            # Traced and lowered once for all the arrays, if that is worth a function.
            one = jax.jit(self._moved) if len(tiles) > 1 and self._is_long else self._moved
            return [one(tile, numbers) for tile in tiles]
        bits = None if self._plain else bits_of(self._load.dtype)
        stack = lax.concatenate([lax.expand_dims(_as(tile, bits), (0,)) for tile in tiles], 0)
        moved = jax.vmap(self._moved, in_axes=(0, None))(stack, numbers)
        frame = replace(self._frame, numbers=numbers)
        rows = [box(moved, [frame.number(k)], (1,)).reshape(moved.shape[1:]) for k in range(len(tiles))]
        return [_as(row, bits and self._load.dtype) for row in rows]

    def _moved(self, tile: jax.Array, numbers: tuple[jax.Array, ...]) -> jax.Array:
        program = local_program(self._load.plan.steps, replace(self._frame, numbers=numbers))
        return program(tile) if self._plain else carried(program)(tile)


class _Pile:
    """The program of loads whose tiles travel in one pile, on one device; of each load as many arrays as are given.

    Attributes:
        numbers: how many of the frame's numbers it has use for.
    """

    def __init__(self, loads: Sequence[Load], devices: Sequence[Any], plain: bool) -> None:
        self._plans, self._dtype = [load.plan for load in loads], loads[0].dtype
        self._bits = None if plain and _is_bfloat16(loads[0]) else bits_of(self._dtype)
        self._frame = _frame(loads[0], devices)
        self.numbers = len(loads) if self._frame.unique else 0

    def __call__(self, tiles: Sequence[jax.Array], numbers: tuple[jax.Array, ...]) -> list[jax.Array]:
        way, frame = way_of(self._plans[0]), replace(self._frame, numbers=numbers)
        assert way is not None
        moved = piled([_as(tile, self._bits) for tile in tiles], self._plans, way, frame)
        return [_as(tile, self._bits and self._dtype) for tile in moved]


_Placed: TypeAlias = tuple[_Mover | _Pile, Sequence[int]]


def _frame(load: Load, devices: Sequence[Any]) -> Frame:
    """Where a load runs."""
    order, platform = tuple(range(load.plan.devices)), devices[0].platform
    frame = frame_of(load.plan, (AXIS,), (load.plan.devices,), order, load.schedule, platform)
    return replace(frame, batched=load.stacked, apart=platform == "cpu")


def _moving(movers: Sequence[_Placed]) -> Callable[..., tuple[jax.Array, ...]]:
    """What one device does with its tiles."""

    def run(numbers: tuple[jax.Array, ...], *tiles: jax.Array) -> tuple[jax.Array, ...]:
        moved: dict[int, jax.Array] = {}
        for mover, places in movers:
            moved |= zip(places, mover([tiles[k] for k in places], numbers), strict=True)
        return tuple(moved[k] for k in range(len(tiles)))

    return run


# The numbers below a count, on all of some devices.
_NUMBERS: dict[frozenset[Any], tuple[jax.Array, ...]] = {}


def numbers(devices: frozenset[Any], count: int) -> tuple[jax.Array, ...]:
    """0, 1, 2 and so on below `count`, each a scalar that every device holds, to be given to programs."""
    known = _NUMBERS.get(devices, ())
    if len(known) < count:
        mesh = jax.sharding.Mesh(np.array(sorted(devices, key=lambda device: device.id)), (AXIS,))
        values = tuple(map(np.int32, range(1 << (count - 1).bit_length())))
        with alone_on(mesh):
            make = jax.jit(lambda: values, out_shardings=NamedSharding(mesh, PartitionSpec()))
            known = make.lower().compile()()  # called as it is, it would be traced where something is traced
        _NUMBERS[devices] = known
    return known[:count]


def forget() -> None:
    """Let the numbers go; programs that were given some keep them."""
    _NUMBERS.clear()


@contextmanager
def alone_on(mesh: jax.sharding.Mesh) -> Iterator[None]:
    """A context in which no other mesh, such as one that the caller has set, is taken for ours."""
    try:
        context: Any = jax.set_mesh(mesh)
    except ValueError:  # while something is traced only the abstract mesh can be set
        context = use_abstract_mesh(mesh.abstract_mesh)
    with context:
        yield


def _as(tile: jax.Array, dtype: Any) -> jax.Array:
    """The same bits in another dtype, if one is given."""
    return tile if dtype is None else lax.bitcast_convert_type(tile, dtype)


def _is_bfloat16(load: Load) -> bool:
    return bool(load.dtype == jnp.bfloat16)


def _is_widened(text: str) -> bool:
    """Whether a compiled program makes 32-bit floats of others."""
    return re.search(r"= f32\[[^]]*\]\S* convert\(", text) is not None


def _is_packed(dtype: Any) -> bool:
    """Whether elements are smaller than a byte."""
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).bits < 8
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 8
