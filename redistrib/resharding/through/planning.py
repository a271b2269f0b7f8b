"""Plans of trees that go through a function: results in buckets, and the boxes that each bucket needs.

Models repeat themselves, so results are dealt into buckets with equally many of each kind, which share a program.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.sharding import Sharding

from redistrib.backends.jax.memory_kinds import in_default, kind_of
from redistrib.backends.jax.rows import by_process
from redistrib.cache import Cache
from redistrib.digests import digest_of_parts
from redistrib.errors import ThroughError
from redistrib.launches.buckets import pack_into_buckets
from redistrib.launches.ledger import LaunchBytes, MemoryLedger
from redistrib.plans.dtypes import itemsize_of
from redistrib.resharding.actions import route
from redistrib.resharding.checks import check_ends, placing
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.memory import by_kinds
from redistrib.resharding.through.boxes import Backwards
from redistrib.resharding.through.forms import Fetch, Form, fetches, renumbered, scalars_of
from redistrib.resharding.through.function import TracedFunction
from redistrib.resharding.through.messages import BoxRound, SentLeaf, least_bytes, scheduled
from redistrib.resharding.through.programs import ThroughProgram, ThroughSide
from redistrib.resharding.through.value import ThroughBucket, ThroughPlan
from redistrib.theory.boxes import Box, boxes_of
from redistrib.theory.placement import placement_of_tiles


@dataclass(frozen=True)
class _Array:
    """An input, a captured array that moves, or a result.

    Attributes:
        shape, dtype: of the array.
        tile: the shape of a tile.
        boxes: the box of each device.
        kinds: the kind of memory that it is in, and the default kind of its devices.
    """

    shape: tuple[int, ...]
    dtype: str
    tile: tuple[int, ...]
    boxes: dict[Any, Box]
    kinds: tuple[str, str]

    @property
    def tiles(self) -> dict[Any, int]:
        """Bytes of the tile of each device."""
        return {device: box.volume * itemsize_of(self.dtype) for device, box in self.boxes.items()}

    @property
    def resident_tiles(self) -> dict[Any, int]:
        """The same, if they are in the devices' memory between launches, else none."""
        return {} if self.is_away else self.tiles

    @property
    def is_away(self) -> bool:
        """Whether it is in other memory than the devices' default, where it comes for a launch alone."""
        return self.kinds[0] != self.kinds[1]


@dataclass(frozen=True)
class _Result(_Array):
    """A result.

    Attributes:
        path: of the leaf.
        weak: whether its type is weak.
        forms: for each device how its box is made of boxes of leaves.
        reads: the inputs that it is made of, by number, in the order in which they come first.
        constants: the same of constants.
    """

    path: str
    weak: bool
    forms: dict[Any, Form]
    reads: tuple[int, ...]
    constants: tuple[int, ...]


def _input(array: Any) -> _Array:
    shape, sharding = tuple(array.shape), array.sharding
    return _Array(shape, str(array.dtype), sharding.shard_shape(shape), boxes_of(sharding, shape), _kinds(sharding))


def _kinds(sharding: Sharding) -> tuple[str, str]:
    return kind_of(sharding), kind_of(in_default(sharding))


def _result(number: int, leaf: Leaf, target: Sharding, backwards: Backwards, inputs: int) -> _Result:
    shape = tuple(leaf.value.shape)
    with placing(replace(leaf, target=target)):
        route(shape, None, target)  # refuses what does not fit
    boxes = boxes_of(target, shape)
    forms = {device: backwards.form(number, box) for device, box in boxes.items()}
    tile, used = next(iter(boxes.values())).size, _in_order_of_use(forms.values())
    reads, constants = tuple(k for k in used if k < inputs), tuple(k for k in used if k >= inputs)
    weak = bool(leaf.value.weak_type)
    kinds = _kinds(target)
    return _Result(shape, str(leaf.value.dtype), tile, boxes, kinds, leaf.path, weak, forms, reads, constants)


# What is sent, its rounds and the program, by devices, tiles and forms.
_PROGRAMS: Cache[Any] = Cache(256)


def plan_of(
    function: TracedFunction,
    inputs: Sequence[Any],
    moving: Sequence[int],
    leaves: Sequence[Leaf],
    targets: Sequence[Sharding],
    donate: bool,
    one_by_one: bool,
) -> ThroughPlan:
    """The plan of a function of arrays.

    Args:
        function: the function.
        inputs: arrays, or placeholders for them.
        moving: captured arrays that move as inputs do, by number; they are never given up.
        leaves, targets: the results and their shardings.
        donate: whether inputs are given up.
        one_by_one: whether each result is moved by itself, which takes least memory.

    Raises:
        ThroughError, LeafError: as `PreparedThrough` does.
    """
    backwards = Backwards(function, moving)
    sources = [_input(array) for array in (*inputs, *(function.captured[k].value for k in moving))]
    results = [_result(k, *pair, backwards, len(sources)) for k, pair in enumerate(zip(leaves, targets, strict=True))]
    constants = backwards.constants
    dtypes = (*(array.dtype for array in sources), *constants.dtypes)
    items = _items(results, sources, dtypes)
    packed = [[k] for k in range(len(items))] if one_by_one else _packed(items)
    last = {k: number for number, numbers in enumerate(packed) for result in numbers for k in results[result].reads}
    alive = MemoryLedger()
    for array in sources:
        alive.count(array.resident_tiles)
    buckets: list[ThroughBucket] = []
    for number, numbers in enumerate(packed):
        given_up = tuple(sorted(k for k, when in last.items() if when == number and k < len(inputs)))
        buckets.append(_bucket(numbers, results, sources, dtypes, given_up, donate, alive))
    devices = {device for array in (*sources, *results) for device in array.boxes}
    processes = tuple(sorted({device.process_index for device in devices}))
    text = [str(function.flat()[0]), *(f"{array.shape} {array.dtype}" for array in sources), donate]
    text += [sorted((device.id, box.edges) for device, box in array.boxes.items()) for array in (*sources, *results)]
    text += [array.kinds[0] for array in (*sources, *results)]
    loads = [sources[k] for bucket in buckets for k in bucket.inputs if sources[k].is_away]
    stores = [result for result in results if result.is_away]
    copies = [(*array.kinds, sum(array.tiles.values())) for array in loads]
    copies += [(*array.kinds[::-1], sum(array.tiles.values())) for array in stores]
    return ThroughPlan(
        tuple(result.path for result in results),
        tuple(result.shape for result in results),
        tuple(result.dtype for result in results),
        tuple(result.weak for result in results),
        tuple(buckets),
        _bound(results, sources),
        constants,
        tuple(moving),
        processes,
        digest_of_parts(text),
        by_kinds(copies),
    )


@dataclass(frozen=True)
class _Item:
    """A result to be packed with others, see `Packable`.

    Attributes:
        index: its number.
        spec: the first result of this kind.
        devices: of its inputs, and of the result.
        source_bytes, target_bytes: of the largest tiles of its inputs, and of the result.
    """

    index: int
    spec: int
    devices: Hashable
    source_bytes: int
    target_bytes: int
    gives_up_source: bool = False


def _items(results: Sequence[_Result], sources: Sequence[_Array], dtypes: Sequence[str]) -> list[_Item]:
    """The results by kind: one kind has equal forms of inputs with equal cuts, and of constants of equal types."""
    first: dict[Hashable, int] = {}
    cuts: dict[Hashable, int] = {}  # numbers for the properties that inputs share
    kinds = [cuts.setdefault((tuple(array.boxes.items()), array.dtype), len(cuts)) for array in sources]
    items = []
    for k, result in enumerate(results):
        sides = {frozenset(sources[number].boxes) for number in result.reads}
        if len(sides) > 1:
            raise ThroughError(
                "",
                f"result {result.path or 'of the function'} is made of arrays on different sets of devices; reshard "
                "them to one set first",
            )
        for side in sides:
            check_ends(result.path, side, result.boxes)
        formula = _renumbered(result.forms.values(), (*result.reads, *result.constants))
        kinds_of_leaves = tuple(kinds[number] for number in result.reads), tuple(dtypes[k] for k in result.constants)
        key = (formula, kinds_of_leaves, tuple(result.boxes.items()), result.dtype)
        items.append(
            _Item(
                k,
                first.setdefault(key, k),
                (next(iter(sides), frozenset()), frozenset(result.boxes)),
                sum(max(sources[number].tiles.values()) for number in result.reads),
                max(result.tiles.values()),
            )
        )
    return items


def _packed(items: Sequence[_Item]) -> list[list[int]]:
    """Results in buckets: of one set of devices on either side, and of at most `BUCKET_BYTES` of a device's tiles.

    A launch takes little time, and a program long to compile. So buckets that share programs may be small.
    """
    buckets = pack_into_buckets(items, least_bytes=0)
    return sorted([item.index for group in bucket for item in group] for bucket in buckets)


def _in_order_of_use(forms: Iterable[Form]) -> tuple[int, ...]:
    """The leaves of forms, in the order in which they come first, scalars last."""
    several = list(forms)
    boxes = (fetch.leaf for form in several for fetch in fetches(form))
    return tuple(dict.fromkeys([*boxes, *(leaf for form in several for leaf in scalars_of(form))]))


def _renumbered(forms: Iterable[Form], order: Sequence[int]) -> tuple[Form, ...]:
    """Forms of which the leaves have their places in a list as numbers."""
    place = {leaf: k for k, leaf in enumerate(order)}
    return tuple(renumbered(form, place) for form in forms)


def _bucket(
    numbers: Sequence[int],
    results: Sequence[_Result],
    sources: Sequence[_Array],
    dtypes: Sequence[str],
    given_up: tuple[int, ...],
    donate: bool,
    alive: MemoryLedger,
) -> ThroughBucket:
    """A bucket of some results, whose bytes are counted."""
    chosen = [results[k] for k in numbers]
    receivers = by_process(chosen[0].boxes)
    used = _in_order_of_use(result.forms[device] for result in chosen for device in receivers)
    reads, constants = tuple(k for k in used if k < len(sources)), tuple(k for k in used if k >= len(sources))
    read = [sources[k] for k in reads]
    senders = by_process(read[0].boxes) if read else []
    devices = by_process({*senders, *receivers})
    number = {device: k for k, device in enumerate(devices)}
    tiles = [{number[device]: array.boxes[device] for device in senders} for array in read]
    forms = {
        number[device]: _renumbered((result.forms[device] for result in chosen), (*reads, *constants))
        for device in receivers
    }
    types = [dtypes[k] for k in (*reads, *constants)]
    sides = [
        ThroughSide(
            tuple(side),
            tuple(number[device] for device in side),
            tuple((array.tile, array.dtype) for array in arrays),
        )
        for side, arrays in ((senders, read), (receivers, chosen))
    ]
    key = (
        tuple(devices), tuple(tuple(tile.items()) for tile in tiles), tuple(forms.items()), tuple(types), *sides,
    )  # fmt: skip
    shapes = [array.shape for array in read]
    sent, rounds, program = _PROGRAMS.get(key, lambda: _program(devices, shapes, tiles, forms, types, *sides))
    launch = LaunchBytes(scratch=program.added_bytes)
    for array in (*chosen, *(array for array in read if array.is_away)):
        launch.added.count(array.tiles)
    for result in chosen:
        launch.change.count(result.resident_tiles)
    for k in given_up if donate else ():
        launch.change.count(sources[k].resident_tiles, -1)
    return ThroughBucket(tuple(numbers), reads, constants, sent, rounds, program, given_up, alive.run(launch))


def _program(
    devices: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    tiles: Sequence[Mapping[int, Box]],
    forms: Mapping[int, Sequence[Form]],
    dtypes: Sequence[str],
    source: ThroughSide,
    target: ThroughSide,
) -> tuple[tuple[SentLeaf, ...], tuple[BoxRound, ...], ThroughProgram]:
    """What is sent for a bucket, its rounds, and the compiled program."""
    inputs = [
        (placement_of_tiles(shape, [*boxes.values()]), [*boxes]) for shape, boxes in zip(shapes, tiles, strict=True)
    ]
    process = {k: device.process_index for k, device in enumerate(devices)}
    sent, rounds, constants, arrivals = scheduled(forms, dtypes, inputs, process)
    scalars = sorted({leaf for results in forms.values() for form in results for leaf in scalars_of(form)})
    program = ThroughProgram(
        devices, source, target, tiles, sent, rounds, constants, arrivals, forms, {k: dtypes[k] for k in scalars}
    )
    return tuple(sent), tuple(rounds), program


def _bound(results: Sequence[_Result], sources: Sequence[_Array]) -> int:
    """The fewest bytes that devices receive, over all of them, if they are sent boxes of the inputs."""
    needed: dict[tuple[Any, int], list[Fetch]] = {}
    for result in results:
        for device, form in result.forms.items():
            for fetch in fetches(form):
                if fetch.leaf < len(sources):
                    needed.setdefault((device, fetch.leaf), []).append(fetch)
    return sum(
        least_bytes(several, sources[leaf].boxes.get(device), sources[leaf].dtype)
        for (device, leaf), several in needed.items()
    )
