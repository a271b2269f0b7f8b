"""Boxes cut out on their senders, moved, and put together on their receivers: three programs, each of one launch.

The first runs on the devices of the inputs, and the last on those of the results, so no device holds a tile that is not
its own; only boxes on their way stand on both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, Sharding

from redistrib.backends.jax.dummies import on_some, over_all, without_shards
from redistrib.backends.jax.rows import AXIS, line_of, over_tiles, rows_shape, rows_spec
from redistrib.backends.jax.sharding import alone_on
from redistrib.backends.jax.values import as_dtype, bits_of
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.resharding.through.forms import Fetch, Form, evaluated
from redistrib.resharding.through.messages import Arrival, BoxMessage, BoxRound

Tile = tuple[tuple[int, ...], str]  # shape and element type


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

    def rows(self, tile: Tile) -> jax.ShapeDtypeStruct:
        """An array with a tile on each of the devices."""
        sharding = NamedSharding(line_of(self.devices), rows_spec(len(tile[0])))
        return jax.ShapeDtypeStruct(rows_shape(len(self.devices), tile[0]), jnp.dtype(tile[1]), sharding=sharding)


class ThroughProgram:
    """What moves some arrays, compiled.

    Args:
        devices: of inputs and results, in the order of their numbers.
        source, target: the inputs' and the results' side.
        origins: for each input the first element of each device's tile.
        messages, rounds: what is sent.
        arrivals, forms: for each receiver what arrives, and what its results are made of.
    """

    def __init__(
        self,
        devices: Sequence[Any],
        source: ThroughSide,
        target: ThroughSide,
        origins: Sequence[Mapping[int, Sequence[int]]],
        messages: Sequence[BoxMessage],
        rounds: Sequence[BoxRound],
        arrivals: Mapping[int, Mapping[Fetch, Arrival]],
        forms: Mapping[int, Sequence[Form]],
    ) -> None:
        self._devices, self._source, self._target = tuple(devices), source, target
        self._messages, self._rounds = tuple(messages), tuple(rounds)
        self._pack = self._packing(origins) if source.here and rounds else None
        self._exchange = self._exchanging() if rounds else None
        self._unpack = self._unpacking(arrivals, forms) if target.here else None

    @property
    def added_bytes(self) -> int:
        """Bytes per device besides inputs and results: boxes on their way, and scratch as the compiler reports it."""
        on_the_way = sum(each.size * jnp.dtype(each.wire).itemsize for each in self._rounds)
        scratch = [_scratch(program) for program in (self._pack, self._exchange, self._unpack) if program is not None]
        return 2 * on_the_way + max(scratch, default=0)

    @property
    def hlo(self) -> str:
        """The program that moves boxes between devices, as text."""
        return "" if self._exchange is None else str(self._exchange.as_text())

    def __call__(
        self, arrays: Sequence[jax.Array], shapes: Sequence[tuple[int, ...]], targets: Sequence[Sharding]
    ) -> list[jax.Array]:
        """The results, each of a global shape under a sharding."""
        source, target = self._source, self._target
        buffers: list[Any] = []
        if self._pack is not None:
            rows = [
                with_sharding(array, each.shape, each.sharding, weak=False)
                for array, each in zip(arrays, map(source.rows, source.tiles), strict=True)
            ]
            buffers = list(self._pack(*rows))
        else:
            buffers = [without_shards(each.shape, each.dtype, each.sharding) for each in self._buffers(source)]
        if self._exchange is not None:
            everywhere = self._buffers(self._all)
            given = [over_all(each, to.shape, to.sharding) for each, to in zip(buffers, everywhere, strict=True)]
            buffers = list(self._exchange(*given))
        if self._unpack is None:
            dtypes = [tile[1] for tile in target.tiles]
            return [
                without_shards(shape, jnp.dtype(dtype), sharding)
                for shape, dtype, sharding in zip(shapes, dtypes, targets, strict=True)
            ]
        arrived = [
            on_some(each, to.shape, to.sharding) for each, to in zip(buffers, self._buffers(target), strict=True)
        ]
        made = self._unpack(*arrived)
        return [
            with_sharding(array, shape, sharding, weak=False)
            for array, shape, sharding in zip(made, shapes, targets, strict=True)
        ]

    @property
    def _all(self) -> ThroughSide:
        """All devices."""
        return ThroughSide(self._devices, (), ())

    def _buffers(self, side: ThroughSide) -> list[jax.ShapeDtypeStruct]:
        """What each device sends, or receives, in all rounds end to end: a buffer for each type of elements."""
        sizes: dict[str, int] = {}
        for each in self._rounds:
            sizes[each.wire] = sizes.get(each.wire, 0) + each.size
        return [side.rows(((size,), wire)) for wire, size in sizes.items()]

    def _parted(self, buffers: Sequence[jax.Array]) -> list[jax.Array]:
        """The parts of a device's buffers, by round."""
        by_wire = {str(buffer.dtype): buffer for buffer in buffers}
        places = dict.fromkeys(by_wire, 0)
        parts = []
        for each in self._rounds:
            start, places[each.wire] = places[each.wire], places[each.wire] + each.size
            parts.append(lax.slice(by_wire[each.wire], (start,), (places[each.wire],)))
        return parts

    def _joined(self, parts: Sequence[Sequence[jax.Array]]) -> tuple[jax.Array, ...]:
        """Buffers of flat arrays, some for each round."""
        by_wire: dict[str, list[jax.Array]] = {}
        for each, some in zip(self._rounds, parts, strict=True):
            by_wire.setdefault(each.wire, []).extend(some)
        return tuple(each[0] if len(each) == 1 else lax.concatenate(each, 0) for each in by_wire.values())

    def _packing(self, origins: Sequence[Mapping[int, Sequence[int]]]) -> Any:
        """What each device sends, with the steps that come before the move. Devices that cut alike share a branch."""
        sent: list[list[tuple[int, ...]]] = []  # for each device, by round, the numbers of its messages
        for number in self._source.numbers:
            mine = [dict(zip([a for a, _ in each.pairs], each.messages, strict=True)) for each in self._rounds]
            sent.append([each.get(number, ()) for each in mine])
        most = max(sum(map(len, each)) for each in sent)
        rank = max((len(message.box) for message in self._messages), default=0)
        table = np.zeros((len(sent), max(most, 1), max(rank, 1)), np.int32)
        kinds: dict[Any, int] = {}
        numbers: list[int] = []
        branches: list[Any] = []
        for k, (device, rounds) in enumerate(zip(self._source.numbers, sent, strict=True)):
            flat = [self._messages[number] for several in rounds for number in several]
            for place, message in enumerate(flat):
                origin = origins[message.leaf][device]
                starts = [start - first for (start, _), first in zip(message.box, origin, strict=True)]
                table[k, place, : len(starts)] = starts
            key = tuple(tuple(self._messages[number].form for number in several) for several in rounds)
            if key not in kinds:
                kinds[key] = len(branches)
                branches.append(self._cutting(rounds))
            numbers.append(kinds[key])

        def run(*tiles: jax.Array) -> tuple[jax.Array, ...]:
            me = lax.axis_index(AXIS)
            return _chosen(branches, numbers, me, jnp.asarray(table)[me], *tiles)

        ins = [self._source.rows(tile) for tile in self._source.tiles]
        return self._compiled(run, self._source, ins, self._buffers(self._source))

    def _cutting(self, rounds: Sequence[tuple[int, ...]]) -> Any:
        """What a device that sends these messages does with the starts of their boxes and its tiles."""
        messages = self._messages

        def run(starts: jax.Array, *tiles: jax.Array) -> tuple[jax.Array, ...]:
            parts, place = [], 0
            for each, several in zip(self._rounds, rounds, strict=True):
                flat = []
                for number in several:
                    message = messages[number]
                    tile = tiles[message.leaf]
                    bits = None if message.steps else bits_of(tile.dtype)
                    part = as_dtype(tile, bits)
                    if part.shape != message.shape:
                        where = [starts[place, k] for k in range(len(message.shape))]
                        part = lax.dynamic_slice(part, where, message.shape)
                    for step in message.steps:
                        part = step(part)
                    part = part if bits is not None else as_dtype(part, bits_of(part.dtype))
                    # Else XLA:CPU makes one loop over flat elements, and divides for each to find its place.
                    flat.append(lax.reshape(lax.optimization_barrier(part), (message.elements,)))
                    place += 1
                parts.append(flat or [jnp.zeros(each.size, each.wire)])
            return self._joined(parts)

        return run

    def _exchanging(self) -> Any:
        """One permute for each round, but for what devices keep."""

        def run(*buffers: jax.Array) -> tuple[jax.Array, ...]:
            parts = self._parted(buffers)
            moved = [
                [lax.ppermute(part, AXIS, each.pairs) if any(a != b for a, b in each.pairs) else part]
                for each, part in zip(self._rounds, parts, strict=True)
            ]
            return self._joined(moved)

        there = self._buffers(self._all)
        return self._compiled(run, self._all, there, there, donate=True)

    def _unpacking(self, arrivals: Mapping[int, Mapping[Fetch, Arrival]], forms: Mapping[int, Sequence[Form]]) -> Any:
        """Each receiver's results; devices whose results are made alike share a branch."""
        kinds: dict[Any, int] = {}
        number: list[int] = []
        branches: list[Any] = []
        for receiver in self._target.numbers:
            key = (tuple(forms[receiver]), tuple(arrivals[receiver].items()))
            if key not in kinds:
                kinds[key] = len(branches)
                branches.append(self._branch(forms[receiver], arrivals[receiver]))
            number.append(kinds[key])

        def run(*buffers: jax.Array) -> tuple[jax.Array, ...]:
            return _chosen(branches, number, lax.axis_index(AXIS), *buffers)

        outs = [self._target.rows(tile) for tile in self._target.tiles]
        return self._compiled(run, self._target, self._buffers(self._target), outs)

    def _branch(self, forms: Sequence[Form], arrivals: Mapping[Fetch, Arrival]) -> Any:
        def run(*buffers: jax.Array) -> tuple[jax.Array, ...]:
            arrived = self._parted(buffers)

            def fetched(fetch: Fetch) -> jax.Array:
                arrival = arrivals[fetch]
                shape = tuple(b - a for a, b in fetch.box)
                parts = [
                    lax.reshape(lax.slice(arrived[k], (start,), (start + math.prod(size),)), size)
                    for k, start, size in arrival.parts
                ]
                if len(parts) == 1 and parts[0].shape == shape:
                    whole = parts[0]
                elif (dim := _stacked_along(arrival, parts)) is not None:
                    ordered = sorted(range(len(parts)), key=lambda k: arrival.places[k][dim])
                    whole = lax.concatenate([parts[k] for k in ordered], dim)
                else:
                    wire = parts[0].dtype if parts else jnp.dtype(arrival.dtype)
                    whole = jnp.zeros(shape, wire)
                    for part, place in zip(parts, arrival.places, strict=True):
                        whole = lax.dynamic_update_slice(whole, part, place)
                dtype = jnp.dtype(arrival.dtype)
                whole = as_dtype(whole, None if whole.dtype == dtype else dtype)
                for step in fetch.steps[arrival.early :]:
                    whole = step(whole)
                return whole

            return tuple(evaluated(form, fetched) for form in forms)

        return run

    def _compiled(
        self, run: Any, side: ThroughSide, ins: Sequence[Any], outs: Sequence[Any], donate: bool = False
    ) -> Any:
        mesh = line_of(side.devices)
        with alone_on(mesh):
            specs = tuple(each.sharding.spec for each in ins), tuple(each.sharding.spec for each in outs)
            mapped = over_tiles(run, mesh, *specs)
            given = tuple(range(len(ins))) if donate else ()
            return jax.jit(mapped, donate_argnums=given).lower(*ins).compile()


def _stacked_along(arrival: Arrival, parts: Sequence[jax.Array]) -> int | None:
    """The dimension along which parts lie end to end and make up the whole; None where they do not."""
    shape = tuple(b - a for a, b in arrival.fetch.box)
    for dim, size in enumerate(shape):
        others = {(part.shape[:dim], part.shape[dim + 1 :]) for part in parts}
        if others == {(shape[:dim], shape[dim + 1 :])}:
            ends = sorted(
                (place[dim], place[dim] + part.shape[dim]) for part, place in zip(parts, arrival.places, strict=True)
            )
            starts = [0, *(end for _, end in ends)]
            return dim if [start for start, _ in ends] == starts[:-1] and starts[-1] == size else None
    return None


def _chosen(branches: Sequence[Any], numbers: Sequence[int], me: jax.Array, *args: jax.Array) -> tuple[jax.Array, ...]:
    """What the branch of this device makes of its arguments."""
    result: tuple[jax.Array, ...]
    if len(branches) == 1:
        result = branches[0](*args)
    else:
        result = lax.switch(jnp.asarray(np.array(numbers, np.int32))[me], branches, *args)
    return result


def _scratch(program: Any) -> int:
    sizes = program.memory_analysis()
    return 0 if sizes is None else int(sizes.temp_size_in_bytes)
