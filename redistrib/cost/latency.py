"""The latency-bandwidth model: the seconds of a step.

A collective takes a latency that depends on its kind and group size, the bytes its busiest device receives over the
bandwidth of the links they cross, and the local copies around it over the bandwidth of memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from redistrib.cost.collective import Latency as Latency
from redistrib.cost.figures import KINDS as KINDS
from redistrib.cost.figures import Figures
from redistrib.cost.latency_prices import LatencyPrices
from redistrib.lang.mesh import Mesh
from redistrib.theory.topology import Topology


@dataclass(frozen=True, eq=False)
class LatencyBandwidth(Figures):
    """Seconds by latency, links and local copies, from a machine's figures.

    >>> from redistrib.cost.presets import cost_model
    >>> tpu = cost_model("tpu")
    >>> tpu.bandwidth, tpu.latency["allgather"].launch
    (200000000000.0, 5e-06)
    """

    unit: ClassVar[str] = "seconds"
    normal_forms_suffice: ClassVar[bool] = False

    def topology(self, mesh: Mesh, topology: Topology | None = None) -> Topology:
        """The mesh axes where `axis_bandwidth` names one; else the hosts of `topology` where links between hosts are
        slower, and its torus where a link of it has a speed. By default hosts of `devices_per_host` devices."""
        return self._with_duplex(self._of_mesh(mesh, topology))

    def _of_mesh(self, mesh: Mesh, topology: Topology | None) -> Topology:
        speed = {axis.name: self.axis_bandwidth.get(axis.name, self.bandwidth) for axis in mesh.axes}
        if any(name in self.axis_bandwidth for name in speed):
            slowest = min(speed.values())
            return Topology.along(mesh, [name for name, bandwidth in speed.items() if bandwidth == slowest])
        if topology is not None:
            return self._priced_links(topology)
        if self.slow_bandwidth is None or self.devices_per_host is None:
            return Topology(mesh.size)
        return Topology.consecutive(mesh.size, self.devices_per_host)

    def topology_apart(self, devices: int, source: Collection[int], topology: Topology | None = None) -> Topology:
        """As for a mesh. Without `topology` and `devices_per_host`, `slow_bandwidth` is the speed between the source's
        devices and others."""
        if topology is not None:
            return self._with_duplex(self._priced_links(topology))
        if self.slow_bandwidth is None:
            return Topology(devices)
        if self.devices_per_host is None:
            return self._with_duplex(Topology.two_hosts(devices, source))
        return self._with_duplex(Topology.consecutive(devices, self.devices_per_host))

    def _with_duplex(self, topology: Topology) -> Topology:
        """The same topology, half duplex where the profile has a slower `swap_bandwidth`."""
        alone = self.bandwidth if self.slow_bandwidth is None else self.slow_bandwidth
        return replace(topology, half_duplex=self.swap_bandwidth is not None and self.swap_bandwidth < alone)

    def _priced_links(self, topology: Topology) -> Topology:
        """The hosts and torus of a topology, where the profile has a speed for their links."""
        host = topology.host if self.slow_bandwidth is not None else ()
        torus = topology.torus if self.link_bandwidth is not None else None
        if (host, torus) == (topology.host, topology.torus):
            return topology
        return Topology(topology.devices, host, topology.axes, torus)

    def prices(self, itemsize: int, topology: Topology) -> LatencyPrices:
        return LatencyPrices(self, itemsize, topology)
