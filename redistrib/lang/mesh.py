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

MOST_DEVICES = 2**20  # a mesh lists its devices one by one


@dataclass(frozen=True)
class Axis:
    """A mesh axis.

    Attributes:
        name: any non-empty string.
        size: number of devices along the axis, from 1 to 2**20.

    >>> Mesh((Axis("data", 2), Axis("model", 4))) == Mesh.of({"data": 2, "model": 4})
    True
    """

    name: str
    size: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise errors.MeshError("axis name", name=self.name)
        size = as_integer(self.size)
        if size is None or size < 1:
            raise errors.axis_size_error(self.name, self.size)
        if size > MOST_DEVICES:
            raise errors.axis_size_error(self.name, size, MOST_DEVICES)
        object.__setattr__(self, "size", size)


@dataclass(frozen=True)
class Mesh:
    """Ordered named axes over devices numbered from 0 (Figure 6).

    Attributes:
        axes: the axes; the last axis varies fastest, as in `jax.sharding.Mesh`.
        devices: the device number at every mesh position, in row-major order; by default `0, 1, 2, ...`. Two orders of
            the same devices are two different meshes. A mesh over a subset of the devices leaves out other numbers.

    Raises:
        MeshError: an axis name appears twice; there are more than 64 axes or 2**20 devices; or `devices` does not have
            one number for each position, all different, from 0 to 2**20 - 1.

    >>> mesh = Mesh.of("x=4,y=6")
    >>> print(mesh, mesh.size, mesh.coordinates[7])
    {x:4, y:6} 24 [1 1]
    """

    axes: tuple[Axis, ...]
    devices: tuple[int, ...] = ()  # empty means row-major order; __post_init__ fills it in

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(self.axes))
        object.__setattr__(self, "devices", tuple(self.devices))
        if len(self.axes) > notation.MAX_RANK:
            raise errors.MeshError(
                "mesh size", mesh=str(self), size=len(self.axes), most=notation.MAX_RANK, subject="axes"
            )
        seen: set[str] = set()
        for axis in self.axes:
            if axis.name in seen:
                raise errors.MeshError("duplicate axis", name=axis.name, mesh=str(self))
            seen.add(axis.name)
        if self.size > MOST_DEVICES:
            raise errors.MeshError("mesh size", mesh=str(self), size=self.size, most=MOST_DEVICES, subject="devices")
        if not self.devices:
            object.__setattr__(self, "devices", tuple(range(self.size)))
            return
        numbers = tuple(as_integer(device) for device in self.devices)
        valid = {number for number in numbers if number is not None and 0 <= number < MOST_DEVICES}
        if len(numbers) != self.size or len(valid) != self.size:
            raise errors.device_order_error(str(self), self.size, self.devices, MOST_DEVICES)
        object.__setattr__(self, "devices", numbers)

    @classmethod
    def of(cls, value: Any, devices: Iterable[int] | None = None) -> Mesh:
        """A mesh from a `Mesh`, a mapping of names to sizes, text such as `x=4,y=6`, or a `jax.sharding.Mesh`.

        JAX is not imported: a JAX mesh is read by its attributes. Its devices are numbered by row-major position, and
        their ids are ignored.

        Args:
            value: a mesh in one of these forms.
            devices: device numbers in row-major order; they replace those of `value`.

        Raises:
            MeshError: if the value describes no mesh, or the number of devices is not the size of the mesh.
            NotationError: if the text cannot be read.

        >>> Mesh.of("x=4", range(4, 8))
        Mesh({x:4}, devices=(4, 5, 6, 7))
        """
        if devices is not None:
            return cls(cls.of(value).axes, tuple(devices))
        if isinstance(value, Mesh):
            return value
        if isinstance(value, str):
            return cls(tuple(Axis(name, size) for name, size in notation.parse_mesh(value)))
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

    def __hash__(self) -> int:
        return hash((self.axes, self._devices_hash))

    @cached_property
    def _devices_hash(self) -> int:
        return hash(self.devices)

    @cached_property
    def is_whole(self) -> bool:
        """Whether the device numbers are 0 to `size - 1`, in some order."""
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
        """`[span, axes]`, read-only: row d holds the coordinates of device d, or -1 if the mesh does not contain it."""
        position = np.full(self.span, -1, dtype=np.int64)
        position[list(self.devices)] = np.arange(self.size, dtype=np.int64)
        # to_digits takes the least significant radix first: the last axis
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
    """A mesh of prime axes, and those of each axis of the mesh over the same devices that it splits.

    An axis `x` becomes the axes `x0, x1, ...`, minor to major, the largest prime first, as in Example 3.1. An axis of
    prime size keeps its name; an axis of size 1 disappears. The prime mesh lists the prime axes of `x` in the place of
    `x`, major to minor, so every device keeps its row-major position.

    Attributes:
        mesh: the prime mesh.
        factors: the prime axes, minor to major, of each axis of the mesh that was split.

    >>> print(Mesh.of("x=4,y=6").prime().mesh)
    {x1:2, x0:2, y1:2, y0:3}
    """

    mesh: Mesh
    factors: tuple[tuple[Axis, ...], ...]

    @classmethod
    def split(cls, user: Mesh) -> PrimeMesh:
        """Split every axis of a mesh."""
        names = set(user.names)
        factors: list[tuple[Axis, ...]] = []
        for axis in user.axes:
            primes = prime_factors(axis.size)[::-1]
            if len(primes) == 1:
                factors.append((axis,))
                continue
            separator = ""
            while any(f"{axis.name}{separator}{k}" in names for k in range(len(primes))):
                separator += "_"
            prime_axes = tuple(Axis(f"{axis.name}{separator}{k}", prime) for k, prime in enumerate(primes))
            names.update(prime_axis.name for prime_axis in prime_axes)
            factors.append(prime_axes)
        axes = tuple(prime_axis for prime_axes in factors for prime_axis in reversed(prime_axes))
        return cls(Mesh(axes, user.devices), tuple(factors))
