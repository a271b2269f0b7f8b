"""Where devices stand: which of them fast links join, and along which mesh axes links have a speed of their own."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from redistrib.lang.mesh import Mesh
from redistrib.theory.placement import Int64, number_of
from redistrib.theory.torus import Torus


@dataclass(frozen=True)
class Topology:
    """The links between the devices of a problem; how fast each kind is stands in the price list of a cost model.

    Attributes:
        devices: how many there are.
        host: of each device, the number of the host it is on; empty where all links are alike.
        axes: name, and coordinate of every device, of mesh axes whose links are told apart; empty where hosts say all.
        torus: the nodes that the devices of a host are on, linked with their neighbours; None where that is not known.

    >>> Topology.consecutive(6, 4).host
    (0, 0, 0, 0, 1, 1)
    >>> Topology.consecutive(4, 4) == Topology(4)
    True
    """

    devices: int
    host: tuple[int, ...] = ()
    axes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    torus: Torus | None = None

    @classmethod
    def consecutive(cls, devices: int, per_host: int) -> Topology:
        """Hosts of so many devices each, in the order of their numbers; the last one may have fewer."""
        if devices <= per_host:
            return cls(devices)
        return cls(devices, tuple(device // per_host for device in range(devices)))

    @classmethod
    def of(cls, hosts: Iterable[Hashable]) -> Topology:
        """Devices by the host of each, in the order of their numbers, however hosts are called.

        >>> Topology.of(["b", "a", "b", "a"])
        Topology(devices=4, host=(0, 1, 0, 1), axes=(), torus=None)
        """
        number: dict[Hashable, int] = {}
        host = tuple(number.setdefault(name, len(number)) for name in hosts)
        return cls(len(host), host if len(number) > 1 else ())

    @classmethod
    def of_devices(cls, devices: Iterable[Any]) -> Topology:
        """JAX devices by the slice of each, on accelerators, within which links are fast (TPU interconnect, NVLink);
        otherwise by its process. (CPU devices say a slice as well, the same on every host.) TPUs say their node too."""
        devices = list(devices)
        slices = [_slice(device) for device in devices]
        if None in slices:
            return cls.of(device.process_index for device in devices)
        found = cls.of(slices)
        return replace(found, torus=torus_of_devices(devices, found.host))

    @classmethod
    def apart(cls, devices: int, some: Collection[int]) -> Topology:
        """Two hosts: some of so many devices, and all others."""
        here = set(some)
        host = tuple(int(device not in here) for device in range(devices))
        return cls(devices, host if any(host) else ())

    @classmethod
    def along(cls, mesh: Mesh, slow: Collection[str]) -> Topology:
        """A mesh whose axes are told apart; devices that only axes other than the slow ones part share a host."""
        coordinates = mesh.coordinates
        axes = tuple((axis.name, tuple(coordinates[:, k].tolist())) for k, axis in enumerate(mesh.axes))
        across = [k for k, axis in enumerate(mesh.axes) if axis.name in slow]
        if not across or len(across) == len(mesh.axes):
            return cls(mesh.size, (), axes)
        host = number_of(coordinates[:, across], tuple(mesh.axes[k].size for k in across))
        return cls(mesh.size, tuple(host.tolist()), axes)

    @cached_property
    def hosts(self) -> Int64 | None:
        """`[devices]` host numbers; None where all links are alike."""
        return np.array(self.host, dtype=np.int64) if self.host else None

    @cached_property
    def coordinates(self) -> dict[str, Int64]:
        """`[devices]` coordinates along each of the axes that are told apart."""
        return {name: np.array(along, dtype=np.int64) for name, along in self.axes}

    @cached_property
    def unequal_hosts(self) -> bool:
        """Whether some hosts have more devices than others.

        >>> Topology.of("abb").unequal_hosts, Topology.of("aabb").unequal_hosts
        (True, False)
        """
        return len(set(np.bincount(self.host).tolist())) > 1 if self.host else False

    @property
    def tells_apart(self) -> bool:
        """Whether some devices are nearer to one another than others are."""
        return bool(self.host) or self.torus is not None

    def __str__(self) -> str:
        """How the devices lie, in a few words.

        >>> print(Topology(8), Topology.consecutive(8, 2), Topology.of("abbcc"), Topology.of("ab"), sep="; ")
        8 devices alike; 4 hosts of 2 devices; 3 hosts of 1, 2, 2 devices; 2 hosts of 1 device
        """
        if not self.host:
            return f"{self.devices} devices " + ("alike" if self.torus is None else f"on a {self.torus}")
        sizes = np.bincount(self.host).tolist()
        each = sizes[:1] if len(set(sizes)) == 1 else sizes
        devices = "device" if each == [1] else "devices"
        nodes = "" if self.torus is None else f", each on a {self.torus}"
        return f"{len(sizes)} hosts of {', '.join(map(str, each))} {devices}{nodes}"

    @property
    def sort_keys(self) -> tuple[Int64, ...]:
        """What puts devices of one host side by side in a sort: their hosts, or nothing."""
        return () if self.hosts is None else (self.hosts,)

    def among(self, devices: list[int]) -> Topology:
        """The links between some of the devices, numbered on their own."""
        host = tuple(self.host[d] for d in devices) if self.host else ()
        axes = tuple((name, tuple(along[d] for d in devices)) for name, along in self.axes)
        torus = None if self.torus is None else self.torus.of(devices)
        return Topology(len(devices), host if len(set(host)) > 1 else (), axes, torus)


def _slice(device: Any) -> int | None:
    """The slice that a device is on; None where it does not say. TPUs described to compile for are all of one."""
    slices = {"cpu": None, "tpu": getattr(device, "slice_index", 0)}
    return slices.get(device.platform, getattr(device, "slice_index", None))


def torus_of_devices(devices: Sequence[Any], slices: tuple[int, ...] = ()) -> Torus | None:
    """The nodes that TPUs are on; None for other devices, and where they stand on grids of different shapes.

    Chips in two dimensions, v5e and v6e, are linked in a ring along dimensions of 16; those in three, v4 and v5p, along
    all of them where these are multiples of 4, the side of a cube. Of others no rings are known.

    Args:
        devices: JAX devices.
        slices: the slice of each; empty for one.
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
    """Where the devices of a `jax.sharding.Mesh` stand, by their places in it; None for any other mesh, abstract ones
    among them.

    It is read by its attributes, without importing JAX.
    """
    try:
        return topology_of_devices(mesh.devices.flat)
    except (AttributeError, ValueError):
        return None


def topology_of_devices(devices: Iterable[Any]) -> Topology | None:
    """Where JAX devices stand; None where they do not say."""
    devices = list(devices)
    return Topology.of_devices(devices) if all(hasattr(device, "process_index") for device in devices) else None
