"""Boxes cut out on their senders, moved, and put together on their receivers: three programs, each of one launch.

The first runs on the devices of the inputs, and the last on those of the results. So no device holds tiles of others;
only boxes in transit lie on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.boxes import box, put
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.dummies import on_some, over_all, without_shards, zeros_like
from redistrib.backends.jax.memory_copies import loaded, stored
from redistrib.backends.jax.memory_kinds import in_default
from redistrib.backends.jax.move import CompiledMove, all_can_exist, rows
from redistrib.backends.jax.offsets import LARGEST_INDEX
from redistrib.backends.jax.rows import AXIS
from redistrib.backends.jax.values import as_dtype, bits_of
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.resharding.compiling import compiling
from redistrib.resharding.through.branches import branching
from redistrib.resharding.through.forms import Fetch, Form, evaluated
from redistrib.resharding.through.messages import Arrival, BoxRound, ConstantBoxes, SentLeaf
from redistrib.resharding.through.places import apart_from_places, received_buffers, sent_buffers
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Int64

Tile = tuple[tuple[int, ...], str]  # shape and element type
Starts: TypeAlias = Any  # an array of offsets: traced, or of numbers of Python


@dataclass(frozen=True)
class ThroughSide:
    """Devices of the inputs or of the results, with a tile of each array on each.

    Attributes:
        devices: in the order of their numbers among all devices.
        numbers: these numbers.
        tiles: of the arrays.
    """

    devices: tuple[Any, ...]
    numbers: tuple[int, ...]
    tiles: tuple[Tile, ...]

    @property
    def here(self) -> bool:
        """Whether a device of this process is among them."""
        return any(device.process_index == jax.process_index() for device in self.devices)

    def buffers(self, sizes: Mapping[str, int]) -> list[jax.ShapeDtypeStruct]:
        """A buffer on each of the devices for each type of elements, of so many elements."""
        return [self.rows(((size,), wire)) for wire, size in sizes.items()]

    def rows(self, tile: Tile) -> jax.ShapeDtypeStruct:
        """An array with a tile on each of the devices."""
        return rows(self.devices, tile[0], jnp.dtype(tile[1]))


class ThroughProgram:
    """The compiled move of some arrays.

    A device sends and receives one buffer for each type of elements. Devices that cut boxes of the same shapes out of
    the same arrays share code, and so do devices that join such boxes: where the boxes stand is data.

    Args:
        devices: of inputs and results, in the order of their numbers.
        source, target: the inputs' and the results' side.
        held: for each input the box of each device.
        sent, rounds: the boxes that are sent, and their order.
        constants: boxes that the host puts on receivers.
        arrivals, forms: for each receiver its arrivals, and the forms of its results.
        scalars: the element types of constants of one element that steps take, by the numbers of their leaves.
        largest_index: by which programs index arrays. Devices with boxes beyond it share no code with others.
    """

    def __init__(
        self,
        devices: Sequence[Any],
        source: ThroughSide,
        target: ThroughSide,
        held: Sequence[Mapping[int, Box]],
        sent: Sequence[SentLeaf],
        rounds: Sequence[BoxRound],
        constants: Sequence[ConstantBoxes],
        arrivals: Mapping[int, Mapping[Fetch, Arrival]],
        forms: Mapping[int, Sequence[Form]],
        scalars: Mapping[int, str],
        largest_index: int = LARGEST_INDEX,
    ) -> None:
        self._devices, self._source, self._target = tuple(devices), source, target
        self._largest_index = largest_index
        self._rounds, self._constants, self._scalars = tuple(rounds), tuple(constants), dict(scalars)
        contents, starts, self._sent = sent_buffers(sent, rounds, len(devices))
        places, self._received = received_buffers(rounds, constants)
        lowered: dict[str, Callable[[], CompiledMove]] = {}
        buffers = [each for sizes in (self._sent, self._received) for each in self._all.buffers(sizes)]
        every = [*map(source.rows, source.tiles), *map(target.rows, target.tiles), *buffers]
        exists = all_can_exist(every)
        if source.here and rounds and exists:
            lowered["pack"] = partial(self._packing, held, sent, contents)
        if rounds and exists:
            lowered["exchange"] = partial(self._exchanging, starts)
        if target.here and exists:
            lowered["unpack"] = partial(self._unpacking, arrivals, forms, places)
        programs = {name: wait() for name, wait in compiling(lowered).items()}
        self._pack, self._exchange, self._unpack = map(programs.get, ("pack", "exchange", "unpack"))

    @property
    def added_bytes(self) -> int:
        """Bytes per device besides inputs and results: boxes on their way, and scratch as the compiler reports it."""
        on_the_way = sum(
            size * jnp.dtype(wire).itemsize for sizes in (self._sent, self._received) for wire, size in sizes.items()
        )
        on_the_way += sum(each.size * jnp.dtype(each.wire).itemsize for each in self._constants)
        scratch = [
            program.scratch_bytes or 0 for program in (self._pack, self._exchange, self._unpack) if program is not None
        ]
        return on_the_way + max(scratch, default=0)

    @property
    def hlo(self) -> str:
        """The program that moves boxes between devices, as text."""
        return "" if self._exchange is None else self._exchange.hlo

    def __call__(
        self,
        arrays: Sequence[jax.Array],
        values: Mapping[int, np.ndarray],
        results: Sequence[jax.ShapeDtypeStruct],
    ) -> list[jax.Array]:
        """The results, each with the global shape, the sharding and the weak type of a placeholder.

        Args:
            arrays: the inputs.
            values: of the constants, by the numbers of their leaves.
            results: the placeholders.
        """
        source, target = self._source, self._target
        sent, received = self._sent, self._received
        buffers: list[Any] = []
        if self._pack is not None:
            tiles = [
                with_sharding(loaded(array), each.shape, each.sharding, weak=False)
                for array, each in zip(arrays, map(source.rows, source.tiles), strict=True)
            ]
            buffers = list(self._pack(*self._scalars_on(source, values), *tiles))
        else:
            buffers = [without_shards(each.shape, each.dtype, each.sharding) for each in source.buffers(sent)]
        if self._exchange is not None:
            buffers_everywhere = [
                over_all(each, to.shape, to.sharding) for each, to in zip(buffers, self._all.buffers(sent), strict=True)
            ]
            buffers = list(self._exchange(*buffers_everywhere))
        if self._unpack is None:
            jax.block_until_ready(buffers)  # no result shows here that the exchange has ended
            return [without_shards(each.shape, each.dtype, each.sharding) for each in results]
        arrived = [
            on_some(each, to.shape, to.sharding) for each, to in zip(buffers, target.buffers(received), strict=True)
        ]
        placed = [self._put(each, values) for each in self._constants]
        unpacked = self._unpack(*self._scalars_on(target, values), *arrived, *placed)
        return [
            stored(with_sharding(array, each.shape, in_default(each.sharding), weak=each.weak_type), each.sharding)
            if array.size
            else zeros_like(array, each.sharding, each.shape)
            for array, each in zip(unpacked, results, strict=True)
        ]

    def _put(self, constants: ConstantBoxes, values: Mapping[int, np.ndarray]) -> jax.Array:
        """The boxes of constants on the receivers of this process."""
        where = self._target.rows(((constants.size,), constants.wire))

        def boxes(index: tuple[slice, ...]) -> np.ndarray:
            receiver = self._target.numbers[(index[0].start or 0) // constants.size]
            flat = np.zeros(constants.size, constants.wire)
            start = 0
            for leaf, inside in constants.boxes.get(receiver, ()):
                part = np.ascontiguousarray(values[leaf][inside.slices()]).reshape(-1)
                flat[start : start + part.size] = part.view(constants.wire)
                start += part.size
            return flat

        return _from_host(where, boxes)

    def _scalars_on(self, side: ThroughSide, values: Mapping[int, np.ndarray]) -> list[jax.Array]:
        """The scalars on the devices of a side, in the order of their leaves' numbers."""
        return [_from_host(side.rows(((), dtype)), partial(_same, values[k])) for k, dtype in self._scalars.items()]

    def _scalar_shapes(self, side: ThroughSide) -> list[jax.ShapeDtypeStruct]:
        return [side.rows(((), dtype)) for dtype in self._scalars.values()]

    def _split(self, args: Sequence[jax.Array]) -> tuple[dict[int, jax.Array], Sequence[jax.Array]]:
        """The scalars by the numbers of their leaves, and the other arguments."""
        count = len(self._scalars)
        return dict(zip(self._scalars, args[:count], strict=True)), args[count:]

    @property
    def _all(self) -> ThroughSide:
        """All devices."""
        return ThroughSide(self._devices, tuple(range(len(self._devices))), ())

    def _packing(
        self,
        held: Sequence[Mapping[int, Box]],
        sent: Sequence[SentLeaf],
        contents: Mapping[int, Sequence[tuple[int, Box]]],
    ) -> CompiledMove:
        """The data that each device sends, with the steps that come before the move."""
        by_device = [(number, contents.get(number, ())) for number in self._source.numbers]
        starts = [
            [start for number, inside in several for start in inside.offset_in(held[sent[number].leaf][device])]
            for device, several in by_device
        ]
        cuts = [tuple((number, inside.size) for number, inside in several) for _, several in by_device]
        run = branching([(cut, partial(self._cutting, sent, cut)) for cut in cuts], starts, self._largest_index)
        ins = [*self._scalar_shapes(self._source), *map(self._source.rows, self._source.tiles)]
        return CompiledMove(run, ins, tuple(self._source.buffers(self._sent)))

    def _cutting(self, sent: Sequence[SentLeaf], cut: Sequence[tuple[int, tuple[int, ...]]]) -> Any:
        """The work of a device that sends boxes of these sizes, on the starts of the boxes and its tiles."""

        def run(starts: Starts, *args: jax.Array) -> tuple[jax.Array, ...]:
            scalars, tiles = self._split(args)
            flat: dict[str, list[jax.Array]] = {wire: [] for wire in self._sent}
            place = 0
            for number, size in cut:
                each = sent[number]
                tile = tiles[each.leaf]
                bits = None if each.steps else bits_of(tile.dtype)
                part = as_dtype(tile, bits)
                if part.shape != size:
                    part = box(part, [starts[place + k] for k in range(len(size))], size)
                place += len(size)
                for step in each.steps:
                    part = step(part, scalars)
                part = part if bits is not None else as_dtype(part, bits_of(part.dtype))
                # Else XLA:CPU makes one loop over flat elements, and divides for each to find its place.
                flat[each.wire].append(lax.reshape(lax.optimization_barrier(part), (math.prod(size),)))
            return tuple(
                _filled(parts, size, wire)
                for (wire, size), parts in zip(self._sent.items(), flat.values(), strict=True)
            )

        return run

    def _exchanging(self, starts: Int64) -> CompiledMove:
        """One permute for each round, except for boxes that stay on their device."""
        devices = len(self._devices)
        context = LoweringContext((AXIS,), (devices,), tuple(range(devices)), largest_index=self._largest_index)

        def run(*buffers: jax.Array) -> tuple[jax.Array, ...]:
            by_wire = dict(zip(self._sent, buffers, strict=True))
            moved: dict[str, list[jax.Array]] = {wire: [] for wire in by_wire}
            for k, each in enumerate(self._rounds):
                senders = [sender for sender, _ in each.pairs]
                column = np.full((devices, 1), starts[senders[0], k])  # others send nothing, from anywhere
                column[senders, 0] = starts[senders, k]
                part = box(by_wire[each.wire], context.offsets(column), (each.size,))
                is_kept = all(a == b for a, b in each.pairs)
                moved[each.wire].append(part if is_kept else lax.ppermute(part, AXIS, each.pairs))
            return tuple(parts[0] if len(parts) == 1 else lax.concatenate(parts, 0) for parts in moved.values())

        sent, received = (self._all.buffers(sizes) for sizes in (self._sent, self._received))
        reused = range(len(sent)) if self._sent == self._received else ()
        return CompiledMove(run, sent, tuple(received), reused)

    def _unpacking(
        self,
        arrivals: Mapping[int, Mapping[Fetch, Arrival]],
        forms: Mapping[int, Sequence[Form]],
        places: Sequence[tuple[int, int]],
    ) -> CompiledMove:
        """Each receiver's results."""
        receivers = [apart_from_places(forms[number], arrivals[number], places) for number in self._target.numbers]
        works = [((made, arriving), partial(self._joining, made, arriving)) for made, arriving, _ in receivers]
        run = branching(works, [starts for *_, starts in receivers], self._largest_index)
        outs = [self._target.rows(tile) for tile in self._target.tiles]
        constants = [self._target.rows(((each.size,), each.wire)) for each in self._constants]
        received = self._target.buffers(self._received)
        ins = [*self._scalar_shapes(self._target), *received, *constants]
        return CompiledMove(run, ins, tuple(outs))

    def _joining(self, forms: Sequence[Form], arrivals: Sequence[Arrival]) -> Any:
        """The work of a device for its results, on the starts of the boxes in its buffers and on the buffers."""

        def run(starts: Starts, *args: jax.Array) -> tuple[jax.Array, ...]:
            scalars, buffers = self._split(args)

            def fetched(fetch: Fetch) -> jax.Array:
                arrival = arrivals[fetch.leaf]
                shape = fetch.box.size
                parts = [
                    lax.reshape(box(buffers[buffer], [starts[number]], (inside.volume,)), inside.size)
                    for buffer, number, inside in arrival.parts
                ]
                places = [inside for *_, inside in arrival.parts]
                if len(parts) == 1 and parts[0].shape == shape:
                    whole = parts[0]
                elif (dim := _stacked_along(shape, places)) is not None:
                    ordered = sorted(range(len(parts)), key=lambda k: places[k].start[dim])
                    whole = lax.concatenate([parts[k] for k in ordered], dim)
                else:
                    wire = parts[0].dtype if parts else jnp.dtype(arrival.dtype)
                    whole = jnp.zeros(shape, wire)
                    for part, inside in zip(parts, places, strict=True):
                        whole = put(whole, part, inside.start)
                dtype = jnp.dtype(arrival.dtype)
                whole = as_dtype(whole, None if whole.dtype == dtype else dtype)
                for step in fetch.steps[arrival.early :]:
                    whole = step(whole, scalars)
                return whole

            return tuple(evaluated(form, fetched, scalars) for form in forms)

        return run


def _from_host(like: jax.ShapeDtypeStruct, part: Callable[[Any], np.ndarray]) -> jax.Array:
    with jax.transfer_guard_host_to_device("allow"):  # as for the constants of a compiled function
        return jax.make_array_from_callback(like.shape, like.sharding, part)


def _same(value: np.ndarray, _: Any) -> np.ndarray:
    return value


def _filled(parts: Sequence[jax.Array], size: int, wire: str) -> jax.Array:
    """Flat arrays end to end, with zeros behind them up to so many elements."""
    left = size - sum(part.size for part in parts)
    every = [*parts, *([jnp.zeros(left, wire)] if left else [])]
    return every[0] if len(every) == 1 else lax.concatenate(every, 0)


def _stacked_along(shape: tuple[int, ...], parts: Sequence[Box]) -> int | None:
    """The dimension along which parts lie end to end and make up the whole; None where they do not."""
    for dim, size in enumerate(shape):
        others = {(part.size[:dim], part.size[dim + 1 :]) for part in parts}
        if others == {(shape[:dim], shape[dim + 1 :])}:
            edges = sorted(part.edges[dim] for part in parts)
            starts = [0, *(end for _, end in edges)]
            return dim if [start for start, _ in edges] == starts[:-1] and starts[-1] == size else None
    return None
