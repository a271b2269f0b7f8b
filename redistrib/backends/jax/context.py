"""The context of one device's program: its place in the mesh, and properties of the platform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.adding import Adding, adding_of
from redistrib.backends.jax.groups import axes_of_groups
from redistrib.backends.jax.offsets import LARGEST_INDEX, LargeOffset, Offset, offset_of
from redistrib.backends.jax.platforms import Platform, links_of
from redistrib.backends.jax.quirks import Quirks
from redistrib.errors import MemoryLimitError
from redistrib.plans.data import Schedule
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllToAll
from redistrib.theory.placement import Int64

if TYPE_CHECKING:
    from redistrib.backends.jax.xla_cpu.half_duplex import HalfDuplexLinks


@dataclass(frozen=True)
class LoweringContext:
    """The mesh, the schedule and the platform of a program.

    Attributes:
        names, sizes: the manual mesh axes, in mesh order.
        order: `order[p]` is the device number at row-major position p.
        schedule: `"overlap"` or `"sequential"`, see `lowering`.
        scratch: elements of scratch that the memory limit of a plan leaves. All-to-alls and gathers that fit in it stay
            dense in a sequential program.
        batched: whether tiles may have a batch dimension, by `jax.vmap`; batched gathers are lowered differently.
        gathers_in_shape: whether a gather of consecutive tiles ends in the shape of the whole, without a reshape after
            it. XLA for CPUs updates arrays in place, and does not see through a reshape that the update reads the same
            array: `x.at[1:5].set(x[:4])` then repeats its first row.
        quirks: of the platform.
        numbers: 0, 1, 2, ..., as arguments of the program, so that the compiler does not see their values.
        adding: the additions of partial sums; None if there are none.
        links: half-duplex links between processes; None if links carry data in both directions at a time.
        numbers_groups: whether collectives name devices by number where mesh axes would do. XLA of JAX 0.12 ends the
            process at such axes if a program has two meshes, and axes of one are parts of an axis of the other. A
            function that calls ours may have other meshes too.
        largest_index: by which the program indexes arrays; see `offsets`.
    """

    MOST_PIECES: ClassVar[int] = 32  # members; with more, a program with a slice for each is too long

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    schedule: Schedule = "overlap"
    scratch: int | None = None
    batched: bool = True
    gathers_in_shape: bool = False
    quirks: Quirks = field(default_factory=Quirks)
    numbers: tuple[jax.Array, ...] = field(default=(), repr=False, compare=False)
    adding: Adding | None = None
    links: HalfDuplexLinks | None = None
    numbers_groups: bool = jax.__version_info__ >= (0, 12)
    largest_index: int = LARGEST_INDEX
    position: Int64 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        position = np.empty(len(self.order), dtype=np.int64)
        position[list(self.order)] = np.arange(len(self.order))
        object.__setattr__(self, "position", position)

    @property
    def pieces(self) -> int:
        """The most members of an all-to-all whose shares are cut and joined one by one."""
        return self.MOST_PIECES if self.quirks.piecewise else 0

    def lookup(self, table: np.ndarray) -> Any:
        """The entry of the running device in a table over device numbers."""
        rows = jnp.asarray(table[list(self.order)])
        return lax.dynamic_index_in_dim(rows, lax.axis_index(self.names), keepdims=False)

    def offsets(self, table: Int64, steps: Sequence[int] = ()) -> list[Offset]:
        """The row of the running device in `[devices, rank]` offsets, as scalars; numbers if all rows are equal.

        Args:
            table: the offsets.
            steps: along each dimension the most that is added to them later.
        """
        most = [*steps, *[0] * (table.shape[1] - len(steps))]
        return [self._entry(column, step) for column, step in zip(table.T, most, strict=True)]

    def parts(self, table: Int64) -> list[Offset]:
        """As `offsets`, for the number of a part along each dimension; among `numbers` if all rows are equal."""
        return [self.number(entry) if isinstance(entry, int) else entry for entry in self.offsets(table)]

    def number_of(self, column: Int64) -> int | jax.Array:
        """The number of the running device in `[devices]` numbers that fit in 32 bits."""
        if (column == column[0]).all():
            return int(column[0])
        entry: jax.Array = self.lookup(column.astype(np.int32))
        return entry

    def branch(self, rows: Int64, run: Callable[[tuple[int, ...]], jax.Array]) -> jax.Array:
        """What runs on the row of the running device in `[devices, columns]` numbers, which the compiler then knows."""
        distinct, which = np.unique(rows, axis=0, return_inverse=True)
        branches = [partial(run, tuple(row)) for row in distinct.tolist()]
        if len(branches) == 1:
            return branches[0]()
        result: jax.Array = lax.switch(self.lookup(which.reshape(-1).astype(np.int32)), branches)
        return result

    def number(self, value: int) -> int | jax.Array:
        """A value, as an argument of the program if it is among `numbers`."""
        return self.numbers[value] if value < len(self.numbers) else value

    def _entry(self, column: Int64, step: int) -> Offset:
        if (column == column[0]).all():
            return offset_of(int(column[0]), self.largest_index)
        if column.max() + step > self.largest_index:
            values, which = np.unique(column, return_inverse=True)
            return LargeOffset(values.tolist(), self.lookup(which.astype(np.int32)), self.largest_index)
        return self.number_of(column)

    def groups(self, groups: Int64) -> dict[str, Any]:
        """Keyword arguments that name the groups of a collective, by mesh axes if the groups follow any and may.

        Devices in no group form further groups, since every device takes part.
        """
        if groups.size < len(self.order):
            groups = np.concatenate([groups, idle(groups, len(self.order)).reshape(-1, groups.shape[1])])
        placed = self.position[groups]
        axes = None if self.numbers_groups else axes_of_groups(placed, self.sizes)
        if axes is not None:
            return {"axis_name": tuple(self.names[axis] for axis in axes)}
        return {"axis_name": self.names, "axis_index_groups": placed.tolist()}

    def permute(self, tile: jax.Array, pairs: Int64) -> jax.Array:
        """`lax.ppermute` between device numbers; devices in no pair receive zeros."""
        return (
            self._send(tile, pairs) if self.links is None else self.links.permute(tile, pairs, self._send, self._is_in)
        )

    def _send(self, tile: jax.Array, pairs: Int64) -> jax.Array:
        received: jax.Array = lax.ppermute(tile, self.names, [(a, b) for a, b in self.position[pairs].tolist()])
        return received

    def _is_in(self, devices: Int64) -> jax.Array:
        """Whether the running device is one of these."""
        mask: jax.Array = self.lookup(np.isin(np.arange(len(self.order)), devices))
        return mask


def idle(groups: Int64, devices: int) -> Int64:
    """The devices without a group, ascending."""
    return np.setdiff1d(np.arange(devices), groups)


def closes(step: AllGather | AllToAll) -> bool:
    """Whether devices that are in no group of a step form groups of the same size."""
    return (step.devices - step.groups.size) % step.group_size == 0


def context_of(
    plan: Plan,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    order: tuple[int, ...],
    schedule: Schedule | None,
    platform: Platform,
) -> LoweringContext:
    """The context of a plan. Without a schedule, a plan with a memory limit runs in sequence, within the limit.

    Raises:
        MemoryLimitError: if source and target alone take more than that limit.
    """
    scratch, quirks = None, platform.quirks
    processes = [process for _, process in sorted(zip(order, platform.processes, strict=False))]
    if schedule is None and plan.memory_limit is not None:
        schedule = "sequential"
        tiles = plan.before.tile_size + plan.after.tile_size
        scratch = plan.memory_limit // plan.itemsize - tiles
        if scratch < 0:
            least = tiles * plan.itemsize
            raise MemoryLimitError(
                plan.memory_limit,
                least,
                f"source and target alone take {least:,} bytes per device, more than the limit of "
                f"{plan.memory_limit:,} that the plan was made for; plan again for the memory there is, or name a "
                "schedule to run it without a limit",
            )
    return LoweringContext(
        names,
        sizes,
        order,
        schedule or "overlap",
        scratch=scratch,
        quirks=quirks,
        adding=adding_of(plan, quirks),
        links=None if schedule == "sequential" else links_of(quirks, processes),
    )
