"""The latency-bandwidth model: what a step takes in seconds.

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
from redistrib.plans.steps import Step
from redistrib.theory.topology import Topology
from redistrib.theory.weak import WeakEdge, WeakSpace


@dataclass(frozen=True, eq=False)
class LatencyBandwidth(Figures):
    """Seconds by latency, links and local copies, from a machine's figures."""

    unit: ClassVar[str] = "seconds"
    normal_forms_suffice: ClassVar[bool] = False

    def topology(self, mesh: Mesh, known: Topology | None = None) -> Topology:
        """The mesh axes where `axis_bandwidth` names one; otherwise what is known: hosts where links between them are
        slower, the torus where its links have a speed. Or else hosts of `devices_per_host` consecutive devices."""
        speed = {axis.name: self.axis_bandwidth.get(axis.name, self.bandwidth) for axis in mesh.axes}
        if any(name in self.axis_bandwidth for name in speed):
            slowest = min(speed.values())
            return Topology.along(mesh, [name for name, bandwidth in speed.items() if bandwidth == slowest])
        if known is not None:
            return self._told_apart(known)
        if self.slow_bandwidth is None or self.devices_per_host is None:
            return Topology(mesh.size)
        return Topology.consecutive(mesh.size, self.devices_per_host)

    def topology_apart(self, devices: int, source: Collection[int], known: Topology | None = None) -> Topology:
        """As for a mesh. Where nothing else is known, `slow_bandwidth` without `devices_per_host` is that of links from
        the source's devices to others."""
        if known is not None:
            return self._told_apart(known)
        if self.slow_bandwidth is None:
            return Topology(devices)
        if self.devices_per_host is None:
            return Topology.apart(devices, source)
        return Topology.consecutive(devices, self.devices_per_host)

    def in_sequence(self) -> LatencyBandwidth:
        return replace(self, overlaps=False) if self.overlaps else self

    def _told_apart(self, known: Topology) -> Topology:
        """Of the links that are known, those whose speed is."""
        host = known.host if self.slow_bandwidth is not None else ()
        torus = known.torus if self.link_bandwidth is not None else None
        if (host, torus) == (known.host, known.torus):
            return known
        return Topology(known.devices, host, known.axes, torus)

    def edge(self, edge: WeakEdge, space: WeakSpace, itemsize: int, topology: Topology) -> float:
        return self._prices(itemsize, topology).edge(edge, space)

    def step(self, step: Step, itemsize: int, topology: Topology) -> float:
        return self._prices(itemsize, topology).step(step)

    def _prices(self, itemsize: int, topology: Topology) -> LatencyPrices:
        return LatencyPrices(self, itemsize, topology)
