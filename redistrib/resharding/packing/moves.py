"""What is known of leaves that are to be moved, and asked of the programs that move them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from redistrib.plans.plan import Plan


class MoveSpec(Protocol):
    """What leaves that share a plan and an executable have in common, equal for those that do."""

    @property
    def source_bytes(self) -> int: ...

    @property
    def target_bytes(self) -> int: ...

    @property
    def plan(self) -> Plan: ...


@dataclass(frozen=True)
class LeafMove:
    """A leaf to be moved.

    Attributes:
        index: its place among the leaves.
        path: its path in the tree.
        spec: leaves of one spec share a plan and an executable.
        devices: ids of the devices that its program runs on.
        donated: whether its source is given up once it has travelled, if its buffers are no other array's.
        without_source, without_target: ids of those devices that hold nothing of it before, or after: they have a tile
            all the same while the program runs.
        parts: in how many parts it travels, one after the other; devices without data have tiles of one part.
        shares_buffers: whether other arrays have buffers of a donated source, in this process. Then it stays for now.
            Processes may differ in this, and must launch the same, so it decides about no launch.
    """

    index: int
    path: str
    spec: MoveSpec
    devices: tuple[int, ...]
    donated: bool = False
    without_source: tuple[int, ...] = ()
    without_target: tuple[int, ...] = ()
    parts: int = 1
    shares_buffers: bool = False

    @property
    def frees_source(self) -> bool:
        """Whether its source is given up as soon as it has travelled."""
        return self.donated and not self.shares_buffers

    @property
    def source_bytes(self) -> int:
        """Bytes of the source tile."""
        return self.spec.source_bytes

    @property
    def target_bytes(self) -> int:
        """Bytes of the target tile."""
        return self.spec.target_bytes

    @property
    def plan(self) -> Plan:
        """The plan without a memory limit, made when it is first asked for."""
        return self.spec.plan


class PlanEntry(Protocol):
    """What leaves of one spec go through."""

    @property
    def plan(self) -> Plan: ...

    @property
    def times(self) -> int: ...

    @property
    def stacked(self) -> bool: ...


class BucketProgram(Protocol):
    """What carries out a bucket."""

    @property
    def entries(self) -> Sequence[PlanEntry]: ...

    @property
    def added_bytes(self) -> int: ...


Group: TypeAlias = tuple[LeafMove, ...]  # leaves of one spec
