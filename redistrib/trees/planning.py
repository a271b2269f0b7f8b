"""Plans and executables of leaves, each made once and kept in bounded caches."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import jax
from jax.sharding import Sharding

from redistrib.backends.jax import flat, leaves, rewrap
from redistrib.backends.jax.flat import FlatProgram, Load
from redistrib.backends.jax.frame import Schedule
from redistrib.backends.jax.pile import company
from redistrib.cache import Cache, CacheInfo
from redistrib.cost.model import CostModel
from redistrib.errors import MemoryLimitError
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.synthesis.synthesize import synthesize
from redistrib.trees.routes import Route, Sides, route
from redistrib.trees.schedule import Group, Item

Model: TypeAlias = CostModel | str | None

# Bytes of tile up to which a collective costs more than two copies: on links, and between threads of one process.
SMALL = 512 * 1024
SMALL_NEAR = 64 * 1024
# Leaves of such tiles that travel side by side. XLA:CPU takes long to make the loops that part them again, and one of
# a short stack and what follows it.
STACK = 2
STACK_NEAR = 9

# Bytes of source and target tiles that make a launch worth its while, over links and between threads of one process.
LEAST_LAUNCH = 16 * 2**20
LEAST_LAUNCH_NEAR = 2 * 2**20

# Bytes of tiles that are cut, up to which XLA:CPU takes longer to optimize the loops than these take.
QUICK_BYTES = 4 * 2**20

# (of every leaf: its path, abstract value and shardings; which share buffers, donation, memory limit, cost model)
TREES: Cache[Any] = Cache(64)
# What a leaf's shape and shardings ask for: (shape, source sharding, target sharding).
ROUTES: Cache[Route] = Cache(8192)
# (source type and mesh, target type, mesh and device order, dtype, cost model, memory limit)
PLANS: Cache[Plan] = Cache(2048)
# of every load: (types, meshes, dtype and devices, cost model, memory limit, schedule, leaves at once, stacked, whether
# outputs replace inputs)
PROGRAMS: Cache[FlatProgram] = Cache(512)
# (types and meshes, dtype, cost model): the least memory limit that some plan keeps
_LEAST: Cache[int] = Cache(2048)


def cache_info() -> dict[str, CacheInfo]:
    """Hits, misses, size and limit of every cache, by name: "trees", "routes", "plans", "programs"."""
    return {"trees": TREES.info, "routes": ROUTES.info, "plans": PLANS.info, "programs": PROGRAMS.info}


def clear_caches() -> None:
    """Forget all routes, plans and compiled programs."""
    for cache in (TREES, ROUTES, PLANS, PROGRAMS, _LEAST):
        cache.clear()
    for module in (flat, rewrap, leaves):
        module.forget()


def route_of(shape: tuple[int, ...], source: Sharding | None, target: Sharding) -> Route:
    """The way of a leaf; see `routes.route`."""
    return ROUTES.get((shape, source, target), lambda: route(shape, source, target))


class Planner:
    """Plans and programs under one cost model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def key(self) -> Hashable:
        """What the model is known by."""
        return _hashable(self._model)

    def plan(self, sides: Sides, dtype: str, platform: str, memory_limit: int | None = None) -> Plan:
        """The plan between two types.

        Raises:
            MemoryLimitError: if none fits the limit.
        """
        key = (sides, dtype, self._model_key(platform), memory_limit)
        return PLANS.get(key, lambda: self._synthesized(sides, dtype, platform, memory_limit))

    def _synthesized(self, sides: Sides, dtype: str, platform: str, memory_limit: int | None) -> Plan:
        return synthesize(
            sides.source,
            sides.source_mesh,
            sides.target,
            sides.target_mesh,
            dtype=dtype,
            model=self._on(platform),
            memory_limit=memory_limit,
        )

    def _on(self, platform: str) -> CostModel | str:
        if self._model is not None:
            return self._model
        return platform if platform in ("cpu", "gpu", "tpu") else "gpu"

    def _model_key(self, platform: str) -> Hashable:
        return _hashable(self._on(platform))

    # ------------------------------------------------------------------------------------------ programs

    def program(self, groups: Sequence[Group], dtypes: Sequence[Any], *, numbered: bool) -> FlatProgram:
        """The program that moves groups of leaves in one launch, by their plans without a limit; see `FlatProgram`."""
        return self._program(
            [
                self._load(group[0], dtype, None, "overlap", len(group), stacked)
                for group, dtype, stacked in zip(groups, dtypes, _stacked(groups, dtypes), strict=True)
            ],
            numbered,
        )

    def _load(
        self,
        item: Item,
        dtype: Any,
        limit: int | None,
        schedule: Schedule | None,
        count: int = 1,
        stacked: bool = False,
    ) -> _Load:
        kind = _known(item.kind)
        plan = item.plan if limit is None else self.plan(kind.sides, kind.dtype, kind.platform, limit)
        reuses = item.donated and not stacked and plan.before.tile == plan.after.tile
        key = (kind, self._model_key(kind.platform), limit, schedule, count, stacked, reuses)
        return _Load(key, kind.devices, Load(plan, dtype, count, stacked, reuses, schedule))

    def _program(self, loads: Sequence[_Load], numbered: bool = False) -> FlatProgram:
        devices = loads[0].devices
        options = compiler_options(devices[0].platform, sum(load.load.cut_bytes for load in loads))
        return PROGRAMS.get(
            (numbered, *[load.key for load in loads]),
            lambda: FlatProgram([load.load for load in loads], devices, options, numbered=numbered),
        )

    def within(self, item: Item, dtype: Any, room: int) -> FlatProgram:
        """The fastest program of one leaf that adds at most `room` bytes per device, as the compiler reports them.

        Raises:
            MemoryLimitError: if none does.
        """
        least: int | None = None
        larger = max(item.source_bytes, item.target_bytes)
        tries: list[tuple[int | None, Schedule | None]] = []
        if item.target_bytes + 2 * larger <= room:
            tries.append((None, "overlap"))
        if item.plan.peak_bytes - item.source_bytes <= room:
            tries.append((None, "sequential"))
        elif self._frugal(item) <= room + item.source_bytes:
            tries.append((room + item.source_bytes, None))
        tries += [(self._frugal(item), None), (None, "sequential"), (None, "overlap")]
        for limit, schedule in tries:
            program = self._program([self._load(item, dtype, limit, schedule)]).compile()
            if program.added_bytes <= room:
                return program
            least = min(least or program.added_bytes, program.added_bytes)
        raise MemoryLimitError(room, least or 0)

    def least(self, item: Item, dtype: Any) -> int:
        """The least bytes per device that any program of a leaf adds, as the compiler reports them."""
        try:
            return self.within(item, dtype, 0).added_bytes
        except MemoryLimitError as error:
            return error.least

    def _frugal(self, item: Item) -> int:
        """The least memory limit that a plan of the leaf is predicted to keep."""
        kind = _known(item.kind)
        return _LEAST.get((kind.sides, kind.dtype, self._model_key(kind.platform)), lambda: self._least_limit(kind))

    def _least_limit(self, kind: Kind) -> int:
        try:
            return self.plan(kind.sides, kind.dtype, kind.platform, 1).peak_bytes
        except MemoryLimitError as error:
            return error.least


@dataclass(frozen=True)
class Kind:
    """What leaves that share a plan and an executable have in common.

    Attributes:
        sides: source and target.
        dtype: of the leaves, by name.
        devices: in the order of their numbers.
        planner: what makes the plan.
    """

    sides: Sides
    dtype: str
    devices: tuple[Any, ...]
    planner: Planner = field(repr=False, compare=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # of many parts, and asked for often
        return hash((self.sides, self.dtype, self.devices))

    @property
    def platform(self) -> str:
        """Of the devices."""
        return str(self.devices[0].platform)

    @cached_property
    def near(self) -> bool:
        """Whether the devices are threads of one process."""
        return self.platform == "cpu" and len({device.process_index for device in self.devices}) == 1

    @property
    def source_bytes(self) -> int:
        """Bytes of a source tile."""
        return self.sides.source.local_size * self._itemsize

    @property
    def target_bytes(self) -> int:
        """Bytes of a target tile."""
        return self.sides.target.local_size * self._itemsize

    @cached_property
    def _itemsize(self) -> int:
        return itemsize_of(self.dtype)

    @cached_property
    def plan(self) -> Plan:
        """The plan without a memory limit."""
        return self.planner.plan(self.sides, self.dtype, self.platform)


def _tile_bytes(item: Item) -> int:
    return max(item.source_bytes, item.target_bytes)


def _stacked(groups: Sequence[Group], dtypes: Sequence[Any]) -> list[bool]:
    """Which leaves of a launch had best travel side by side, in fewer collectives with two more copies."""
    first = _known(groups[0][0].kind)
    small, least = (SMALL_NEAR, STACK_NEAR) if first.near else (SMALL, STACK)
    others = [  # that leaves of a group may travel with: those of one pile, or of one kind
        company(group[0].plan, dtype, first.platform) or (group[0].kind, group[0].donated)
        for group, dtype in zip(groups, dtypes, strict=True)
    ]
    count: Counter[Any] = Counter()
    for group, name in zip(groups, others, strict=True):
        count[name] += len(group) if _tile_bytes(group[0]) <= small else 0
    return [_tile_bytes(group[0]) <= small and count[name] >= least for group, name in zip(groups, others, strict=True)]


def _known(kind: Any) -> Kind:
    assert isinstance(kind, Kind)
    return kind


def least_launch(kind: Kind) -> int:
    """Bytes of source and target tiles that make a launch over the devices of leaves worth its while."""
    return LEAST_LAUNCH_NEAR if kind.near else LEAST_LAUNCH


@dataclass(frozen=True)
class _Load:
    """A load, what it is known by, and its devices."""

    key: Hashable
    devices: tuple[Any, ...]
    load: Load


@dataclass(frozen=True, eq=False)
class _Itself:
    """A key that is equal to keys of the same object alone, and keeps it."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _hashable(model: Model) -> Hashable:
    try:
        hash(model)
    except TypeError:
        return _Itself(model)
    return model


def compiler_options(platform: str, size: int) -> dict[str, Any]:
    """What compilers are told of a program that cuts tiles of so many bytes.

    XLA:CPU takes longer to make these programs than to run them; its first level of optimization makes loops that copy
    as fast as those of the higher ones. Nothing is computed that could run beside something else, so that leaves had
    best be moved one after the other, each in the scratch of the one before.
    """
    if platform != "cpu":
        return {}
    return {
        "xla_backend_optimization_level": 0 if size <= QUICK_BYTES else 1,
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    }


def compiling(makers: Mapping[Hashable, Callable[[], FlatProgram]]) -> dict[Hashable, Callable[[], FlatProgram]]:
    """Make programs one after the other, and compile each while the next ones are made, and while the caller goes on.

    In one process only, as compilers may have to meet across processes: there they are compiled in order.

    Returns:
        What waits for each program, by what it is known by.
    """
    if jax.process_count() > 1:
        return {name: make().compile for name, make in makers.items()}
    pool = ThreadPoolExecutor(max_workers=4)
    try:
        return {name: pool.submit(make().compile).result for name, make in makers.items()}
    finally:
        pool.shutdown(wait=False)


def heap_given_back() -> None:
    """Give the system back what compilers have left free in the heap, where the C library can: on CPUs, arrays that are
    about to be made take their memory there."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU library, and of no other
        if trim is not None:
            trim(0)
