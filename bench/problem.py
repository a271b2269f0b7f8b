"""One redistribution of one array, as the benches draw and save it.

This module does not import the library. It serves the library's tests, the benches, and an interpreter that has PyTorch
alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

Cut = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Problem:
    """One redistribution of one array.

    Attributes:
        name: unique within its set: set and number, or the layout.
        shape: global shape, in elements.
        source_axes, target_axes: for each dimension, the mesh axes that cut it, minor to major.
        mesh: axis name -> size, in mesh order.
        itemsize: bytes per element.
        partial: mesh axes along which the source tiles are summands, in mesh order; the target is whole.
    """

    name: str
    shape: tuple[int, ...]
    source_axes: Cut
    target_axes: Cut
    mesh: tuple[tuple[str, int], ...]
    itemsize: int = 4
    partial: tuple[str, ...] = ()

    @property
    def axes(self) -> dict[str, int]:
        """The mesh as `synthesize` takes it."""
        return dict(self.mesh)

    @property
    def devices(self) -> int:
        return math.prod(size for _, size in self.mesh)

    @property
    def nbytes(self) -> int:
        """Bytes of the global array."""
        return math.prod(self.shape) * self.itemsize

    @property
    def source(self) -> str:
        """The source type in the paper's notation, `[tile{axes}size, ...]`."""
        summed = f" sum{{{','.join(self.partial)}}}" if self.partial else ""
        return self._notation(self.source_axes) + summed

    @property
    def target(self) -> str:
        """The target type in the paper's notation."""
        return self._notation(self.target_axes)

    @property
    def source_entries(self) -> tuple[tuple[str, ...] | None, ...]:
        """Entries of a `jax.sharding.PartitionSpec`: major to minor, the reverse of the notation."""
        return tuple(tuple(reversed(axes)) or None for axes in self.source_axes)

    @property
    def target_entries(self) -> tuple[tuple[str, ...] | None, ...]:
        return tuple(tuple(reversed(axes)) or None for axes in self.target_axes)

    @property
    def tile_bytes(self) -> int:
        """Bytes of the larger of the source and the target tile: the yardstick for scratch."""
        return max(self._tile_bytes(self.source_axes), self._tile_bytes(self.target_axes))

    @property
    def summands(self) -> int:
        """Summands of every element."""
        return math.prod(self.axes[name] for name in self.partial)

    @property
    def replicates(self) -> bool:
        """Whether several devices end with the same tile."""
        return math.prod(self._counts(self.target_axes)) < self.devices

    def summand(self, device: int) -> int:
        """The number of the summand that a device holds at the start."""
        position, number = self.position(device), 0
        for name in self.partial:
            number = number * self.axes[name] + position[name]
        return number

    def box(self, cut: Cut, device: int) -> tuple[slice, ...]:
        """The box of the array that a device holds under `cut`."""
        position = self.position(device)
        return tuple(slice(*self.interval(dim, names, position)) for dim, names in enumerate(cut))

    def _counts(self, cut: Cut) -> list[int]:
        axes = self.axes
        return [math.prod(axes[name] for name in names) for names in cut]

    def _tile_bytes(self, cut: Cut) -> int:
        return self.nbytes // math.prod(self._counts(cut))

    def _notation(self, cut: Cut) -> str:
        dims = []
        for size, names, count in zip(self.shape, cut, self._counts(cut), strict=True):
            dims.append(f"{size // count}{{{','.join(names)}}}{size}" if names else str(size))
        return f"[{', '.join(dims)}]"

    def lower_bound_bytes(self) -> int:
        """Bytes that all devices together must receive, computed without the library.

        Without partial sums it is the target tiles less the intersection of each device's source and target boxes.
        With partial sums an element needs a message for every summand but the first and for every device that ends
        with it, and one message less where such a device holds a summand.
        """
        if self.partial:
            elements = math.prod(self.shape)
            target = self.devices * self._tile_bytes(self.target_axes)
            return target + (self.summands - 1) * self.nbytes - round(elements * self._met()) * self.itemsize
        local = 0
        for device in range(self.devices):
            position = self.position(device)
            overlap = 1
            for dim, (before, after) in enumerate(zip(self.source_axes, self.target_axes, strict=True)):
                low_b, high_b = self.interval(dim, before, position)
                low_a, high_a = self.interval(dim, after, position)
                overlap *= max(0, min(high_b, high_a) - max(low_b, low_a))
            local += overlap
        return self.devices * self._tile_bytes(self.target_axes) - local * self.itemsize

    def _met(self) -> Fraction:
        """The share of elements for which some device holds a summand before and the sum after."""
        counts = zip(self._counts(self.source_axes), self._counts(self.target_axes), strict=True)
        grid = [math.lcm(before, after) for before, after in counts]
        met = set()
        for device in range(self.devices):
            position = self.position(device)
            box = []  # per dimension the cells of the grid
            for dim, count in enumerate(grid):
                unit = self.shape[dim] // count
                ends = [self.interval(dim, cut[dim], position) for cut in (self.source_axes, self.target_axes)]
                box.append(range(max(low for low, _ in ends) // unit, min(high for _, high in ends) // unit))
            met.update(product(*box))
        return Fraction(len(met), math.prod(grid))

    def position(self, device: int) -> dict[str, int]:
        """Row-major mesh coordinates of a device number, by axis."""
        coordinates = {}
        for name, size in reversed(self.mesh):
            device, coordinates[name] = divmod(device, size)
        return coordinates

    def interval(self, dim: int, names: Sequence[str], position: Mapping[str, int]) -> tuple[int, int]:
        """First and one past the last element along a dimension cut by `names`, minor to major."""
        axes, size = self.axes, self.shape[dim]
        index, count = 0, 1
        for name in names:
            index += count * position[name]
            count *= axes[name]
        return index * (size // count), (index + 1) * (size // count)

    def scaled(self, max_bytes: int) -> Problem:
        """The same problem with an array of about `max_bytes` at most, whose dimensions stay divisible.

        The dimensions keep their proportions as far as divisibility allows: a dimension stays a multiple of the
        number of devices where that fits into `max_bytes`, else of the two tile counts.
        """
        if self.nbytes <= max_bytes:
            return self
        needs = needs_of(self.source_axes, self.target_axes, self.axes)
        grain = [
            max(self.devices, need) if size % self.devices == 0 else need
            for need, size in zip(needs, self.shape, strict=True)
        ]
        if math.prod(grain) * self.itemsize > max_bytes:
            grain = needs
        factors = [size // unit for size, unit in zip(self.shape, grain, strict=True)]
        budget = max(1, max_bytes // (math.prod(grain) * self.itemsize))
        while math.prod(factors) > budget:
            widest = max(range(len(factors)), key=lambda i: factors[i])
            factors[widest] -= max(1, factors[widest] // 8)
        shape = tuple(f * unit for f, unit in zip(factors, grain, strict=True))
        return replace(self, shape=shape)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def record(self) -> dict[str, Any]:
        """The first fields of a record: the problem, and in bytes per device its lower bound and its larger tile."""
        return {"problem": self.to_json(), "bound": self.lower_bound_bytes() / self.devices, "tile": self.tile_bytes}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Problem:
        return Problem(
            data["name"],
            tuple(data["shape"]),
            as_cut(data["source_axes"]),
            as_cut(data["target_axes"]),
            tuple((name, int(size)) for name, size in data["mesh"]),
            int(data["itemsize"]),
            tuple(data.get("partial", ())),
        )


def as_cut(lists: Sequence[Sequence[str]]) -> Cut:
    return tuple(tuple(names) for names in lists)


def needs_of(source: Cut, target: Cut, axes: Mapping[str, int]) -> list[int]:
    """The least common multiple of both tile counts, for each dimension."""
    return [
        math.lcm(math.prod(axes[n] for n in s), math.prod(axes[n] for n in t))
        for s, t in zip(source, target, strict=True)
    ]
