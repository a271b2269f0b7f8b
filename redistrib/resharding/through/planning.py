"""Plans of trees that go through a function: results in buckets, and what each bucket needs from where.

Models repeat themselves, so results are dealt into buckets with equally many of each kind, which share a program.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.sharding import Sharding

from redistrib.cache import Cache
from redistrib.errors import LeafError, ThroughError
from redistrib.plans.dtypes import itemsize_of
from redistrib.resharding.agreement import digest_of
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.packing.buckets import pack_into_buckets
from redistrib.resharding.planning import cleared_with_others
from redistrib.resharding.through.boxes import Backwards
from redistrib.resharding.through.forms import Box, Fetch, Form, fetches, with_fetches
from redistrib.resharding.through.messages import Arrival, BoxMessage, BoxRound, Senders, scheduled
from redistrib.resharding.through.programs import ThroughProgram, ThroughSide
from redistrib.resharding.through.value import ThroughBucket, ThroughPlan


def _boxes(sharding: Sharding, shape: tuple[int, ...]) -> dict[Any, Box]:
    """The box of each device."""
    return {
        device: tuple(part.indices(size)[:2] for part, size in zip(index or (), shape, strict=True))
        for device, index in sharding.devices_indices_map(shape).items()
    }


# Messages, rounds, bytes that are lacking, and the program, by devices, tiles and forms.
_PROGRAMS: Cache[Any] = cleared_with_others(Cache(256))


def plan_of(
    closed: Any,
    inputs: Sequence[Any],
    leaves: Sequence[Leaf],
    targets: Sequence[Sharding],
    donate: bool,
    one_by_one: bool,
) -> ThroughPlan:
    """The plan of a jaxpr of a function of arrays.

    Args:
        closed: the jaxpr.
        inputs: arrays, or what stands for them.
        leaves, targets: the results and their shardings.
        donate: whether inputs are given up.
        one_by_one: whether each result is moved by itself, which takes least memory.

    Raises:
        ThroughError, LeafError: as `PreparedThrough` does.
    """
    backwards = Backwards(closed)
    sources = [_boxes(array.sharding, array.shape) for array in inputs]
    wanted = []
    for leaf, target in zip(leaves, targets, strict=True):
        try:
            wanted.append(_boxes(target, leaf.value.shape))
        except ValueError as error:
            raise LeafError(leaf.path, str(error)) from None
    forms = [{device: backwards.form(k, box) for device, box in boxes.items()} for k, boxes in enumerate(wanted)]
    used = [frozenset(fetch.leaf for form in each.values() for fetch in fetches(form)) for each in forms]
    buckets: list[ThroughBucket] = []
    items = _items(leaves, inputs, sources, wanted, forms, used)
    packed = [[k] for k in range(len(items))] if one_by_one else _packed(items)
    last = {k: number for number, results in enumerate(packed) for result in results for k in used[result]}
    alive: dict[Any, int] = {}
    for array, boxes in zip(inputs, sources, strict=True):
        _account(alive, boxes, array.dtype)
    bound = 0
    for number, results in enumerate(packed):
        given_up = tuple(sorted(k for k, when in last.items() if when == number))
        bucket, lacking = _bucket(results, inputs, leaves, sources, wanted, forms, used, given_up, alive)
        buckets.append(bucket)
        bound += lacking
        for result in results:
            _account(alive, wanted[result], leaves[result].value.dtype)
        for k in given_up if donate else ():
            _account(alive, sources[k], inputs[k].dtype, -1)
    devices = {device for boxes in (*sources, *wanted) for device in boxes}
    processes = tuple(sorted({device.process_index for device in devices}))
    text = [str(closed), *(f"{array.shape} {array.dtype}" for array in inputs), donate]
    text += [sorted((device.id, box) for device, box in boxes.items()) for boxes in (*sources, *wanted)]
    return ThroughPlan(
        tuple(leaf.path for leaf in leaves),
        tuple(tuple(leaf.value.shape) for leaf in leaves),
        tuple(str(leaf.value.dtype) for leaf in leaves),
        tuple(buckets),
        bound,
        processes,
        digest_of(text),
    )


def _account(alive: dict[Any, int], boxes: Mapping[Any, Box], dtype: Any, sign: int = 1) -> None:
    for device, box in boxes.items():
        size = math.prod(b - a for a, b in box) * itemsize_of(str(dtype))
        alive[device] = alive.get(device, 0) + sign * size


@dataclass(frozen=True)
class _Result:
    """A result to be packed with others, see `Packable`.

    Attributes:
        index: its number.
        spec: the first result that is made alike.
        devices: of its inputs, and its own.
        source_bytes, target_bytes: of the largest tiles of its inputs, and of its own.
    """

    index: int
    spec: int
    devices: Hashable
    source_bytes: int
    target_bytes: int
    donated: bool = False


def _items(
    leaves: Sequence[Leaf],
    inputs: Sequence[Any],
    sources: Sequence[Mapping[Any, Box]],
    wanted: Sequence[Mapping[Any, Box]],
    forms: Sequence[Mapping[Any, Form]],
    used: Sequence[frozenset[int]],
) -> list[_Result]:
    """The results; those are alike that are made in the same way of inputs that are cut alike."""
    first: dict[Hashable, int] = {}
    cuts: dict[Hashable, int] = {}  # numbers for what inputs have in common
    kinds = [
        cuts.setdefault((tuple(boxes.items()), str(array.dtype)), len(cuts))
        for boxes, array in zip(sources, inputs, strict=True)
    ]
    items = []
    for k, leaf in enumerate(leaves):
        sides = {frozenset(sources[number]) for number in used[k]}
        if len(sides) > 1:
            raise ThroughError(
                "",
                f"result {leaf.path or 'of the function'} is made of arrays on different sets of devices; reshard them "
                "to one set first",
            )
        order = _in_order_of_use(forms[k].values())
        made = _renumbered(forms[k].values(), order)
        key = (made, tuple(kinds[number] for number in order), tuple(wanted[k].items()), str(leaf.value.dtype))
        items.append(
            _Result(
                k,
                first.setdefault(key, k),
                (next(iter(sides), frozenset()), frozenset(wanted[k])),
                sum(_largest(sources[number], inputs[number].dtype) for number in order),
                _largest(wanted[k], leaf.value.dtype),
            )
        )
    return items


def _packed(items: Sequence[_Result]) -> list[list[int]]:
    """Results in buckets: of one set of devices on either side, and of at most `BUCKET_BYTES` of a device's tiles.

    A launch takes little time, and a program long to compile. So buckets that share programs may be small.
    """
    buckets = pack_into_buckets(items, least_bytes=0)
    return sorted([item.index for group in bucket for item in group] for bucket in buckets)


def _in_order_of_use(forms: Iterable[Form]) -> list[int]:
    """The inputs of forms, in the order in which they come first."""
    return list(dict.fromkeys(fetch.leaf for form in forms for fetch in fetches(form)))


def _renumbered(forms: Iterable[Form], order: Sequence[int]) -> tuple[Form, ...]:
    """Forms of which the inputs have their places in a list as numbers."""
    place = {leaf: k for k, leaf in enumerate(order)}

    def renumbered(fetch: Fetch) -> Fetch:
        return replace(fetch, leaf=place[fetch.leaf])

    return tuple(with_fetches(form, renumbered) for form in forms)


def _largest(boxes: Mapping[Any, Box], dtype: Any) -> int:
    return max(math.prod(b - a for a, b in box) for box in boxes.values()) * itemsize_of(str(dtype))


def _bucket(
    results: Sequence[int],
    inputs: Sequence[Any],
    leaves: Sequence[Leaf],
    sources: Sequence[Mapping[Any, Box]],
    wanted: Sequence[Mapping[Any, Box]],
    forms: Sequence[Mapping[Any, Form]],
    used: Sequence[frozenset[int]],
    given_up: tuple[int, ...],
    alive: Mapping[Any, int],
) -> tuple[ThroughBucket, int]:
    """A bucket, and the bytes that its devices lack at least."""
    there = sorted(wanted[results[0]], key=_place)
    chosen = _in_order_of_use(forms[k][device] for k in results for device in there)
    here = sorted(sources[chosen[0]], key=_place) if chosen else []
    devices = sorted({*here, *there}, key=_place)
    number = {device: k for k, device in enumerate(devices)}
    tiles = [{number[device]: sources[k][device] for device in here} for k in chosen]
    made = {number[device]: _renumbered((forms[k][device] for k in results), chosen) for device in there}
    dtypes = [str(inputs[k].dtype) for k in chosen]
    sides = []
    for some, shapes in (
        (here, [(inputs[k].sharding.shard_shape(inputs[k].shape), str(inputs[k].dtype)) for k in chosen]),
        (there, [(_size(next(iter(wanted[k].values()))), str(leaves[k].value.dtype)) for k in results]),
    ):
        sides.append(ThroughSide(tuple(some), tuple(number[device] for device in some), tuple(shapes)))
    key = (
        tuple(devices), tuple(tuple(tile.items()) for tile in tiles), tuple(made.items()), tuple(dtypes), *sides,
    )  # fmt: skip
    messages, rounds, program, lacking = _PROGRAMS.get(key, lambda: _program(devices, tiles, made, dtypes, *sides))
    after = dict(alive)
    for k in results:
        _account(after, wanted[k], leaves[k].value.dtype)
    peak = max(after.values(), default=0) + program.added_bytes
    return ThroughBucket(tuple(results), tuple(chosen), messages, rounds, program, given_up, peak), lacking


def _program(
    devices: Sequence[Any],
    tiles: Sequence[Mapping[int, Box]],
    made: Mapping[int, Sequence[Form]],
    dtypes: Sequence[str],
    source: ThroughSide,
    target: ThroughSide,
) -> tuple[tuple[BoxMessage, ...], tuple[BoxRound, ...], ThroughProgram, int]:
    """The messages of a bucket, their rounds, the compiled program, and the bytes that devices lack at least."""
    senders = Senders(tiles, {k: device.process_index for k, device in enumerate(devices)})
    messages, rounds, arrivals = scheduled(made, dtypes, senders)
    origins = [{device: [a for a, _ in box] for device, box in each.items()} for each in tiles]
    program = ThroughProgram(devices, source, target, origins, messages, rounds, arrivals, made)
    return tuple(messages), tuple(rounds), program, _lacking(made, arrivals, tiles)


def _place(device: Any) -> tuple[int, int]:
    return device.process_index, device.id


def _size(box: Box) -> tuple[int, ...]:
    return tuple(b - a for a, b in box)


def _lacking(
    made: Mapping[int, Sequence[Form]],
    arrivals: Mapping[int, Mapping[Fetch, Arrival]],
    tiles: Sequence[Mapping[int, Box]],
) -> int:
    """Bytes of the boxes that devices need and do not have, each box once, in the type in which it is sent.

    It is counted from what is needed, not from what is sent.
    """
    total = 0
    for device in made:
        needed: dict[Any, set[Box]] = {}
        for fetch, arrival in arrivals[device].items():
            needed.setdefault((fetch.leaf, fetch.steps[: arrival.early], arrival.dtype), set()).add(fetch.box)
        for (leaf, _, dtype), boxes in needed.items():
            mine = tiles[leaf].get(device)
            for box in boxes:
                size = math.prod(_size(box))
                if mine is not None:
                    common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, mine, strict=True)]
                    size -= math.prod(max(0, b - a) for a, b in common)
                total += size * itemsize_of(dtype)
    return total
