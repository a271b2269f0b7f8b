"""`reshard` outside `jit`: check every leaf, plan, compile, and only then move."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from redistrib.backends.jax.buckets.compiled import CompiledBucket
from redistrib.backends.jax.buckets.parted import PartedMove
from redistrib.backends.jax.dummies import without_shards, zeros_like
from redistrib.backends.jax.host_values import digest_of_host_value, from_host
from redistrib.backends.jax.meetings import Meeting
from redistrib.backends.jax.memory_copies import loaded, put, stored
from redistrib.backends.jax.memory_kinds import in_default, kind_of
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.digests import digest_of_parts
from redistrib.launches.buckets import leaves_of, pack_into_buckets, program_key
from redistrib.launches.moves import Group, LeafMove
from redistrib.launches.order import LeafBatch, in_order_of_peak, within_limit
from redistrib.plans.dtypes import itemsize_of
from redistrib.resharding import events
from redistrib.resharding.actions import Action, LeafRoute, is_elsewhere
from redistrib.resharding.checks import check, check_processes, check_there, naming, shared
from redistrib.resharding.compiling import compiling
from redistrib.resharding.copies import Via, copied, copies_of
from redistrib.resharding.digest import call_between_processes, route_of_leaf
from redistrib.resharding.host_values import is_on_host, origin_of, owners_of
from redistrib.resharding.in_flight import IN_FLIGHT, Flying, land
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.memory import alive_before, copies_between_kinds
from redistrib.resharding.planning import TREES, LeafSpec, Planner, Program, leaf_spec
from redistrib.resharding.progress import bytes_bar, shows_bar
from redistrib.resharding.sharing import SharedBuffers, Tied, buffers, note
from redistrib.resharding.value import TreePlan

if TYPE_CHECKING:
    from redistrib.backends.jax.xla_cpu.copies import TileCopies

WAY_OUT = "a value that every process has goes as a NumPy array"


@dataclass(frozen=True)
class _PreparedTree:
    """The prepared moves of a tree of arrays of these shapes and shardings.

    Attributes:
        plan: the launches.
        routes: of every leaf.
        donated: whether the source of each leaf may be deleted as soon as it has travelled.
        last: groups of leaves that share buffers and all move; they are deleted after all have travelled.
        processes: those that must make the same call, ascending; none where no leaf moves between processes.
        digest: of that call.
        on_host: values of the host that go to devices of several processes, by number.
        copies: of leaves that move by copies, by number.
    """

    plan: TreePlan
    routes: tuple[LeafRoute, ...]
    donated: tuple[bool, ...]
    last: Tied
    processes: tuple[int, ...] = ()
    digest: str = ""
    on_host: tuple[int, ...] = ()
    copies: Mapping[int, TileCopies] = field(default_factory=dict)


class PreparedReshard:
    """Leaves that are checked, planned and compiled.

    Attributes:
        plan: the moves.
    """

    def __init__(
        self, leaves: Sequence[Leaf], planner: Planner, *, donate: bool, memory_limit: int | None, via: Via
    ) -> None:
        for leaf in leaves:
            check(leaf)
        self._leaves, self._memory_limit = leaves, memory_limit
        common = shared([(leaf.path, leaf.value) for leaf in leaves]) if donate else SharedBuffers()
        via = via if memory_limit is None else "collectives"
        key = (tuple(map(_signature, leaves)), common, donate, memory_limit, planner.key, via)
        self._prepared: _PreparedTree = TREES.get(
            key, lambda: _Planning(leaves, common, planner, donate, memory_limit, via).prepared()
        )
        self._stays: set[int] = set()  # leaves that share buffers with their results of `jax.device_put`
        self.plan: TreePlan = self._prepared.plan

    def require_values(self) -> None:
        """Refuse leaves that describe arrays without values."""
        for leaf in self._leaves:
            check_there(leaf.path, leaf.value)

    def run(self, results: list[Any], progress: bool | None, pause: Callable[[], None], agreed: bool) -> None:
        """Move all leaves.

        `jax.device_put` comes first. No source is deleted before all its results have arrived.

        Args:
            results: gets every leaf on its target, by number, before its source is deleted.
            progress: whether to show a bar.
            pause: called where every array is either a leaf or among the results.
            agreed: whether all processes have agreed on this call.
        """
        if len(self._prepared.processes) < 2:
            self._move(results, progress, pause, jax.block_until_ready)
            return
        meeting = Meeting(self._prepared.processes, "reshard", "trees, shardings or options", WAY_OUT)
        if not agreed and meeting.is_between:
            values = [self._leaves[k].value for k in self._prepared.on_host]
            meeting.require_equal(digest_of_parts([self._prepared.digest, *map(digest_of_host_value, values)]))
        with meeting.moving():
            self._move(results, progress, pause, meeting.wait)

    def _move(
        self, results: list[Any], progress: bool | None, pause: Callable[[], None], wait_for: Callable[[Any], None]
    ) -> None:
        self._bring(results, pause)
        self._copy(results, pause)
        if self.plan.batches or any(True for _ in self._of("keep")):
            self._launch_all(results, progress, pause, wait_for)
        for group in self._prepared.last:
            if not self._stays.intersection(group):
                for k in group:
                    self._leaves[k].value.delete()

    def _launch_all(
        self, results: list[Any], progress: bool | None, pause: Callable[[], None], wait_for: Callable[[Any], None]
    ) -> None:
        """Launch what moves by collectives, and keep what is in place."""
        quirks = [leaf_spec(batch.items[0]).quirks for batch in self.plan.batches]
        total = sum(item.target_bytes * len(item.devices) for batch in self.plan.batches for item in batch.items)
        shown = shows_bar(total, progress)
        with bytes_bar("resharding", total, shown) as advance:
            flying: Flying = deque()
            limit = IN_FLIGHT if self._memory_limit is None and not shown else 0
            for batch, of_batch in zip(self.plan.batches, quirks, strict=True):
                if of_batch.one_at_a_time:
                    land(flying, -1, wait_for)
                pause()
                flying.append((self._launched(batch, results), batch.program.added_bytes))
                land(flying, limit, wait_for)
                advance(sum(item.target_bytes * len(item.devices) for item in batch.items))
            for k in self._of("keep"):  # while the last launch runs
                leaf = self._leaves[k]
                results[k] = with_sharding(leaf.value, leaf.value.shape, leaf.target, weak=leaf.value.aval.weak_type)
                note(leaf.value, results[k], deleted=self.plan.donate)
            if any(quirk.one_at_a_time for quirk in quirks):
                land(flying, -1, wait_for)

    def _bring(self, results: list[Any], pause: Callable[[], None]) -> None:
        """Move the leaves without a plan, and then delete their sources.

        `jax.device_put` never donates: it would take buffers from other arrays.
        """
        for k in self._of("elsewhere"):
            value, padding = self._leaves[k].value, self._leaves[k].padding
            shape = value.shape if padding is None else padding.target
            results[k] = without_shards(shape, value.dtype, self._leaves[k].target)
        for k in self._of("empty"):
            target = self._leaves[k].target
            results[k] = stored(zeros_like(self._leaves[k].value, in_default(target)), target)
        brought = list(self._of("via_device_put"))
        for k in brought:
            with naming(self._leaves[k].path):
                leaf = self._leaves[k]
                results[k] = from_host(leaf.value, leaf.target) if is_on_host(leaf) else put(leaf.value, leaf.target)
            pause()
        if self.plan.donate:
            for k in brought:
                with naming(self._leaves[k].path):
                    jax.block_until_ready(results[k])
                pause()
        for k in brought:
            source = self._leaves[k].value
            if isinstance(source, jax.Array):
                self._give_up(k, source, results[k])

    def _copy(self, results: list[Any], pause: Callable[[], None]) -> None:
        """Move leaves by copies, and delete each source after its copy."""
        for k, copies in self._prepared.copies.items():
            leaf = self._leaves[k]
            with naming(leaf.path):
                results[k] = copied(leaf, copies)
            if self._prepared.donated[k]:
                leaf.value.delete()
            pause()
        if self._prepared.copies:
            events.copied(self.plan.copied_bytes)

    def _give_up(self, k: int, source: jax.Array, result: jax.Array) -> None:
        """Delete the source of a result of `jax.device_put`, unless they share buffers."""
        if not source.size:  # `jax.device_put` may return the same empty array, which takes no memory
            stays = True
        elif source.sharding.device_set.isdisjoint(result.sharding.device_set):
            stays = False
        elif self.plan.donate:
            stays = not set(buffers(source)).isdisjoint(buffers(result))
        else:  # perhaps; reading the buffers would wait for the array
            stays = kind_of(source.sharding) == kind_of(result.sharding)
        if stays:
            self._stays.add(k)
            note(source, result, deleted=self.plan.donate)
        elif self._prepared.donated[k]:
            source.delete()

    def _launched(self, batch: LeafBatch, results: list[Any]) -> list[jax.Array]:
        """Launch a program, with copies from and to other memory; what shows that it has ended."""
        leaves = [self._leaves[item.index] for item in batch.items]
        sources = [_loaded(leaf) if item.loads else leaf.value for item, leaf in zip(batch.items, leaves, strict=True)]
        targets = [
            in_default(leaf.target) if item.stores else leaf.target
            for item, leaf in zip(batch.items, leaves, strict=True)
        ]
        program = batch.program
        assert isinstance(program, CompiledBucket | PartedMove)
        with events.named_launch(batch):
            moved, outputs = program.launch(sources, targets)
        events.launched(batch)
        for item, array in zip(batch.items, moved, strict=True):
            results[item.index] = array
        if any(item.stores for item in batch.items):
            outputs = self._stored(batch, outputs or moved, results)
        for item, source in zip(batch.items, sources, strict=True):
            if item.frees_source:
                source.delete()  # its memory is freed when the launch has read it
            if item.loads and self._prepared.donated[item.index]:
                self._leaves[item.index].value.delete()
        return outputs

    def _stored(self, batch: LeafBatch, outputs: Sequence[jax.Array], results: list[Any]) -> list[jax.Array]:
        """Copy results of a launch to other memory; what shows that all has ended. Sources may be given up then."""
        ends = []
        for item, output in zip(batch.items, outputs, strict=True):
            leaf = self._leaves[item.index]
            if item.stores:
                with naming(leaf.path):
                    results[item.index] = stored(results[item.index], leaf.target)
            ends.append(results[item.index] if item.stores and leaf.target.addressable_devices else output)
        if self.plan.donate:
            jax.block_until_ready(ends)
        return ends

    def _of(self, action: Action) -> Iterator[int]:
        return (k for k, route in enumerate(self._prepared.routes) if route.action == action)


class _Planning:
    """Routes, plans and launches of checked leaves."""

    def __init__(
        self,
        leaves: Sequence[Leaf],
        common: SharedBuffers,
        planner: Planner,
        donate: bool,
        memory_limit: int | None,
        via: Via,
    ) -> None:
        self._leaves, self._planner, self._donate, self._memory_limit = leaves, planner, donate, memory_limit
        routes = list(map(_routed, leaves))
        self._copies: dict[int, TileCopies] = {}
        by_copies: dict[int, LeafRoute] = {}  # the route with this action, by that without: leaves share routes
        for k, (leaf, route) in enumerate(zip(leaves, routes, strict=True)):
            copies = copies_of(leaf, route, via)
            if copies is not None:
                self._copies[k] = copies
                routes[k] = by_copies.setdefault(id(route), replace(route, action="copy"))
        self._routes = tuple(routes)
        self._common = common
        self._specs: dict[tuple[int, Any], tuple[LeafSpec, tuple[int, ...]]] = {}  # by route and dtype
        sharing = common.members
        self._donated = tuple(
            donate and route.action in ("move", "via_device_put", "copy") and k not in sharing
            for k, route in enumerate(self._routes)
        )

    def prepared(self) -> _PreparedTree:
        """The moves of the tree, with every program compiled."""
        if self._memory_limit is not None:
            check_processes(self._leaves, [route.devices for route in self._routes])
        batches, before = self._batches(
            [self._item(k) for k, route in enumerate(self._routes) if route.action == "move"]
        )
        plan = TreePlan(
            batches=tuple(batches),
            kept=self._paths("keep"),
            empty=self._paths("empty"),
            by_device_put=self._paths("via_device_put"),
            before_bytes=before,
            memory_limit=self._memory_limit,
            donate=self._donate,
            links=tuple(
                dict.fromkeys(self._planner.links(spec.ends, spec.platform) for spec, _ in self._specs.values())
            ),
            copied=self._paths("copy"),
            copied_bytes=sum(copies.received * itemsize_of(str(self._dtype(k))) for k, copies in self._copies.items()),
            memory_copies=copies_between_kinds(self._leaves, self._routes),
        )
        stay = {k for k, route in enumerate(self._routes) if route.action == "keep"} | self._common.outside
        last = tuple(group for group in self._common.groups if stay.isdisjoint(group))
        call = call_between_processes(self._leaves, self._planner, batches, self._donate, self._memory_limit)
        on_host = tuple(k for k, leaf in enumerate(self._leaves) if is_on_host(leaf) and owners_of(leaf))
        return _PreparedTree(plan, self._routes, self._donated, last, *call, on_host, self._copies)

    def _paths(self, action: Action) -> tuple[str, ...]:
        return tuple(
            leaf.path for leaf, route in zip(self._leaves, self._routes, strict=True) if route.action == action
        )

    def _item(self, index: int) -> LeafMove:
        leaf, route = self._leaves[index], self._routes[index]
        planned = self._specs.get((id(route), leaf.value.dtype))
        if planned is None:
            assert route.ends is not None
            with naming(leaf.path):
                spec = LeafSpec(route.ends, str(leaf.value.dtype), route.devices, self._planner, route.kinds)
            planned = self._specs[id(route), leaf.value.dtype] = (spec, tuple(device.id for device in spec.devices))
        sides: list[set[Any]] = [leaf.value.sharding.device_set, leaf.target.device_set]
        before, after = (tuple(device.id for device in planned[0].devices if device not in side) for side in sides)
        gives_up, shares_buffers = self._donated[index], False
        if self._donate and len({device.process_index for device in planned[0].devices}) > 1:
            gives_up, shares_buffers = True, not gives_up
        if planned[0].kinds[0] is not None:  # the copy of its source
            gives_up, shares_buffers = True, False
        return LeafMove(index, leaf.path, *planned, gives_up, before, after, planned[0].parts.count, shares_buffers)

    def _batches(self, items: list[LeafMove]) -> tuple[list[LeafBatch], int]:
        """The compiled launches, and the bytes on the fullest device before them."""
        if self._memory_limit is None:
            least = max((spec.quirks.bucket_bytes for spec, _ in self._specs.values()), default=0)
            packed = pack_into_buckets(items, least)
            # The largest program compiles while the leaves of the others are planned.
            largest = sorted(packed, key=leaves_of, reverse=True)
            waiting = compiling({program_key(bucket): partial(self._program, bucket) for bucket in largest})
            alive = alive_before(self._leaves, self._routes)
            before = alive.fullest()
            programs = {name: wait() for name, wait in waiting.items()}
            return in_order_of_peak([(bucket, programs[program_key(bucket)]) for bucket in packed], alive), before
        self._plan(items)
        alive = alive_before(self._leaves, self._routes)
        before = alive.fullest()
        batches = within_limit(
            items,
            alive,
            self._memory_limit,
            together=lambda group: self._program((group,)).compile(),
            within=lambda item, room: self._planner.within(item, self._dtype(item.index), room),
            least=lambda item: self._planner.least(item, self._dtype(item.index)),
        )
        return batches, before

    def _program(self, groups: Sequence[Group]) -> Program:
        firsts = [group[0] for group in groups]
        self._plan(firsts)
        with naming(firsts[0].path):
            # Under a memory limit only leaves stay on the devices.
            return self._planner.program(
                groups, [self._dtype(item.index) for item in firsts], numbered=self._memory_limit is None
            )

    def _plan(self, items: Iterable[LeafMove]) -> None:
        for item in items:
            with naming(item.path):
                item.plan  # noqa: B018

    def _dtype(self, index: int) -> Any:
        return self._leaves[index].value.dtype


# ------------------------------------------------------------------------------------------- leaves


def _signature(leaf: Leaf) -> Hashable:
    """All that decides about a leaf's action, except the buffers that it shares."""
    value = leaf.value
    if isinstance(value, jax.Array):
        return (leaf.path, value.aval, value.sharding, is_on_host(leaf), leaf.target, leaf.padding)
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return (leaf.path, np.shape(value), dtype, getattr(value, "sharding", None), leaf.target, leaf.padding)


def _routed(leaf: Leaf) -> LeafRoute:
    """The action for a leaf in this process."""
    route = route_of_leaf(leaf)
    return replace(route, action="elsewhere") if is_elsewhere(origin_of(leaf), leaf.target) else route


def _loaded(leaf: Leaf) -> jax.Array:
    with naming(leaf.path):
        return loaded(leaf.value)
