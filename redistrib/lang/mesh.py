"""Meshes: named axes over numbered devices, and their decomposition into prime axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from redistrib.arith import Int64, as_integer, prime_factors, to_digits
from redistrib.errors import UnknownAxisError
from redistrib.errors import lang as errors
from redistrib.lang import notation

_MOST_DEVICES = 2**20  # every device is listed


@dataclass(frozen=True)
class Axis:
    """A mesh axis.

    Attributes:
        name: any non-empty string.
        size: devices along it, from 1 to 2**20.
    """

    name: str
    size: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise errors.MeshError("axis name", name=self.name)
        size = as_integer(self.size)
        if size is None or size < 1:
            raise errors.axis_size_error(self.name, self.size)
        if size > _MOST_DEVICES:
            raise errors.axis_size_error(self.name, size, _MOST_DEVICES)
        object.__setattr__(self, "size", size)


@dataclass(frozen=True)
class Mesh:
    """Ordered named axes over devices numbered from 0 (Figure 6).

    Attributes:
        axes: the axes; the last one varies fastest, as in `jax.sharding.Mesh`.
        devices: device numbers at the row-major mesh positions; `0, 1, 2, ...` unless given. Another order is
            another mesh over the same devices; numbers may be left out, by a mesh over some devices of several.

    Raises:
        MeshError: unless axis names are unique, sizes positive, there is one device number for each position, all
            different and below 2**20, and there are at most 64 axes.

    >>> mesh = Mesh.of("x=4,y=6")
    >>> print(mesh, mesh.size, mesh.coordinates[7])
    {x:4, y:6} 24 [1 1]
    """

    axes: tuple[Axis, ...]
    devices: tuple[int, ...] = ()  # stands for row by row, and is replaced by it

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(self.axes))
        object.__setattr__(self, "devices", tuple(self.devices))
        if len(self.axes) > notation.MOST:
            raise errors.MeshError("mesh size", mesh=str(self), size=len(self.axes), most=notation.MOST, what="axes")
        seen: set[str] = set()
        for axis in self.axes:
            if axis.name in seen:
                raise errors.MeshError("duplicate axis", name=axis.name, mesh=str(self))
            seen.add(axis.name)
        if self.size > _MOST_DEVICES:
            raise errors.MeshError("mesh size", mesh=str(self), size=self.size, most=_MOST_DEVICES, what="devices")
        if not self.devices:
            object.__setattr__(self, "devices", tuple(range(self.size)))
            return
        numbers = tuple(as_integer(device) for device in self.devices)
        known = {number for number in numbers if number is not None and 0 <= number < _MOST_DEVICES}
        if len(numbers) != self.size or len(known) != self.size:
            raise errors.device_order_error(str(self), self.size, self.devices, _MOST_DEVICES)
        object.__setattr__(self, "devices", numbers)

    @classmethod
    def of(cls, value: Any, devices: Iterable[int] | None = None) -> Mesh:
        """A mesh from a `Mesh`, a mapping of names to sizes, text such as `x=4,y=6`, or a `jax.sharding.Mesh`.

        A JAX mesh is read by its attributes, without importing JAX; its devices are numbered by row-major
        position, whatever ids they have.

        Args:
            value: any of these.
            devices: device numbers, row by row, in the place of those that the mesh has.

        Raises:
            MeshError: if the value describes no mesh, or the devices are not its; `NotationError` if the text cannot
                be read.

        >>> Mesh.of("x=4", range(4, 8))
        Mesh({x:4}, devices=(4, 5, 6, 7))
        """
        if devices is not None:
            return cls(cls.of(value).axes, tuple(devices))
        if isinstance(value, Mesh):
            return value
        if isinstance(value, str):
            entries = notation.parse_mesh(value).entries
            return cls(tuple(Axis(entry.axis.name, entry.size) for entry in entries))
        if isinstance(value, Mapping):
            return cls(tuple(Axis(name, size) for name, size in value.items()))
        names = getattr(value, "axis_names", None)
        sizes = getattr(value, "axis_sizes", None) or getattr(getattr(value, "devices", None), "shape", None)
        if names is None or sizes is None:
            raise errors.MeshError("mesh value", value=value)
        return cls(tuple(Axis(name, size) for name, size in zip(names, sizes, strict=True)))

    def __str__(self) -> str:
        return notation.print_mesh((axis.name, axis.size) for axis in self.axes)

    def __repr__(self) -> str:
        if self.devices == tuple(range(self.size)):
            return f"Mesh({self})"
        return f"Mesh({self}, devices={self.devices})"

    @cached_property
    def is_whole(self) -> bool:
        """Whether the devices are all those from 0 on, in some order."""
        return self.span == self.size

    @cached_property
    def span(self) -> int:
        """One more than the largest device number."""
        return max(self.devices) + 1

    @property
    def names(self) -> tuple[str, ...]:
        """Axis names, in order."""
        return tuple(axis.name for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Axis sizes, in order."""
        return tuple(axis.size for axis in self.axes)

    @cached_property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(axis.size for axis in self.axes)

    @cached_property
    def _by_name(self) -> dict[str, Axis]:
        return {axis.name: axis for axis in self.axes}

    def axis(self, name: str) -> Axis:
        """The axis of that name.

        Raises:
            UnknownAxisError: if there is none.
        """
        try:
            return self._by_name[name]
        except (KeyError, TypeError):
            raise UnknownAxisError(name, str(self), self.names) from None

    @cached_property
    def coordinates(self) -> Int64:
        """`[span, axes]`, read-only: row d holds the coordinates of device number d; -1 where it is not in the mesh."""
        position = np.full(self.span, -1, dtype=np.int64)
        position[list(self.devices)] = np.arange(self.size, dtype=np.int64)
        # radices run from the least significant, which is the last axis
        table = np.ascontiguousarray(to_digits(position, self.shape[::-1])[:, ::-1])
        table[position < 0] = -1
        table.flags.writeable = False
        return table

    def prime(self) -> PrimeMesh:
        """The same devices with every axis split into prime factors (Principle 1 of Section 3)."""
        return self._prime

    @cached_property
    def _prime(self) -> PrimeMesh:
        return PrimeMesh.split(self)


@dataclass(frozen=True)
class PrimeMesh:
    """A mesh, the same devices under prime axes, and how the two correspond.

    An axis `x` becomes the axes `x0, x1, ...`, minor to major, the largest prime the most minor, as in Example 3.1;
    an axis of prime size keeps its name, an axis of size 1 disappears. In the prime mesh they stand in the place of
    `x`, major first, so that row-major positions, and with them device numbers, stay what they are.

    Attributes:
        user: the mesh that was split.
        mesh: the prime mesh.
        parts: for each axis of `user`, in order, its prime axes minor to major.

    >>> print(Mesh.of("x=4,y=6").prime().mesh)
    {x1:2, x0:2, y1:2, y0:3}
    """

    user: Mesh
    mesh: Mesh
    parts: tuple[tuple[Axis, ...], ...]

    @classmethod
    def split(cls, user: Mesh) -> PrimeMesh:
        """Split every axis of a mesh."""
        taken = set(user.names)
        parts: list[tuple[Axis, ...]] = []
        for axis in user.axes:
            primes = prime_factors(axis.size)[::-1]
            if len(primes) == 1:
                parts.append((axis,))
                continue
            link = ""
            while any(f"{axis.name}{link}{k}" in taken for k in range(len(primes))):
                link += "_"
            split = tuple(Axis(f"{axis.name}{link}{k}", prime) for k, prime in enumerate(primes))
            taken.update(part.name for part in split)
            parts.append(split)
        axes = tuple(part for split in parts for part in reversed(split))
        return cls(user, Mesh(axes, user.devices), tuple(parts))

    def of_axis(self, name: str) -> tuple[Axis, ...]:
        """The prime axes of a user axis, minor to major.

        Raises:
            UnknownAxisError: if the user mesh has no such axis.
        """
        return self.parts[self.user.axes.index(self.user.axis(name))]
