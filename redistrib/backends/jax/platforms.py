"""Platforms of devices, and the only door to code for one of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from redistrib.backends.jax.quirks import Quirks

if TYPE_CHECKING:
    from redistrib.backends.jax.xla_cpu.copies import TileCopies
    from redistrib.backends.jax.xla_cpu.half_duplex import HalfDuplexLinks

TPU = Quirks(ragged=True, chunk=64 << 20, copies_results=True, adds_up_lines=True)
_OTHER = Quirks(ragged=True)


@dataclass(frozen=True)
class Platform:
    """The platform of the devices of a mesh.

    Attributes:
        name: of the platform.
        processes: process of each device, in mesh order; empty if unknown.
    """

    name: str
    processes: tuple[int, ...] = ()

    @classmethod
    def of(cls, mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> Platform:
        """The platform of the devices of a mesh; of the default backend for an abstract mesh."""
        if not isinstance(mesh, jax.sharding.Mesh):
            return cls(str(jax.default_backend()))
        devices = mesh.devices.ravel().tolist()
        return cls(str(devices[0].platform), tuple(int(device.process_index) for device in devices))

    @property
    def quirks(self) -> Quirks:
        """Those of the platform with so many processes."""
        return quirks_of(self.name, len(set(self.processes)) or 1)


def quirks_of(platform: str, processes: int = 1) -> Quirks:
    """The quirks of a platform, of devices of so many processes."""
    if platform == "cpu":
        from redistrib.backends.jax.xla_cpu.quirks import quirks_of_cpus

        return quirks_of_cpus(processes)
    return TPU if platform == "tpu" else _OTHER


def links_of(quirks: Quirks, processes: Sequence[int]) -> HalfDuplexLinks | None:
    """The links between devices of these processes; None if they carry data in both directions at a time."""
    if quirks.half_duplex_bytes is None:
        return None
    from redistrib.backends.jax.xla_cpu.half_duplex import HalfDuplexLinks

    return HalfDuplexLinks(tuple(processes), quirks.half_duplex_bytes)


def copies_of_tiles(devices: Collection[Any]) -> type[TileCopies] | None:
    """The copies of tiles in the memory that these devices share with their process; None if they share none."""
    process = jax.process_index()
    if not all(device.process_index == process for device in devices):
        return None
    if not all(quirks_of(platform).copies for platform in {device.platform for device in devices}):
        return None
    from redistrib.backends.jax.xla_cpu.copies import TileCopies

    return TileCopies
