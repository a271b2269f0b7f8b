"""Plans and executables of leaves, in bounded caches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import jax
from jax.sharding import Sharding

from redistrib.backends.jax.buckets.coalesced import coalescing_key
from redistrib.backends.jax.buckets.compiled import CompiledBucket
from redistrib.backends.jax.buckets.parted import PartedEnd, PartedMove
from redistrib.backends.jax.platforms import quirks_of
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.values import is_packed
from redistrib.cache import Cache, CacheInfo
from redistrib.cost.model import CostModel
from redistrib.cost.presets import MODELS, MachineLike, cost_model, preset_of
from redistrib.launches import buckets
from redistrib.launches.moves import Group, LeafMove, PlanEntry
from redistrib.launches.parts import Parts, in_parts
from redistrib.plans.data import Order, Schedule, Short, require_order
from redistrib.plans.dtypes import default_accumulation, itemsize_of
from redistrib.plans.plan import Plan
from redistrib.resharding.actions import LeafRoute, MemoryKinds, SourceTarget, route
from redistrib.resharding.events import cache_missed
from redistrib.resharding.padding import Padding
from redistrib.synthesis.synthesize import least_limit, synthesize
from redistrib.theory.topology import Topology

Model: TypeAlias = CostModel | str | None
Program: TypeAlias = CompiledBucket | PartedMove

COALESCED_BYTES = 512 * 1024  # of tile up to which a collective costs more than two copies

# (of every leaf: its path, abstract value and shardings; which share buffers, donation, memory limit, cost model)
TREES: Cache[Any] = Cache(64, partial(cache_missed, "trees"))
# The action for (shape, source sharding, target sharding, padding).
ROUTES: Cache[LeafRoute] = Cache(8192, partial(cache_missed, "routes"))
# (source type and mesh, target type, mesh and device order, dtype, cost model, memory limit)
PLANS: Cache[Plan] = Cache(2048, partial(cache_missed, "plans"))
# of every entry: (types, meshes, dtype and devices, cost model, memory limit, schedule, leaves at once, stacked,
# whether outputs replace inputs)
PROGRAMS: Cache[Any] = Cache(512, partial(cache_missed, "programs"))
# (types and meshes, dtype, cost model): the least memory limit of any plan
_LEAST: Cache[int] = Cache(2048)


def cache_info() -> dict[str, CacheInfo]:
    """Hits, misses, size and limit of `reshard`'s caches: `"trees"`, `"routes"`, `"plans"` and `"programs"`.

    >>> sorted(cache_info())
    ['plans', 'programs', 'routes', 'trees']
    """
    return {"trees": TREES.info, "routes": ROUTES.info, "plans": PLANS.info, "programs": PROGRAMS.info}


def route_of(
    shape: tuple[int, ...], source: Sharding | None, target: Sharding, padding: Padding | None = None
) -> LeafRoute:
    """The action for a leaf; see `actions.route`."""
    return ROUTES.get((shape, source, target, padding), lambda: route(shape, source, target, padding))


class Planner:
    """Plans and programs under one cost model.

    Args:
        machine: see `cost_model`; None for the preset of the devices' platform.
        accumulate: the element type in which partial sums are added; see `synthesize`.
        order: of addition, see `synthesize`; None for `"fixed"` where sums are rounded once by default, which the
            reductions of a platform may not do.

    Raises:
        ChoiceError, DtypeError, PlanFormError: for an unknown machine, element type or order, even if no leaf moves.
    """

    def __init__(self, machine: MachineLike | None, accumulate: str | None = None, order: Order | None = None) -> None:
        model = machine if machine is None or (isinstance(machine, str) and machine in MODELS) else cost_model(machine)
        if accumulate is not None:
            itemsize_of(accumulate)
        if order is not None:
            require_order(order)
        self._model: Model = model
        self._accumulate, self._order = accumulate, order

    @property
    def key(self) -> Hashable:
        """All that decides about plans besides the leaves."""
        return (_hashable(self._model), self._accumulate, self._order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Planner) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def plan(self, ends: SourceTarget, dtype: str, platform: str, plan_limit: int | None = None) -> Plan:
        """The plan between two types.

        Raises:
            MemoryLimitError: if none fits the limit.
        """
        key = (ends, dtype, self._model_key(platform), plan_limit, *self._arithmetic(ends))
        return PLANS.get(key, lambda: self._synthesized(ends, dtype, platform, plan_limit))

    def _synthesized(self, ends: SourceTarget, dtype: str, platform: str, plan_limit: int | None) -> Plan:
        kind = ends.source.reduction
        rounded = kind is not None and default_accumulation(kind, dtype) is not None
        return synthesize(
            ends.source,
            ends.source_mesh,
            ends.target,
            ends.target_mesh,
            dtype=dtype,
            model=self._on(platform),
            memory_limit=plan_limit,
            accumulate=self._accumulate if self._arithmetic(ends) else None,
            order=self._order or ("fixed" if rounded else "any"),
            topology=ends.topology,
        )

    def links(self, ends: SourceTarget, platform: str) -> Topology:
        """The topology that plans between two types take."""
        return cost_model(self._on(platform)).topology(ends.source_mesh, ends.topology)

    def _arithmetic(self, ends: SourceTarget) -> tuple[Hashable, ...]:
        """All that decides about plans of partial sums only."""
        return (self._accumulate, self._order) if ends.source.partial or ends.target.partial else ()

    def _on(self, platform: str) -> CostModel | str:
        if self._model is not None:
            return self._model
        return preset_of(platform)

    def _model_key(self, platform: str) -> Hashable:
        return _hashable(self._on(platform))

    # ------------------------------------------------------------------------------------------ programs

    def program(self, groups: Sequence[Group], dtypes: Sequence[Any], *, numbered: bool) -> Program:
        """The program that moves a bucket by its plans without a limit; see `CompiledBucket`."""
        first = groups[0][0]
        if first.parts > 1:
            part = ((_part_of(first),),)
            return self._in_parts(first, dtypes[0], self._bucket(part, dtypes, numbered=numbered))
        return self._bucket(groups, dtypes, numbered=numbered)

    def _bucket(self, groups: Sequence[Group], dtypes: Sequence[Any], *, numbered: bool) -> CompiledBucket:
        entries = [
            self._entry(group, dtype, None, "overlap", stacked)
            for group, dtype, stacked in zip(groups, dtypes, _stacked(groups, dtypes), strict=True)
        ]
        return self._program(groups[0][0], entries, numbered)

    def _entry(
        self,
        group: Group,
        dtype: Any,
        plan_limit: int | None,
        schedule: Schedule | None,
        stacked: bool = False,
    ) -> tuple[Hashable, PlanEntry]:
        """The entry of a program for leaves of one spec, and its key."""
        spec, count = leaf_spec(group[0]), len(group)
        plan = spec.plan if plan_limit is None else self.plan(spec.ends, spec.dtype, spec.platform, plan_limit)
        reused = buckets.reused(group) and not stacked and plan.source.local_shape == plan.target.local_shape
        planner_key = (self._model_key(spec.platform), *self._arithmetic(spec.ends))
        key = (spec.launched, *planner_key, plan_limit, schedule, count, stacked, reused)
        return key, PlanEntry(plan, dtype, count, stacked, reused, schedule)

    def _program(self, first: LeafMove, keyed: list[tuple[Hashable, PlanEntry]], numbered: bool) -> CompiledBucket:
        spec, entries = leaf_spec(first), [entry for _, entry in keyed]
        program: CompiledBucket = PROGRAMS.get(
            (numbered, *[key for key, _ in keyed]),
            lambda: CompiledBucket(entries, spec.devices, numbered=numbered),
        )
        return program

    def _in_parts(self, item: LeafMove, dtype: Any, program: CompiledBucket) -> PartedMove:
        """The program of a large leaf, from that of a part."""
        spec = leaf_spec(item)
        move: PartedMove = PROGRAMS.get((spec.launched, program), lambda: PartedMove(program, dtype, *spec.sides))
        return move

    def within(self, item: LeafMove, dtype: Any, room: int) -> Program | Short:
        """The fastest program of one leaf that adds at most `room` bytes per device, as the compiler reports them."""
        if item.parts == 1:
            return self._within(item, dtype, room)
        part = _part_of(item)
        besides = item.target_bytes + part.source_bytes
        of_part = self._within(part, dtype, room - besides)
        if isinstance(of_part, Short):
            return Short(of_part.least + besides)
        program = self._in_parts(item, dtype, of_part).compile()
        return program if program.added_bytes <= room else Short(program.added_bytes)

    def _within(self, item: LeafMove, dtype: Any, room: int) -> CompiledBucket | Short:
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
        for plan_limit, schedule in tries:
            program = self._program(item, [self._entry((item,), dtype, plan_limit, schedule)], numbered=False).compile()
            if program.added_bytes <= room:
                return program
            least = min(least or program.added_bytes, program.added_bytes)
        return Short(least or 0)

    def least(self, item: LeafMove, dtype: Any) -> int:
        """The least bytes per device that any program of a leaf adds, as the compiler reports them."""
        found = self.within(item, dtype, 0)
        return found.least if isinstance(found, Short) else found.added_bytes

    def _frugal(self, item: LeafMove) -> int:
        """The least memory limit of a plan of the leaf, by prediction."""
        spec = leaf_spec(item)
        planner_key = (self._model_key(spec.platform), *self._arithmetic(spec.ends))
        return _LEAST.get(
            (spec.ends, spec.dtype, *planner_key),
            lambda: least_limit(spec.plan, self._on(spec.platform), spec.ends.topology),
        )


@dataclass(frozen=True)
class LeafSpec:
    """The common properties of leaves that share a plan and an executable.

    Attributes:
        ends: source and target.
        dtype: of the leaves, by name.
        devices: in the order of their numbers.
        planner: of the plan.
        kinds: the kinds of memory of source and target; None for the default kind of the devices.
    """

    ends: SourceTarget
    dtype: str
    devices: tuple[Any, ...]
    planner: Planner = field(repr=False, compare=False)
    kinds: MemoryKinds = (None, None)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # of many fields, and computed often
        return hash((self.ends, self.dtype, self.devices, self.kinds))

    @cached_property
    def launched(self) -> LeafSpec:
        """The spec of a launch, from and to the default memory."""
        return replace(self, kinds=(None, None)) if any(self.kinds) else self

    @property
    def platform(self) -> str:
        """The platform of the devices."""
        return str(self.devices[0].platform)

    @cached_property
    def quirks(self) -> Quirks:
        """The quirks of the devices."""
        return quirks_of(self.platform, len({device.process_index for device in self.devices}))

    @property
    def source_bytes(self) -> int:
        """Bytes of a source tile."""
        return self.ends.source.local_size * self._itemsize

    @property
    def target_bytes(self) -> int:
        """Bytes of a target tile."""
        return self.ends.target.local_size * self._itemsize

    @cached_property
    def _itemsize(self) -> int:
        return itemsize_of(self.dtype)

    @cached_property
    def parts(self) -> Parts:
        """The parts in which leaves travel: large leaves to other devices, of elements of whole bytes."""
        ends, size = self.ends, self.source_bytes + self.target_bytes
        if size <= buckets.BUCKET_BYTES or ends.source_mesh.size == ends.target_mesh.size == len(self.devices):
            return Parts()
        if self.dtype.startswith("key") or is_packed(jax.numpy.dtype(self.dtype)):
            return Parts()
        return in_parts(ends.source, ends.target, -(-size // buckets.BUCKET_BYTES))

    @cached_property
    def part(self) -> LeafSpec:
        """The spec of a part."""
        ends = replace(self.ends, source=self.parts.of(self.ends.source), target=self.parts.of(self.ends.target))
        return LeafSpec(ends, self.dtype, self.devices, self.planner)

    @property
    def sides(self) -> tuple[PartedEnd, PartedEnd]:
        """Source and target of a leaf that moves in parts."""
        parts = self.parts
        both = (
            (self.ends.source, self.ends.source_mesh, parts.source_cells),
            (self.ends.target, self.ends.target_mesh, parts.target_cells),
        )
        source, target = (
            PartedEnd(tuple(self.devices[k] for k in mesh.devices), kind.local_shape, parts.dim, cells, parts.count)
            for kind, mesh, cells in both
        )
        return source, target

    @cached_property
    def plan(self) -> Plan:
        """The plan without a memory limit."""
        return self.planner.plan(self.ends, self.dtype, self.platform)


def _stacked(groups: Sequence[Group], dtypes: Sequence[Any]) -> list[bool]:
    """For each group of a bucket whether its leaves travel side by side, in fewer collectives with two more copies."""
    quirks = leaf_spec(groups[0][0]).quirks
    keys = [  # equal for leaves that may travel side by side: tiles that can be coalesced, or one spec
        coalescing_key(group[0].plan, dtype, quirks) or (group[0].spec, group[0].gives_up_source)
        for group, dtype in zip(groups, dtypes, strict=True)
    ]
    small = [
        max(group[0].source_bytes, group[0].target_bytes) <= COALESCED_BYTES
        and not any(step.on_sums for step in group[0].plan.steps)
        for group in groups
    ]
    count: Counter[Any] = Counter()
    for group, key, is_small in zip(groups, keys, small, strict=True):
        count[key] += len(group) if is_small else 0
    return [is_small and count[key] >= quirks.coalesced_least for key, is_small in zip(keys, small, strict=True)]


def _part_of(item: LeafMove) -> LeafMove:
    """A part of a large leaf as a leaf whose source is deleted."""
    return replace(item, spec=leaf_spec(item).part, gives_up_source=True, shares_buffers=False, parts=1)


def leaf_spec(item: LeafMove) -> LeafSpec:
    """The spec of a leaf, as a `LeafSpec`."""
    assert isinstance(item.spec, LeafSpec)
    return item.spec


@dataclass(frozen=True, eq=False)
class _Itself:
    """A key that equals only keys of the same object, and keeps the object alive."""

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
