"""`reshard` outside `jit`: check every leaf, plan, compile, and only then move."""

from __future__ import annotations

import gc
import math
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from redistrib.backends.jax.flat import FlatProgram
from redistrib.backends.jax.leaves import Leaf, zeros_like
from redistrib.backends.jax.rewrap import rewrapped
from redistrib.errors import LeafError, RedistribError
from redistrib.plans.dtypes import itemsize_of
from redistrib.trees.launches import leaves_of, make_up, together
from redistrib.trees.planning import TREES, Kind, Planner, compiling, heap_given_back, least_launch, route_of
from redistrib.trees.routes import Route, Way
from redistrib.trees.schedule import Alive, Batch, Group, Item, accounted, limited
from redistrib.trees.value import TreePlan

# Bytes per device of launches that need not have finished when the next one starts. On CPUs there are none: devices
# share a pool of threads, and those of a later launch may take the place of one for which an earlier launch waits.
IN_FLIGHT = 64 * 2**20
LONG_MOVE = 256 * 2**20  # bytes of all leaves above which a move shows its progress, on a terminal


@dataclass(frozen=True)
class _Known:
    """What to do with a tree of arrays of some shapes and placements.

    Attributes:
        plan: the launches.
        routes: of every leaf.
        donated: whether the source of each leaf may be given up as soon as it has travelled.
        last: leaves that have buffers of others, none of which is kept: they go when all have travelled.
    """

    plan: TreePlan
    routes: tuple[Route, ...]
    donated: tuple[bool, ...]
    last: tuple[int, ...]


class Prepared:
    """Leaves that have been checked, planned and compiled for.

    Attributes:
        plan: what will be done.
    """

    def __init__(self, leaves: Sequence[Leaf], planner: Planner, *, donate: bool, memory_limit: int | None) -> None:
        for leaf in leaves:
            _check(leaf)
        self._leaves, self._limit = leaves, memory_limit
        shared = _shared(leaves) if donate else ()
        key = (tuple(map(_signature, leaves)), shared, donate, memory_limit, planner.key)
        self._is_new = False

        def known() -> _Known:
            self._is_new = True
            return _Planning(leaves, shared, planner, donate, memory_limit).known()

        self._known: _Known = TREES.get(key, known)
        self.plan: TreePlan = self._known.plan

    def run(self, progress: bool | None) -> list[Any]:
        """Move everything; the leaves, each on its target."""
        if self._is_new and any(map(_is_on_cpu, self.plan.batches)):
            heap_given_back()
        results: list[Any] = [None] * len(self._leaves)
        total = sum(item.target_bytes * len(item.devices) for batch in self.plan.batches for item in batch.items)
        with _progress(total, progress) as advance:
            wait = _Waiting(IN_FLIGHT if self._limit is None and advance is None else 0)
            for batch in self.plan.batches:
                if _is_on_cpu(batch):
                    wait.for_all()
                moved = self._launched(batch)
                for item, array in zip(batch.items, moved, strict=True):
                    results[item.index] = array
                wait.add(moved, batch.program.added_bytes)
                if advance is not None:
                    advance(sum(item.target_bytes * len(item.devices) for item in batch.items))
            for k, way in enumerate(self._ways()):  # while the last launch runs
                if way == "keep":
                    leaf = self._leaves[k]
                    results[k] = rewrapped(leaf.value, leaf.value.shape, leaf.target, weak=leaf.value.aval.weak_type)
            if any(map(_is_on_cpu, self.plan.batches)):
                wait.for_all()
        for k, way in enumerate(self._ways()):
            if way in ("put", "empty"):
                results[k] = self._otherwise(k, way)
        for k in self._known.last:
            self._leaves[k].value.delete()
        return results

    def _launched(self, batch: Batch) -> list[jax.Array]:
        sources = [self._leaves[item.index].value for item in batch.items]
        targets = [self._leaves[item.index].target for item in batch.items]
        program = batch.program
        assert isinstance(program, FlatProgram)
        moved = program(sources, targets)
        for item, source in zip(batch.items, sources, strict=True):
            if item.donated:
                source.delete()  # its memory is freed when the launch has read it
        return moved

    def _ways(self) -> Iterator[Way]:
        return (route.way for route in self._known.routes)

    def _otherwise(self, index: int, way: Way) -> Any:
        value, target = self._leaves[index].value, self._leaves[index].target
        if way == "put":
            return jax.device_put(value, target, donate=self._known.donated[index] and isinstance(value, jax.Array))
        return zeros_like(value, target)


class _Planning:
    """Routes, plans, launches and their programs for leaves that have been checked."""

    def __init__(
        self,
        leaves: Sequence[Leaf],
        shared: tuple[tuple[int, ...], ...],
        planner: Planner,
        donate: bool,
        memory_limit: int | None,
    ) -> None:
        self._leaves, self._planner, self._donate, self._limit = leaves, planner, donate, memory_limit
        self._routes = tuple(map(_routed, leaves))
        self._shared = shared
        self._kinds: dict[tuple[int, Any], tuple[Kind, tuple[int, ...]]] = {}  # by route and dtype
        held = {k for one in shared for k in one}
        self._donated = tuple(
            donate and route.way in ("move", "put") and k not in held for k, route in enumerate(self._routes)
        )

    def known(self) -> _Known:
        """The whole, with every program compiled."""
        with _uncollected():
            return self._made()

    def _made(self) -> _Known:
        items = [self._item(k) for k, route in enumerate(self._routes) if route.way == "move"]
        batches, before = self._batches(items)
        plan = TreePlan(
            batches=tuple(batches),
            kept=self._paths("keep"),
            made=self._paths("empty"),
            put=self._paths("put"),
            before_bytes=before,
            memory_limit=self._limit,
            donate=self._donate,
        )
        last = [k for one in self._shared if all(self._routes[k].way != "keep" for k in one) for k in one]
        return _Known(plan, self._routes, self._donated, tuple(last))

    def _paths(self, way: str) -> tuple[str, ...]:
        return tuple(leaf.path for leaf, route in zip(self._leaves, self._routes, strict=True) if route.way == way)

    def _item(self, index: int) -> Item:
        leaf, route = self._leaves[index], self._routes[index]
        known = self._kinds.get((id(route), leaf.value.dtype))
        if known is None:
            assert route.sides is not None
            with _naming(leaf.path):
                kind = Kind(route.sides, str(leaf.value.dtype), route.devices, self._planner)
            known = self._kinds[id(route), leaf.value.dtype] = (kind, tuple(device.id for device in kind.devices))
        return Item(index, leaf.path, *known, self._donated[index])

    def _alive(self) -> Alive:
        """Bytes on each device before anything moves: all sources, and what `jax.device_put` brings."""
        alive = Alive()
        known: dict[tuple[int, Any], list[tuple[list[int], int]]] = {}
        for leaf, route in zip(self._leaves, self._routes, strict=True):
            name = (id(route), getattr(leaf.value, "dtype", type(leaf.value)))
            if name not in known:
                source = getattr(leaf.value, "sharding", None)
                held = [source] if source is not None else []
                held += [leaf.target] if route.way == "put" else []
                known[name] = [_share(leaf.value, sharding) for sharding in held]
            for share in known[name]:
                alive.add(*share)
        return alive

    def _batches(self, items: list[Item]) -> tuple[list[Batch], int]:
        """Launches that have been planned and compiled, and the bytes on the fullest device before them."""
        if self._limit is None:
            launches = together(items, max((least_launch(kind) for kind, _ in self._kinds.values()), default=0))
            # The largest program compiles while the leaves of the others are planned.
            largest = sorted(launches, key=leaves_of, reverse=True)
            waiting = compiling({make_up(launch): partial(self._program, launch) for launch in largest})
            alive = self._alive()
            before = alive.most()
            programs = {name: wait() for name, wait in waiting.items()}
            return accounted([(launch, programs[make_up(launch)]) for launch in launches], alive), before
        self._plan(items)
        alive = self._alive()
        before = alive.most()
        batches = limited(
            items,
            alive,
            self._limit,
            together=lambda group: self._program((group,)).compile(),
            within=lambda item, room: self._planner.within(item, self._dtype(item), room),
            least=lambda item: self._planner.least(item, self._dtype(item)),
        )
        return batches, before

    def _program(self, groups: Sequence[Group]) -> FlatProgram:
        firsts = [group[0] for group in groups]
        self._plan(firsts)
        with _naming(firsts[0].path):
            # Under a limit nothing is left on the devices but the leaves.
            return self._planner.program(groups, list(map(self._dtype, firsts)), numbered=self._limit is None)

    def _plan(self, items: Iterable[Item]) -> None:
        for item in items:
            with _naming(item.path):
                item.plan  # noqa: B018

    def _dtype(self, item: Item) -> Any:
        return self._leaves[item.index].value.dtype


@contextmanager
def _uncollected() -> Iterator[None]:
    """A context without garbage collection, which would walk all that the caller has again and again for what tracing
    makes, and find next to nothing."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


# ------------------------------------------------------------------------------------------- checks


def _check(leaf: Leaf) -> None:
    """Refuse what is no array, or none that can be moved."""
    value = leaf.value
    if isinstance(value, jax.Array):
        if value.is_deleted():
            raise LeafError(leaf.path, "the array has been donated or deleted; pass one that is alive")
    elif isinstance(value, jax.ShapeDtypeStruct):
        if value.sharding is None:
            raise LeafError(leaf.path, "a ShapeDtypeStruct must say where its array is; give it a sharding=")
    elif not isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        raise LeafError(leaf.path, f"{type(value).__name__} is neither an array nor a number")


def _signature(leaf: Leaf) -> Hashable:
    """All of a leaf that matters for what is done with it, but for the buffers that it has in common with others."""
    value = leaf.value
    if isinstance(value, jax.Array):
        return (leaf.path, value.aval, value.sharding, leaf.target)
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return (leaf.path, np.shape(value), dtype, getattr(value, "sharding", None), leaf.target)


def _routed(leaf: Leaf) -> Route:
    with _naming(leaf.path):
        return route_of(np.shape(leaf.value), getattr(leaf.value, "sharding", None), leaf.target)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors of one leaf, with its path."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, LeafError) or (isinstance(error, RedistribError) and not path):
            raise
        raise LeafError(path, str(error)) from error


def _share(value: Any, sharding: Any) -> tuple[list[int], int]:
    """Devices of an array by id, and its bytes on each."""
    shape, dtype = np.shape(value), getattr(value, "dtype", None)
    size = itemsize_of(str(np.asarray(value).dtype if dtype is None else dtype))
    return [device.id for device in sharding.device_set], math.prod(sharding.shard_shape(shape)) * size


def _shared(leaves: Sequence[Leaf]) -> tuple[tuple[int, ...], ...]:
    """Leaves that have the same buffers, such as tied weights."""
    places: dict[Any, list[int]] = {}
    for k, leaf in enumerate(leaves):
        if isinstance(leaf.value, jax.Array) and leaf.value.size:
            places.setdefault(_place(leaf.value), []).append(k)
    return tuple(tuple(several) for several in places.values() if len(several) > 1)


def _place(array: jax.Array) -> Any:
    """Where an array's bytes are: equal for two arrays of the same buffers."""
    shards = array.addressable_shards
    if not shards:
        return id(array)
    data = shards[0].data
    if jnp.issubdtype(data.dtype, jax.dtypes.prng_key):
        data = jax.random.key_data(data)
    return (shards[0].device.id, data.unsafe_buffer_pointer())


# ---------------------------------------------------------------------------------- waiting, progress


class _Waiting:
    """Keeps the launches that may still be running within some bytes per device."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._flying: deque[tuple[list[jax.Array], int]] = deque()

    def add(self, arrays: list[jax.Array], size: int) -> None:
        """Note a launch, and wait for the oldest ones until the rest keeps within the bytes."""
        self._flying.append((arrays, size))
        self._until(self._most)

    def for_all(self) -> None:
        """Wait for all that may still be running."""
        self._until(-1)

    def _until(self, most: int) -> None:
        while self._flying and sum(size for _, size in self._flying) > most:
            jax.block_until_ready(self._flying.popleft()[0])


def _is_on_cpu(batch: Batch) -> bool:
    kind = batch.items[0].kind
    assert isinstance(kind, Kind)
    return kind.platform == "cpu"


@contextmanager
def _progress(total: int, wanted: bool | None) -> Iterator[Callable[[int], None] | None]:
    """A function that advances a bar on stderr by so many bytes; None where none is shown."""
    if wanted is None:
        wanted = total > LONG_MOVE and sys.stderr.isatty() and jax.process_index() == 0
    if not wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("resharding"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task("resharding", total=total)
        yield lambda size: bar.advance(task, size)
