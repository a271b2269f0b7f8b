"""What the JSON of a plan does, carried out on element numbers: written apart from the library, which it never uses.

Every device holds an array of the numbers of its elements. A step moves these numbers as its collective would, and
after it every device must hold exactly the tile that the step says. Dimensions shrink by the greatest common divisor of
all edges in them, so sizes may be beyond 64 bits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_CELLS = 1 << 24  # element numbers held by all devices together
ITEMSIZE = {
    "bool": 1, "int4": 1, "uint4": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2,
    "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "float64": 8, "complex64": 8,
    "key<fry>": 8, "complex128": 16,
}  # fmt: skip
_TOKEN = re.compile(r'\s*(\d+|[^\W\d]\w*|"(?:[^"\\]|\\.)*"|[\[\]{},])')

Cells = np.ndarray[Any, np.dtype[np.int64]]


class Wrong(Exception):
    """The plan does not do what it says, or says nothing that can be done."""


class TooLarge(Exception):
    """More element numbers than fit here."""


@dataclass(frozen=True)
class Outcome:
    """What happened.

    Attributes:
        received: elements that each device took in, padding included.
        bound: elements of its target tile that its source tile lacks, per device.
        height: elements of the largest tile on the way.
        collectives: launched.
    """

    received: tuple[int, ...]
    bound: tuple[int, ...]
    height: int
    collectives: int


@dataclass(frozen=True)
class _Placed:
    """A tile per device: tiles per dimension, index `[devices][rank]`, tile in whole elements and in cells."""

    grid: tuple[int, ...]
    index: Cells
    size: tuple[int, ...]
    tile: tuple[int, ...] = ()

    @property
    def volume(self) -> int:
        return math.prod(self.size)

    @property
    def start(self) -> Cells:
        return self.index * np.array(self.tile, dtype=np.int64)

    def numbers(self, shape: Sequence[int]) -> Cells:
        """`[devices, *tile]` the element numbers that each device holds."""
        result = np.zeros((len(self.index), *(1 for _ in shape)), dtype=np.int64)
        for i, length in enumerate(self.tile):
            at = (self.start[:, i, None] + np.arange(length)) * math.prod(shape[i + 1 :])
            result = result + at.reshape(len(self.index), *(length if i == k else 1 for k in range(len(shape))))
        return result


def interpret(text: str) -> Outcome:
    """Carry out a plan.

    Args:
        text: a plan's JSON; its digest is not looked at.

    Raises:
        Wrong: if it is malformed, moves what a device does not hold, ends elsewhere than it says, sends twice in a
            round, has a tile above the larger of source and target without a memory limit, or exceeds its limit.
        TooLarge: if it takes more than `MOST_CELLS` to carry out.
    """
    try:
        return _Run(json.loads(text)).outcome()
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise Wrong(f"malformed: {type(error).__name__}: {error}") from error


class _Run:
    def __init__(self, form: dict[str, Any]) -> None:
        self.form = form
        self.shape, source = _side(form["source"])
        other, target = _side(form["target"])
        _need(self.shape == other, "source and target have different shapes")
        _need(len(source.index) == len(target.index), "source and target have different devices")
        self.devices = len(source.index)
        placed = [source, target, *(self._placement(entry) for entry in form["placements"])]
        divisors = self._divisors(placed)
        self.unit = math.prod(divisors)
        self.divisors = np.array(divisors, dtype=object)
        self.cells = tuple(n // g for n, g in zip(self.shape, divisors, strict=True))
        self.source, self.target, *self.placements = (
            _Placed(p.grid, p.index, p.size, tuple(n // g for n, g in zip(p.size, divisors, strict=True)))
            for p in placed
        )

    def _placement(self, entry: dict[str, Any]) -> _Placed:
        grid = tuple(map(_integer, entry["grid"]))
        _need(len(grid) == len(self.shape), "a grid of another rank")
        _need(len(entry["index"]) == self.devices, "a placement of another number of devices")
        for row in entry["index"]:
            _need(len(row) == len(grid), "an index of another rank")
            _need(all(0 <= _integer(i) < n for i, n in zip(row, grid, strict=True)), "an index outside the grid")
        _need(all(n > 0 and size % n == 0 for n, size in zip(grid, self.shape, strict=True)), "a grid divides nothing")
        return _Placed(grid, _table(entry["index"], len(grid)), _tile(self.shape, grid))

    def _divisors(self, placed: Iterable[_Placed]) -> list[int]:
        """Per dimension, what divides every edge of every tile and share."""
        edges: list[set[int]] = [{p.size[i] for p in placed} for i in range(len(self.shape))]
        for step in self.form["steps"]:
            for _, _, _, start, size in step.get("shares", ()):
                _need(len(start) == len(size) == len(self.shape), "a share of another rank")
                for i, pair in enumerate(zip(start, size, strict=True)):
                    edges[i].update(map(_integer, pair))
        return [math.gcd(*edge) or 1 for edge in edges]

    def outcome(self) -> Outcome:
        here, received, collectives = self.source, [0] * self.devices, 0
        limit = self.form["memory_limit"]
        most = math.inf if limit is not None else max(self.source.volume, self.target.volume)
        held, height, alive = self._numbers(here), here.volume, 0
        for k, step in enumerate(self.form["steps"]):
            before, after = (self.placements[_position(step[key], self.placements)] for key in ("before", "after"))
            _need(_same(before, here), f"step {k} starts elsewhere than it left off")
            held, taken, calls = _CARRIED_OUT[step["kind"]](self, step, before, after, held)
            _need(np.array_equal(held, self._numbers(after)), f"step {k} leaves other elements than it says")
            _need(after.volume <= most, f"step {k} leaves a tile of {after.volume} elements, above {most}")
            received = [a + b for a, b in zip(received, taken, strict=True)]
            collectives += calls
            between = (before.volume if k else 0) + (after.volume if k + 1 < len(self.form["steps"]) else 0)
            here, height, alive = after, max(height, after.volume), max(alive, between)
        _need(_same(here, self.target), "the plan ends elsewhere than at the target")
        itemsize = ITEMSIZE.get(self.form["dtype"])
        if limit is not None and itemsize is not None:
            taken_bytes = (self.source.volume + self.target.volume + alive) * itemsize
            _need(taken_bytes <= limit, f"tiles take {taken_bytes} bytes, above the limit of {limit}")
        return Outcome(tuple(received), self._bound(), height, collectives)

    def _numbers(self, placed: _Placed) -> Cells:
        if self.devices * math.prod(placed.tile) > MOST_CELLS or math.prod(self.cells) >= 2**62:
            raise TooLarge
        return placed.numbers(self.cells)

    def _bound(self) -> tuple[int, ...]:
        one, two = self._numbers(self.source), self._numbers(self.target)
        return tuple(int((~np.isin(b, a)).sum()) * self.unit for a, b in zip(one, two, strict=True))

    # ------------------------------------------------------------------------------------------------ steps

    def _dynslice(
        self, step: dict[str, Any], before: _Placed, after: _Placed, held: Cells
    ) -> tuple[Cells, list[int], int]:
        offset = (after.start - before.start).tolist()
        return np.stack([_read(held, d, offset[d], after.tile) for d in range(self.devices)]), [0] * self.devices, 0

    def _allgather(
        self, step: dict[str, Any], before: _Placed, after: _Placed, held: Cells
    ) -> tuple[Cells, list[int], int]:
        groups, factors = self._groups(step), _exact(before.grid, after.grid)
        _need(math.prod(factors) == groups.shape[1], "a group of another size than the tiles it merges")
        rank = len(factors)
        tiles = held[groups].reshape(len(groups), *factors, *before.tile)
        turned = tiles.transpose(0, *(1 + i + k * rank for i in range(rank) for k in (0, 1)))
        merged = turned.reshape(len(groups), *after.tile)
        result = np.empty((self.devices, *after.tile), dtype=np.int64)
        for column in groups.T:
            result[column] = merged
        return result, [(groups.shape[1] - 1) * before.volume] * self.devices, 1

    def _alltoall(
        self, step: dict[str, Any], before: _Placed, after: _Placed, held: Cells
    ) -> tuple[Cells, list[int], int]:
        groups = self._groups(step)
        factors = [b // min(a, b) for b, a in zip(before.grid, after.grid, strict=True)]
        _need(
            all(max(a, b) % min(a, b) == 0 for b, a in zip(before.grid, after.grid, strict=True)), "grids do not nest"
        )
        _need(math.prod(factors) == groups.shape[1], "a group of another size than the tiles it merges")
        share = tuple(map(min, before.tile, after.tile))
        result = np.full((self.devices, *after.tile), -1, dtype=np.int64)
        corners = [tuple(p * n for p, n in zip(at, share, strict=True)) for at in np.ndindex(*factors)]
        old, new = before.start.tolist(), after.start.tolist()
        for group in groups.tolist():
            for receiver in group:
                for sender, corner in zip(group, corners, strict=True):
                    low, size = _meet(old[sender], before.tile, new[receiver], after.tile)
                    _need(size == share, "shares of different shapes in an all-to-all")
                    part = _read(held, sender, _minus(low, old[sender]), share)
                    _write(result, receiver, corner, part)
        moved = math.prod(map(min, before.size, after.size))
        return result, [(groups.shape[1] - 1) * moved] * self.devices, 1

    def _allpermute(
        self, step: dict[str, Any], before: _Placed, after: _Placed, held: Cells
    ) -> tuple[Cells, list[int], int]:
        result, received = held.copy(), [0] * self.devices
        _need(len({s for s, _ in step["pairs"]}) == len(step["pairs"]), "a device sends twice in a permute")
        for sender, receiver in step["pairs"]:
            self._check_devices(sender, receiver)
            _need(received[receiver] == 0, "a device receives twice in a permute")
            result[receiver] = held[sender]
            received[receiver] = before.volume or 1
        return result, [before.volume if r else 0 for r in received], 1

    def _exchange(
        self, step: dict[str, Any], before: _Placed, after: _Placed, held: Cells
    ) -> tuple[Cells, list[int], int]:
        result = np.full((self.devices, *after.tile), -1, dtype=np.int64)
        old, new = before.start.tolist(), after.start.tolist()
        for d in range(self.devices):
            low, size = _meet(old[d], before.tile, new[d], after.tile)
            if min(size, default=1) > 0:
                _write(result, d, _minus(low, new[d]), _read(held, d, _minus(low, old[d]), size))
        senders, receivers, largest = set(), set(), dict[int, int]()
        for sender, receiver, number, start, size in step["shares"]:
            self._check_devices(sender, receiver)
            _need((sender, number) not in senders, "a device sends twice in a round")
            _need((receiver, number) not in receivers, "a device receives twice in a round")
            _need(min(size, default=1) > 0, "an empty share")
            senders.add((sender, number))
            receivers.add((receiver, number))
            largest[_integer(number)] = max(largest.get(number, 0), math.prod(size))
            at, extent = ([n // g for n, g in zip(row, self.divisors, strict=True)] for row in (start, size))
            part = _read(held, sender, _minus(at, old[sender]), extent)
            _write(result, receiver, _minus(at, new[receiver]), part)
        _need(sorted(largest) == list(range(len(largest))), "rounds are not numbered from 0 without gaps")
        _need(step["realisation"] in ("rounds", "ragged"), "an exchange of another kind")
        ragged, received = step["realisation"] == "ragged", [0] * self.devices
        for _, receiver, number, _, size in step["shares"]:
            received[receiver] += math.prod(size) if ragged else largest[number]
        return result, received, 1 if ragged else len(largest)

    def _groups(self, step: dict[str, Any]) -> Cells:
        rows = step["groups"]
        _need(sorted(_integer(d) for row in rows for d in row) == list(range(self.devices)), "groups are no partition")
        return _table(rows, len(rows[0]))

    def _check_devices(self, sender: int, receiver: int) -> None:
        _need(0 <= _integer(sender) < self.devices and 0 <= _integer(receiver) < self.devices, "no such device")
        _need(sender != receiver, "a device sends to itself")


_CARRIED_OUT = {
    "dynslice": _Run._dynslice,
    "allgather": _Run._allgather,
    "alltoall": _Run._alltoall,
    "allpermute": _Run._allpermute,
    "exchange": _Run._exchange,
}


def _side(form: dict[str, Any]) -> tuple[tuple[int, ...], _Placed]:
    """Global shape and placement of one side; axes cut minor to major, mesh positions are row-major."""
    axes = {name: (_integer(size), k) for k, (name, size) in enumerate(form["mesh"]["axes"])}
    sizes = [size for size, _ in axes.values()]
    _need(len(sizes) == len(form["mesh"]["axes"]) and min(sizes, default=1) > 0, "no mesh")
    order = list(map(_integer, form["mesh"]["devices"]))
    _need(sorted(order) == list(range(math.prod(sizes))), "device numbers are no permutation")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    shape, grid, columns, used = [], [], [], []
    for tile, names, size in _dims(form["type"]):
        column, count = np.zeros(len(order), dtype=np.int64), 1
        for name in names:
            extent, k = axes[name]
            column = column + position // math.prod(sizes[k + 1 :]) % extent * count
            count *= extent
        _need(tile * count == size, "a tile times its cuts is not the dimension")
        used += names
        shape.append(size)
        grid.append(count)
        columns.append(column)
    _need(len(used) == len(set(used)), "an axis cuts twice")
    index = np.stack(columns, axis=1) if columns else np.zeros((len(order), 0), dtype=np.int64)
    return tuple(shape), _Placed(tuple(grid), index, _tile(shape, grid))


def _dims(text: str) -> list[tuple[int, list[str], int]]:
    """Tile, axes and size of every dimension of a type such as `[3{x}12, 5]`."""
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        _need(found is not None, f"no type: {text[:60]!r}")
        assert found is not None
        tokens.append(found[1])
        at = found.end()
    _need(tokens[:1] == ["["] and tokens[-1:] == ["]"], "a type without brackets")
    dims = []
    inner = tokens[1:-1]
    while inner:
        tile = int(inner.pop(0))
        names: list[str] = []
        size = tile
        if inner and inner[0] == "{":
            end = inner.index("}")
            names = [re.sub(r"\\(.)", r"\1", t[1:-1]) if t[0] == '"' else t for t in inner[1:end] if t != ","]
            size = int(inner[end + 1])
            inner = inner[end + 2 :]
        dims.append((tile, names, size))
        _need(not inner or (inner.pop(0) == "," and bool(inner)), "dimensions without a comma")
    return dims


def _need(condition: bool, why: str) -> None:
    if not condition:
        raise Wrong(why)


def _integer(value: Any) -> int:
    _need(type(value) is int, f"{value!r} is no integer")
    return int(value)


def _position(value: Any, placements: Sequence[_Placed]) -> int:
    _need(0 <= _integer(value) < len(placements), "no such placement")
    return int(value)


def _table(rows: Sequence[Sequence[int]], columns: int) -> Cells:
    return np.array(rows, dtype=np.int64).reshape(len(rows), columns)


def _tile(shape: Sequence[int], grid: Sequence[int]) -> tuple[int, ...]:
    return tuple(n // c for n, c in zip(shape, grid, strict=True))


def _same(one: _Placed, other: _Placed) -> bool:
    return one.grid == other.grid and np.array_equal(one.index, other.index)


def _exact(fine: Sequence[int], coarse: Sequence[int]) -> tuple[int, ...]:
    _need(all(f % c == 0 for f, c in zip(fine, coarse, strict=True)), "tiles do not merge evenly")
    return tuple(f // c for f, c in zip(fine, coarse, strict=True))


def _minus(a: Sequence[int], b: Sequence[int]) -> list[int]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _meet(
    one: Sequence[int], extent: Sequence[int], other: Sequence[int], reach: Sequence[int]
) -> tuple[list[int], tuple[int, ...]]:
    low = [max(a, b) for a, b in zip(one, other, strict=True)]
    high = (min(a + n, b + m) for a, n, b, m in zip(one, extent, other, reach, strict=True))
    return low, tuple(h - a for h, a in zip(high, low, strict=True))


def _window(held: Cells, device: int, at: Sequence[int], size: Sequence[int]) -> tuple[int | slice, ...]:
    inside = all(a >= 0 and a + n <= length for a, n, length in zip(at, size, held.shape[1:], strict=True))
    _need(inside, "elements outside the tile of a device")
    return (device, *(slice(a, a + n) for a, n in zip(at, size, strict=True)))


def _read(held: Cells, device: int, at: Sequence[int], size: Sequence[int]) -> Cells:
    """A box of a device's tile."""
    found: Cells = held[_window(held, device, at, size)]
    return found


def _write(held: Cells, device: int, at: Sequence[int], part: Cells) -> None:
    """Fill a box of a device's tile, where nothing was written yet."""
    window = _window(held, device, at, np.shape(part))
    _need(bool((held[window] == -1).all()), "an element is written twice")
    held[window] = part
