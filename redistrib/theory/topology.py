"""Topologies: the host of every device, the torus that devices form, and mesh axes whose links differ in speed."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from redistrib.lang.mesh import Mesh
from redistrib.theory.placement import Int64, number_of
from redistrib.theory.torus import Torus


@dataclass(frozen=True)
class Topology:
    """The links between the devices of a problem. A cost model gives the speed of every kind of link.

    Attributes:
        devices: number of devices.
        host: the host number of each device; empty if all links are equally fast.
        axes: the mesh axes whose links differ in speed: the name of each axis, and the coordinate of every device along
            it. Empty if the speed of a link depends only on hosts.
        torus: the grid of nodes that the devices of a host form, with links between neighbours; None if unknown.
        half_duplex: whether a link between two hosts carries data in one direction at a time. Plans then avoid pairs of
            devices that send to each other.

    >>> Topology.consecutive(6, 4).host
    (0, 0, 0, 0, 1, 1)
    >>> Topology.consecutive(4, 4) == Topology(4)
    True
    """

    devices: int
    host: tuple[int, ...] = ()
    axes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    torus: Torus | None = None
    half_duplex: bool = field(default=False, repr=False)

    @classmethod
    def consecutive(cls, devices: int, per_host: int) -> Topology:
        """Consecutive device numbers on hosts of `per_host` devices; the last host may have fewer."""
        if devices <= per_host:
            return cls(devices)
        return cls(devices, tuple(device // per_host for device in range(devices)))

    @classmethod
    def of(cls, hosts: Iterable[Hashable]) -> Topology:
        """The topology of devices from the host of each, in the order of device numbers; hosts have any hashable names.

        >>> Topology.of(["b", "a", "b", "a"])
        Topology(devices=4, host=(0, 1, 0, 1), axes=(), torus=None)
        """
        number: dict[Hashable, int] = {}
        host = tuple(number.setdefault(name, len(number)) for name in hosts)
        return cls(len(host), host if len(number) > 1 else ())

    @classmethod
    def of_devices(cls, devices: Iterable[Any]) -> Topology:
        """The topology of JAX devices.

        The host of an accelerator is its slice, in which links are fast (TPU interconnect, NVLink). The host of another
        device is its process: CPU devices have a slice number too, but it is the same on every host. TPUs also have
        coordinates, and so a torus.
        """
        devices = list(devices)
        slices = [_slice(device) for device in devices]
        if None in slices:
            return cls.of(device.process_index for device in devices)
        topology = cls.of(slices)
        return replace(topology, torus=torus_of_devices(devices, topology.host))

    @classmethod
    def two_hosts(cls, devices: int, first: Collection[int]) -> Topology:
        """Two hosts: the devices of `first` on one, all others on the other."""
        members = set(first)
        host = tuple(int(device not in members) for device in range(devices))
        return cls(devices, host if any(host) else ())

    @classmethod
    def along(cls, mesh: Mesh, slow: Collection[str]) -> Topology:
        """The topology of a mesh whose axes differ in speed; devices with equal coordinates on `slow` share a host."""
        coordinates = mesh.coordinates
        axes = tuple((axis.name, tuple(coordinates[:, k].tolist())) for k, axis in enumerate(mesh.axes))
        columns = [k for k, axis in enumerate(mesh.axes) if axis.name in slow]
        if not columns or len(columns) == len(mesh.axes):
            return cls(mesh.size, (), axes)
        host = number_of(coordinates[:, columns], tuple(mesh.axes[k].size for k in columns))
        return cls(mesh.size, tuple(host.tolist()), axes)

    @cached_property
    def hosts(self) -> Int64 | None:
        """`[devices]` host numbers; None if all links are equally fast."""
        return np.array(self.host, dtype=np.int64) if self.host else None

    @cached_property
    def coordinates(self) -> dict[str, Int64]:
        """`[devices]` coordinates along each axis of `axes`, by name."""
        return {name: np.array(along, dtype=np.int64) for name, along in self.axes}

    @cached_property
    def unequal_hosts(self) -> bool:
        """Whether some hosts have more devices than others.

        >>> Topology.of("abb").unequal_hosts, Topology.of("aabb").unequal_hosts
        (True, False)
        """
        return len(set(np.bincount(self.host).tolist())) > 1 if self.host else False

    @property
    def has_locality(self) -> bool:
        """Whether some devices are nearer to each other than others, by hosts or by a torus."""
        return bool(self.host) or self.torus is not None

    def __str__(self) -> str:
        """A description in a few words.

        >>> print(Topology(8), Topology.consecutive(8, 2), Topology.of("abbcc"), Topology.of("ab"), sep="; ")
        8 devices alike; 4 hosts of 2 devices; 3 hosts of 1, 2, 2 devices; 2 hosts of 1 device
        """
        if not self.host:
            return f"{self.devices} devices " + ("alike" if self.torus is None else f"on a {self.torus}")
        sizes = np.bincount(self.host).tolist()
        counts = sizes[:1] if len(set(sizes)) == 1 else sizes
        devices = "device" if counts == [1] else "devices"
        nodes = "" if self.torus is None else f", each on a {self.torus}"
        return f"{len(sizes)} hosts of {', '.join(map(str, counts))} {devices}{nodes}"

    @property
    def sort_keys(self) -> tuple[Int64, ...]:
        """Keys for `np.lexsort` that group devices by host; empty if all links are equally fast."""
        return () if self.hosts is None else (self.hosts,)

    def subset(self, devices: list[int]) -> Topology:
        """The topology of some of the devices, renumbered from 0 in this order."""
        host = tuple(self.host[d] for d in devices) if self.host else ()
        axes = tuple((name, tuple(along[d] for d in devices)) for name, along in self.axes)
        torus = None if self.torus is None else self.torus.subset(devices)
        return Topology(len(devices), host if len(set(host)) > 1 else (), axes, torus, self.half_duplex)


def _slice(device: Any) -> int | None:
    """The slice of a device; None if it has none. TPUs described for compilation have no slice number, so take 0."""
    slices = {"cpu": None, "tpu": getattr(device, "slice_index", 0)}
    return slices.get(device.platform, getattr(device, "slice_index", None))


def torus_of_devices(devices: Sequence[Any], slices: tuple[int, ...] = ()) -> Torus | None:
    """The torus of TPUs; None for other devices, and if slices have different shapes.

    Two-dimensional chips (v5e, v6e) form rings along dimensions of 16. Three-dimensional chips (v4, v5p) form rings
    along all dimensions if these are multiples of 4, the side of a cube. No rings are assumed for other chips.

    Args:
        devices: JAX devices.
        slices: the slice of each device; empty for a single slice.
    """
    if not devices or not all(device.platform == "tpu" and hasattr(device, "coords") for device in devices):
        return None
    coords = np.array([tuple(device.coords) for device in devices], dtype=np.int64)
    number = np.array(slices or [0] * len(devices))
    corners = [(coords[number == k].min(axis=0), coords[number == k].max(axis=0)) for k in range(int(number.max()) + 1)]
    shape = corners[0][1] - corners[0][0] + 1
    if any((high - low + 1 != shape).any() for low, high in corners):
        return None
    coords -= np.stack([low for low, _ in corners])[number]
    sizes, kind = tuple(shape.tolist()), devices[0].device_kind.lower()
    wraps = [False] * len(sizes)
    if "lite" in kind or "v5e" in kind or "v6e" in kind:
        wraps = [size == 16 for size in sizes]
    elif "v4" in kind or "v5" in kind:
        wraps = [all(size % 4 == 0 for size in sizes)] * len(sizes)
    return Torus(sizes, tuple(wraps), tuple(map(tuple, coords.tolist())), slices)


def topology_of_mesh(mesh: Any) -> Topology | None:
    """The topology of a `jax.sharding.Mesh`, with devices numbered by row-major position; None for any other mesh.

    JAX is not imported: the mesh is read by its attributes. An abstract mesh has no devices, so it gives None.
    """
    try:
        return topology_of_devices(mesh.devices.flat)
    except (AttributeError, ValueError):
        return None


def topology_of_devices(devices: Iterable[Any]) -> Topology | None:
    """The topology of JAX devices; None if a device has no process index."""
    devices = list(devices)
    return Topology.of_devices(devices) if all(hasattr(device, "process_index") for device in devices) else None
