"""Boxes cut out on their senders, moved, and put together on their receivers: three programs, each of one launch.

The first runs on the devices of the inputs, and the last on those of the results, so no device holds a tile that is not
its own; only boxes on their way stand on both.
"""

from __future__ import annotations

from collections import defaultdict
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
from redistrib.resharding.through.boxes import Fetch, Form, evaluated
from redistrib.resharding.through.messages import Arrival, Slot

Tile = tuple[tuple[int, ...], str]  # shape and element type


@dataclass(frozen=True)
class Side:
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
        slots: what is sent.
        arrivals, forms: for each receiver what arrives, and what its results are made of.
    """

    def __init__(
        self,
        devices: Sequence[Any],
        source: Side,
        target: Side,
        origins: Sequence[Mapping[int, Sequence[int]]],
        slots: Sequence[Slot],
        arrivals: Mapping[int, Mapping[Fetch, Arrival]],
        forms: Mapping[int, Sequence[Form]],
    ) -> None:
        self._devices, self._source, self._target, self._slots = tuple(devices), source, target, tuple(slots)
        self._groups = _grouped(self._slots)
        self._pack = self._packing(origins) if source.here and slots else None
        self._exchange = self._exchanging() if slots else None
        self._unpack = self._unpacking(arrivals, forms) if target.here else None

    @property
    def added_bytes(self) -> int:
        """Bytes per device besides inputs and results: boxes on their way, and scratch as the compiler reports it."""
        on_the_way = sum(slot.nbytes for slot in self._slots)
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
    def _all(self) -> Side:
        """All devices."""
        return Side(self._devices, (), ())

    def _buffers(self, side: Side) -> list[jax.ShapeDtypeStruct]:
        """The boxes of all slots end to end, one buffer for each type in which they travel."""
        sizes: dict[str, int] = {}
        for (_, wire), slots in self._groups.items():
            sizes[wire] = sizes.get(wire, 0) + sum(self._slots[k].elements for k in slots)
        return [side.rows(((size,), wire)) for wire, size in sizes.items()]

    def _joined(self, boxes: Mapping[int, jax.Array]) -> tuple[jax.Array, ...]:
        """Boxes, flat, as the buffers of a device."""
        parts: dict[str, list[jax.Array]] = {}
        for (_, wire), slots in self._groups.items():
            parts.setdefault(wire, []).extend(boxes[k] for k in slots)
        return tuple(each[0] if len(each) == 1 else lax.concatenate(each, 0) for each in parts.values())

    def _parted(self, buffers: Sequence[jax.Array]) -> dict[int, jax.Array]:
        """The boxes in the buffers of a device."""
        by_wire = {str(buffer.dtype): buffer for buffer in buffers}
        places = dict.fromkeys(by_wire, 0)
        boxes = {}
        for (_, wire), slots in self._groups.items():
            for k in slots:
                start, places[wire] = places[wire], places[wire] + self._slots[k].elements
                boxes[k] = lax.slice(by_wire[wire], (start,), (places[wire],))
        return boxes

    def _packing(self, origins: Sequence[Mapping[int, Sequence[int]]]) -> Any:
        """Each sender's boxes, with the steps that come before the move."""
        place = {number: k for k, number in enumerate(self._source.numbers)}
        tables = []
        for slot in self._slots:
            table = np.zeros((len(place), len(slot.shape)), np.int32)
            for (sender, _), box in zip(slot.pairs, slot.boxes, strict=True):
                origin = origins[slot.leaf][sender]
                table[place[sender]] = [start - first for (start, _), first in zip(box, origin, strict=True)]
            tables.append(table)

        def run(*tiles: jax.Array) -> tuple[jax.Array, ...]:
            me = lax.axis_index(AXIS)
            result = {}
            for k, (slot, table) in enumerate(zip(self._slots, tables, strict=True)):
                tile = tiles[slot.leaf]
                bits = None if slot.steps else bits_of(tile.dtype)
                part = as_dtype(tile, bits)
                if part.shape != slot.shape:
                    part = lax.dynamic_slice(part, jnp.asarray(table)[me], slot.shape)
                for step in slot.steps:
                    part = step(part)
                part = part if bits is not None else as_dtype(part, bits_of(part.dtype))
                # Else XLA:CPU makes one loop over flat elements, and divides for each to find its place.
                result[k] = lax.reshape(lax.optimization_barrier(part), (slot.elements,))
            return self._joined(result)

        ins = [self._source.rows(tile) for tile in self._source.tiles]
        return self._compiled(run, self._source, ins, self._buffers(self._source))

    def _exchanging(self) -> Any:
        """Boxes from their senders to their receivers; those of the same pairs and type together."""

        def run(*buffers: jax.Array) -> tuple[jax.Array, ...]:
            by_wire = {str(buffer.dtype): buffer for buffer in buffers}
            places = dict.fromkeys(by_wire, 0)
            moved: dict[str, list[jax.Array]] = {wire: [] for wire in by_wire}
            for (pairs, wire), slots in self._groups.items():
                start = places[wire]
                places[wire] += sum(self._slots[k].elements for k in slots)
                part = lax.slice(by_wire[wire], (start,), (places[wire],))
                moved[wire].append(lax.ppermute(part, AXIS, pairs) if any(a != b for a, b in pairs) else part)
            return tuple(each[0] if len(each) == 1 else lax.concatenate(each, 0) for each in moved.values())

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
            result: tuple[jax.Array, ...]
            if len(branches) == 1:
                result = branches[0](*buffers)
            else:
                mine = jnp.asarray(np.array(number, np.int32))[lax.axis_index(AXIS)]
                result = lax.switch(mine, branches, *buffers)
            return result

        outs = [self._target.rows(tile) for tile in self._target.tiles]
        return self._compiled(run, self._target, self._buffers(self._target), outs)

    def _branch(self, forms: Sequence[Form], arrivals: Mapping[Fetch, Arrival]) -> Any:
        slots = self._slots

        def run(*buffers: jax.Array) -> tuple[jax.Array, ...]:
            boxes = self._parted(buffers)

            def fetched(fetch: Fetch) -> jax.Array:
                arrival = arrivals[fetch]
                shape = tuple(b - a for a, b in fetch.box)
                parts = [lax.reshape(boxes[k], slots[k].shape) for k in arrival.parts]
                if len(parts) == 1 and parts[0].shape == shape:
                    whole = parts[0]
                elif (dim := _stacked_along(arrival, parts)) is not None:
                    ordered = sorted(range(len(parts)), key=lambda k: arrival.places[k][dim])
                    whole = lax.concatenate([parts[k] for k in ordered], dim)
                else:
                    wire = slots[arrival.parts[0]].wire if parts else jnp.dtype(arrival.dtype)
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

    def _compiled(self, run: Any, side: Side, ins: Sequence[Any], outs: Sequence[Any], donate: bool = False) -> Any:
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


def _grouped(slots: Sequence[Slot]) -> dict[tuple[Any, str], list[int]]:
    """Slots by their pairs and the type in which they travel."""
    groups: dict[tuple[Any, str], list[int]] = defaultdict(list)
    for k, slot in enumerate(slots):
        groups[slot.pairs, str(slot.wire)].append(k)
    return dict(groups)


def _scratch(program: Any) -> int:
    sizes = program.memory_analysis()
    return 0 if sizes is None else int(sizes.temp_size_in_bytes)
