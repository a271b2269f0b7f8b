"""Bytes alive on devices or ranks while arrays come and go."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class MemoryLedger:
    """Bytes alive on each device or rank, by its id."""

    bytes: dict[Hashable, int] = field(default_factory=dict)

    def add(self, devices: Iterable[Hashable], count: int) -> None:
        """Count as many bytes that come to each device or, if negative, leave it."""
        for device in devices:
            self.bytes[device] = self.bytes.get(device, 0) + count

    def count(self, tiles: Mapping[Any, int], times: int = 1) -> None:
        """Count bytes that come to devices, each its own, so many times or, if negative, leave them."""
        for device, size in tiles.items():
            self.bytes[device] = self.bytes.get(device, 0) + times * size

    def fullest(self, devices: Iterable[Hashable] | None = None) -> int:
        """Bytes on the fullest of some devices, or of all."""
        chosen = self.bytes.values() if devices is None else [self.bytes.get(device, 0) for device in devices]
        return max(chosen, default=0)

    def on(self, devices: Iterable[Hashable]) -> MemoryLedger:
        """A separate ledger of some devices."""
        return MemoryLedger({device: self.bytes.get(device, 0) for device in devices})

    def copy(self) -> MemoryLedger:
        """A separate ledger with the same bytes."""
        return MemoryLedger(dict(self.bytes))

    def peak(self, launch: LaunchBytes) -> int:
        """Bytes on the fullest device while a launch runs."""
        alive, added = self.bytes, launch.added.bytes
        devices = alive.keys() | added.keys() if launch.devices is None else launch.devices
        return launch.scratch + max((alive.get(device, 0) + added.get(device, 0) for device in devices), default=0)

    def run(self, launch: LaunchBytes) -> int:
        """Bytes on the fullest device while a launch runs; what it leaves behind is counted from then on."""
        peak = self.peak(launch)
        self.count(launch.change.bytes)
        return peak


@dataclass(frozen=True)
class LaunchBytes:
    """Bytes of a launch.

    Attributes:
        added: what it adds on each device while it runs.
        change: what it leaves behind on each, less what it frees.
        scratch: what it adds besides on all devices that count.
        devices: those that count in its peak; None for all.
    """

    added: MemoryLedger = field(default_factory=MemoryLedger)
    change: MemoryLedger = field(default_factory=MemoryLedger)
    scratch: int = 0
    devices: Sequence[Hashable] | None = None
