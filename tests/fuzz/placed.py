"""What stands in a plan's JSON, read by a parser of its own: types, meshes, placements. Uses nothing of the library."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_CELLS = 1 << 24  # element numbers, and counts of summands, held by all devices together
REDUCTIONS = ("sum", "max", "min")
_TOKEN = re.compile(r'\s*(\d+|[^\W\d]\w*|"(?:[^"\\]|\\.)*"|[\[\]{},])')

Cells = np.ndarray[Any, np.dtype[np.int64]]


class Wrong(Exception):
    """The plan does not do what it says, or says nothing that can be done."""


class TooLarge(Exception):
    """More element numbers than fit here."""


@dataclass(frozen=True)
class Placed:
    """A tile per device.

    Attributes:
        grid: tiles per dimension.
        index: `[devices][rank]`; a row of -1 for a device that holds nothing.
        size, tile: of a tile, in whole elements and in cells.
        label: `[devices]`, which of `summands` summands each device holds.
        summands: how many there are; 1 where tiles are parts of the array itself.
        reduction: what makes the array of them; "" where there is one.
    """

    grid: tuple[int, ...]
    index: Cells
    size: tuple[int, ...]
    label: Cells
    summands: int = 1
    reduction: str = ""
    tile: tuple[int, ...] = ()

    @property
    def volume(self) -> int:
        return math.prod(self.size)

    @property
    def start(self) -> Cells:
        return self.index * np.array(self.tile, dtype=np.int64)

    def numbers(self, shape: Sequence[int]) -> Cells:
        """`[devices, *tile]` the element numbers that each device holds; -1 all over where it holds nothing."""
        result = np.zeros((len(self.index), *(1 for _ in shape)), dtype=np.int64)
        for i, length in enumerate(self.tile):
            at = (self.start[:, i, None] + np.arange(length)) * math.prod(shape[i + 1 :])
            result = result + at.reshape(len(self.index), *(length if i == k else 1 for k in range(len(shape))))
        result[(self.index < 0).any(axis=1)] = -1
        return result

    def same(self, other: Placed) -> bool:
        """Whether equal devices hold equal tiles, and equal ones the same summand, whatever its number."""
        if (self.grid, self.summands, self.reduction) != (other.grid, other.summands, other.reduction):
            return False
        return np.array_equal(self.index, other.index) and self._first_holders() == other._first_holders()

    def _first_holders(self) -> list[int]:
        """Per device, the first that holds the same summand of the same tile."""
        first: dict[tuple[int, ...], int] = {}
        rows = zip(map(tuple, self.index.tolist()), self.label.tolist(), strict=True)
        return [first.setdefault((*row, label), device) for device, (row, label) in enumerate(rows)]


def placement(entry: dict[str, Any], shape: Sequence[int], devices: int, version: int) -> Placed:
    """One of the placements of a plan."""
    grid = tuple(map(integer, entry["grid"]))
    need(len(grid) == len(shape), "a grid of another rank")
    need(len(entry["index"]) == devices, "a placement of another number of devices")
    for row in entry["index"]:
        need(len(row) == len(grid), "an index of another rank")
        nowhere = version > 1 and "summands" not in entry and len(row) > 0 and all(integer(i) == -1 for i in row)
        inside = all(0 <= integer(i) < n for i, n in zip(row, grid, strict=True))
        need(nowhere or inside, "an index outside the grid")
    need(all(n > 0 and size % n == 0 for n, size in zip(grid, shape, strict=True)), "a grid divides nothing")
    partial = [entry[name] for name in ("summand", "summands", "reduction") if name in entry]
    label, summands, reduction = partial if partial else ([0] * devices, 1, "")
    need(not partial or version > 1, "partial sums in version 1")
    need(not partial or (integer(summands) > 1 and reduction in REDUCTIONS), "no partial sums")
    need(len(label) == devices and all(0 <= integer(n) < summands for n in label), "no such partial sum")
    index = table(entry["index"], len(grid))
    return Placed(grid, index, _tile(shape, grid), np.array(label, dtype=np.int64), summands, reduction)


def side(form: dict[str, Any], version: int) -> tuple[tuple[int, ...], Placed]:
    """Global shape and placement of one side; axes cut minor to major, mesh positions are row-major. Summands are
    numbered along their axes by name, in whatever order the type names them."""
    axes = {name: (integer(size), k) for k, (name, size) in enumerate(form["mesh"]["axes"])}
    sizes = [size for size, _ in axes.values()]
    need(len(sizes) == len(form["mesh"]["axes"]) and min(sizes, default=1) > 0, "no mesh")
    order = list(map(integer, form["mesh"]["devices"]))
    need(sorted(order) == list(range(math.prod(sizes))), "device numbers are no permutation")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))

    def digits(names: Sequence[str]) -> tuple[Cells, int]:
        number, count = np.zeros(len(order), dtype=np.int64), 1
        for name in names:
            extent, k = axes[name]
            number = number + position // math.prod(sizes[k + 1 :]) % extent * count
            count *= extent
        return number, count

    shape, grid, columns = [], [], []
    dims, reduction, partial = _dist_type(form["type"])
    for tile, names, size in dims:
        column, count = digits(names)
        need(tile * count == size, "a tile times its cuts is not the dimension")
        shape.append(size)
        grid.append(count)
        columns.append(column)
    used = [*partial, *(name for _, names, _ in dims for name in names)]
    need(len(used) == len(set(used)), "an axis cuts twice")
    need(version > 1 or not partial, "partial sums in version 1")
    index = np.stack(columns, axis=1) if columns else np.zeros((len(order), 0), dtype=np.int64)
    label, summands = digits(sorted(partial))
    return tuple(shape), Placed(
        tuple(grid), index, _tile(shape, grid), label, summands, reduction if summands > 1 else ""
    )


def _dist_type(text: str) -> tuple[list[tuple[int, list[str], int]], str, list[str]]:
    """Tile, axes and size of every dimension of `[3{x}12, 5] sum{y}` or the like, its reduction, its partial axes."""
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        need(found is not None, f"no type: {text[:60]!r}")
        assert found is not None
        tokens.append(found[1])
        at = found.end()
    need(tokens[:1] == ["["] and "]" in tokens, "a type without brackets")
    end = tokens.index("]")
    dims = []
    inner = tokens[1:end]
    while inner:
        tile = int(inner.pop(0))
        names: list[str] = []
        size = tile
        if inner and inner[0] == "{":
            names, inner = _names(inner)
            size = int(inner.pop(0))
        dims.append((tile, names, size))
        need(not inner or (inner.pop(0) == "," and bool(inner)), "dimensions without a comma")
    if end + 1 == len(tokens):
        return dims, "", []
    reduction, *rest = tokens[end + 1 :]
    partial, rest = _names(rest)
    need(reduction in REDUCTIONS and not rest, "no reduction")
    return dims, reduction, partial


def _names(tokens: list[str]) -> tuple[list[str], list[str]]:
    """Axis names in braces, and what follows."""
    need(tokens[:1] == ["{"] and "}" in tokens, "no braces")
    end = tokens.index("}")
    names = [re.sub(r"\\(.)", r"\1", t[1:-1]) if t[0] == '"' else t for t in tokens[1:end] if t != ","]
    return names, tokens[end + 1 :]


def need(condition: bool, why: str) -> None:
    """The plan is wrong unless this holds."""
    if not condition:
        raise Wrong(why)


def integer(value: Any) -> int:
    need(type(value) is int, f"{value!r} is no integer")
    return int(value)


def table(rows: Sequence[Sequence[int]], columns: int) -> Cells:
    return np.array(rows, dtype=np.int64).reshape(len(rows), columns)


def _tile(shape: Sequence[int], grid: Sequence[int]) -> tuple[int, ...]:
    return tuple(n // c for n, c in zip(shape, grid, strict=True))
