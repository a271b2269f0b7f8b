"""Bytes alive on devices while arrays come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class MemoryLedger:
    """Bytes alive on each device, by id."""

    bytes: dict[int, int] = field(default_factory=dict)

    def add(self, devices: Sequence[int], count: int) -> None:
        """Count bytes that come to each device or, if negative, leave it."""
        for device in devices:
            self.bytes[device] = self.bytes.get(device, 0) + count

    def fullest(self, devices: Sequence[int] | None = None) -> int:
        """Bytes on the fullest of some devices, or of all."""
        chosen = self.bytes.values() if devices is None else [self.bytes.get(device, 0) for device in devices]
        return max(chosen, default=0)

    def copy(self) -> MemoryLedger:
        """A separate ledger with the same bytes."""
        return MemoryLedger(dict(self.bytes))
