"""Where the program of one device runs: its place in the mesh, and what suits the platform."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.adding import Adding, adding_of
from redistrib.backends.jax.groups import axes_of_groups
from redistrib.backends.jax.one_way import relayed, two_turns
from redistrib.backends.jax.xla_cpu import Quirks, has_ragged_all_to_all, quirks_of
from redistrib.errors import MemoryLimitError
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllToAll
from redistrib.plans.writes import Turns
from redistrib.theory.placement import Int64

Schedule: TypeAlias = Literal["overlap", "sequential"]

TPU_CHUNK = 64 << 20  # bytes; see `LoweringContext.chunk`: memory is what is scarce on TPUs


@dataclass(frozen=True)
class LoweringContext:
    """Where a program runs.

    Attributes:
        names, sizes: the manual mesh axes, in mesh order.
        order: `order[p]` is the device number at row-major position p.
        schedule: see the module.
        scratch: elements of scratch that the memory limit of a plan leaves; all-to-alls and gathers that fit in it stay
            dense in a sequential program too.
        chunk: bytes; dense collectives with local copies, over tiles larger than this, run in a loop over slices of
            the tiles. None: at once.
        copies_results: whether the compiler copies what a collective leaves to where the program's result goes, as that
            of TPUs does; then no gather goes without a local copy, and no permute without scratch.
        adds_up_lines: whether the compiler makes a gather of tiles of rank 1 a sum of padded ones, of twice the bytes,
            as that of TPUs does.
        ragged: whether the platform has a ragged all-to-all; an exchange that asks for one goes in rounds otherwise.
        batched: whether tiles may have a dimension in front, by `jax.vmap`; what is best gathered without one is not
            with it.
        quirks: of the platform.
        numbers: 0, 1, 2 and so on, as values that the compiler does not see.
        adding: how sums are made; None where no tiles are summands.
        processes: of every device, by its number.
    """

    MOST_PIECES: ClassVar[int] = 32  # members; above, a program of one slice for each becomes too long

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    schedule: Schedule = "overlap"
    scratch: int | None = None
    chunk: int | None = None
    copies_results: bool = False
    adds_up_lines: bool = False
    ragged: bool = False
    batched: bool = True
    quirks: Quirks = field(default_factory=Quirks)
    numbers: tuple[jax.Array, ...] = field(default=(), repr=False, compare=False)
    adding: Adding | None = None
    processes: tuple[int, ...] = ()
    position: Int64 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        position = np.empty(len(self.order), dtype=np.int64)
        position[list(self.order)] = np.arange(len(self.order))
        object.__setattr__(self, "position", position)

    @property
    def pieces(self) -> int:
        """Members of an all-to-all up to which shares are cut and joined one by one."""
        return self.MOST_PIECES if self.quirks.piecewise else 0

    def lookup(self, table: np.ndarray) -> Any:
        """The entry `table[d]` of the device that runs, of a table over device numbers."""
        rows = jnp.asarray(table[list(self.order)])
        return lax.dynamic_index_in_dim(rows, lax.axis_index(self.names), keepdims=False)

    def offsets(self, table: Int64) -> list[int | jax.Array]:
        """Row d of `[devices, rank]` offsets as scalars, on the device d that runs; one number where all rows agree."""
        return [self._entry(column) for column in table.T]

    def parts(self, table: Int64) -> list[int | jax.Array]:
        """As `offsets`, of which part to take along each dimension; made of `numbers` where all rows agree."""
        return [self.number(entry) if isinstance(entry, int) else entry for entry in self.offsets(table)]

    def number(self, value: int) -> int | jax.Array:
        """A value, as one of `numbers` if it is among them."""
        return self.numbers[value] if value < len(self.numbers) else value

    def _entry(self, column: Int64) -> int | jax.Array:
        if (column == column[0]).all():
            return int(column[0])
        entry: jax.Array = self.lookup(column.astype(np.int32))
        return entry

    def groups(self, groups: Int64) -> dict[str, Any]:
        """Keyword arguments that name the groups of a collective: mesh axes where they follow some.

        Devices in no group form groups of their own, since every device takes part.
        """
        if groups.size < len(self.order):
            groups = np.concatenate([groups, idle(groups, len(self.order)).reshape(-1, groups.shape[1])])
        placed = self.position[groups]
        axes = axes_of_groups(placed, self.sizes)
        if axes is not None:
            return {"axis_name": tuple(self.names[axis] for axis in axes)}
        return {"axis_name": self.names, "axis_index_groups": placed.tolist()}

    def ring(self, groups: Int64) -> tuple[Int64, list[int]] | None:
        """The groups with the members of each process side by side, and where each member then stands: gathers go
        around a ring in the order of the group. None where they stand so, or not all groups are alike."""
        where = np.array(self.processes)[groups]
        order = np.argsort(where, axis=1, kind="stable")
        if (order != order[0]).any() or (_turns(where) <= _turns(np.take_along_axis(where, order, axis=1))).all():
            return None
        return groups[:, order[0]], np.argsort(order[0]).tolist()

    def permute(self, tile: jax.Array, pairs: Int64) -> jax.Array:
        """`lax.ppermute` between device numbers; devices that receive nothing get zeros."""

        def sent(tile: jax.Array, pairs: Int64) -> jax.Array:
            moved: jax.Array = lax.ppermute(tile, self.names, [(a, b) for a, b in self.position[pairs].tolist()])
            return moved

        size = tile.size * tile.dtype.itemsize
        if not self.goes_one_way(size):
            return sent(tile, pairs)
        keeps = pairs[:, 0] == pairs[:, 1]
        moving, keepers = pairs[~keeps], pairs[keeps, 0]
        if (turns := self.turns(moving, size)) is not None:
            moved = sent(tile, turns[0])
            then = sent(tile, turns[1])
        elif (turns := relayed(moving, self.processes)) is not None:
            moved = sent(tile, turns[0])
            then = sent(moved, turns[1])
        else:
            return sent(tile, pairs)
        late, kept = (self.lookup(np.isin(np.arange(len(self.order)), some)) for some in (turns[1][:, 1], keepers))
        moved = jnp.where(late, then, moved)
        return jnp.where(kept, tile, moved) if len(keepers) else moved

    def turns(self, pairs: Int64, size: int) -> tuple[Int64, Int64] | None:
        """The pairs of a permute of so many bytes each in two turns; None where it had better go at once."""
        return two_turns(pairs, self.processes) if self.goes_one_way(size) else None

    def turns_of(self, itemsize: int) -> Turns | None:
        """The turns of permutes of elements of so many bytes; None where nothing ever takes any."""
        if self.quirks.one_way_bytes is None:
            return None
        return lambda pairs, elements: self.turns(pairs, elements * itemsize)

    def goes_one_way(self, size: int) -> bool:
        """Whether so many bytes for each device had better travel one way at a time between two processes."""
        least = self.quirks.one_way_bytes
        return least is not None and size >= least and self.schedule == "overlap"

    def crosses(self, groups: Int64) -> bool:
        """Whether a group has members in several processes."""
        where = np.array(self.processes)[groups]
        return bool((where != where[:, :1]).any())


def _turns(where: Int64) -> Int64:
    """For each row, how often neighbours on a ring around it differ."""
    turns: Int64 = (where != np.roll(where, 1, axis=1)).sum(axis=1)
    return turns


@dataclass(frozen=True)
class Platform:
    """What runs the programs of a mesh.

    Attributes:
        name: of the platform.
        processes: of the devices, in mesh order; empty where they are not known.
    """

    name: str
    processes: tuple[int, ...] = ()

    @classmethod
    def of(cls, mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> Platform:
        """That of the devices of a mesh; the default backend's where the mesh is abstract."""
        if not isinstance(mesh, jax.sharding.Mesh):
            return cls(str(jax.default_backend()))
        devices = mesh.devices.ravel().tolist()
        return cls(str(devices[0].platform), tuple(int(device.process_index) for device in devices))


def idle(groups: Int64, devices: int) -> Int64:
    """The devices, of so many, that are in no group, ascending."""
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
    """The context of a plan; one that has a memory limit, and no schedule of its own, runs in sequence within it.

    Raises:
        MemoryLimitError: if source and target alone take more than that limit.
    """
    scratch, quirks = None, quirks_of(platform.name, len(set(platform.processes)) or 1)
    processes = dict(zip(order, platform.processes, strict=False))
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
        chunk=TPU_CHUNK if platform.name == "tpu" else quirks.chunk,
        copies_results=platform.name == "tpu",
        adds_up_lines=platform.name == "tpu",
        ragged=has_ragged_all_to_all(platform.name),
        quirks=quirks,
        adding=adding_of(plan, platform.name),
        processes=tuple(process for _, process in sorted(processes.items())),
    )
