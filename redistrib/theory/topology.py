"""Where devices stand: which of them fast links join, and along which mesh axes links have a speed of their own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from redistrib.lang.mesh import Mesh
from redistrib.theory.placement import Int64, number_of


@dataclass(frozen=True)
class Topology:
    """The links between the devices of a problem; how fast each kind is stands in the price list of a cost model.

    Attributes:
        devices: how many there are.
        host: of each device, the number of the host it is on; empty where all links are alike.
        axes: name, and coordinate of every device, of mesh axes whose links are told apart; empty where hosts say all.

    >>> Topology.consecutive(6, 4).host
    (0, 0, 0, 0, 1, 1)
    >>> Topology.consecutive(4, 4) == Topology(4)
    True
    """

    devices: int
    host: tuple[int, ...] = ()
    axes: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def consecutive(cls, devices: int, per_host: int) -> Topology:
        """Hosts of so many devices each, in the order of their numbers; the last one may have fewer."""
        if devices <= per_host:
            return cls(devices)
        return cls(devices, tuple(device // per_host for device in range(devices)))

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

    @property
    def sort_keys(self) -> tuple[Int64, ...]:
        """What puts devices of one host side by side in a sort: their hosts, or nothing."""
        return () if self.hosts is None else (self.hosts,)
