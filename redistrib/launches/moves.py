"""Leaves to be moved, the entries of programs, and the protocols of specs and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from redistrib.plans.data import Schedule
from redistrib.plans.plan import Plan


class MoveSpec(Protocol):
    """The common properties of leaves that share a plan and an executable; equal for such leaves."""

    @property
    def source_bytes(self) -> int: ...

    @property
    def target_bytes(self) -> int: ...

    @property
    def kinds(self) -> tuple[str | None, str | None]: ...

    @property
    def plan(self) -> Plan: ...


@dataclass(frozen=True)
class LeafMove:
    """A leaf to be moved.

    Attributes:
        index: its number among the leaves.
        path: its path in the tree.
        spec: leaves of one spec share a plan and an executable.
        devices: ids of the devices of its program.
        gives_up_source: whether its source in the devices' memory is deleted after it has travelled, unless other
            arrays share its buffers: a donated leaf, or the copy that a launch loads from other memory.
        without_source, without_target: ids of the devices without a tile of the source, or of the target. They have a
            tile of zeros while the program runs.
        parts: number of parts in which it travels, one after the other; devices without data have tiles of one part.
        shares_buffers: whether other arrays in this process share buffers of a source that is given up, which then
            stays for now. Processes may differ in this, and must make equal launches, so no launch depends on it.
    """

    index: int
    path: str
    spec: MoveSpec
    devices: tuple[int, ...]
    gives_up_source: bool = False
    without_source: tuple[int, ...] = ()
    without_target: tuple[int, ...] = ()
    parts: int = 1
    shares_buffers: bool = False

    @property
    def frees_source(self) -> bool:
        """Whether its source in the devices' memory is deleted as soon as it has travelled."""
        return self.gives_up_source and not self.shares_buffers

    @property
    def loads(self) -> bool:
        """Whether its source comes from other memory than the devices' default for the launch alone."""
        return self.spec.kinds[0] is not None

    @property
    def stores(self) -> bool:
        """Whether its result goes to other memory than the devices' default after the launch."""
        return self.spec.kinds[1] is not None

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the source tile if it is in the devices' memory for the launch alone, else none."""
        return self.spec.source_bytes if self.loads else 0

    @property
    def freed_bytes(self) -> int:
        """Bytes that a device has less once its source is deleted."""
        return self.spec.source_bytes - self.loaded_bytes

    @property
    def resulting_bytes(self) -> int:
        """Bytes of the target tile if it stays in the devices' memory, else none."""
        return 0 if self.stores else self.spec.target_bytes

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
        """The plan without a memory limit, synthesized on first use."""
        return self.spec.plan


@dataclass(frozen=True)
class PlanEntry:
    """The part of a program for arrays of one shape, which move by one plan.

    Attributes:
        plan: of each array, or of each of its parts.
        dtype: of the arrays.
        count: number of arrays.
        stacked: whether their tiles are stacked for shared collectives: fewer collectives, two more copies. Whole tiles
            between the same devices are stacked with those of other entries, of any shapes.
        reused: whether outputs overwrite inputs, which are then deleted; needs tiles of one shape.
        schedule: of rounds, see `redistrib.backends.jax.lowering`; None for that of the plan's memory limit.
        times: how often the plan runs for an array: once, or for each of its parts.
    """

    plan: Plan
    dtype: Any
    count: int = 1
    stacked: bool = False
    reused: bool = False
    schedule: Schedule | None = None
    times: int = 1


class BucketProgram(Protocol):
    """The program of a bucket."""

    @property
    def entries(self) -> Sequence[PlanEntry]: ...

    @property
    def added_bytes(self) -> int: ...


Group: TypeAlias = tuple[LeafMove, ...]  # leaves of one spec
