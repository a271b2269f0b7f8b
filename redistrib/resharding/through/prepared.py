"""A tree and a function of it, checked, planned and compiled for; and then moved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Sharding
from jax.tree_util import keystr, tree_flatten_with_path

from redistrib.backends.jax.buckets.compiled import is_packed
from redistrib.cache import Cache
from redistrib.errors import LeafError, MemoryLimitError, ThroughError
from redistrib.plans.dtypes import itemsize_of
from redistrib.report import rendered
from redistrib.resharding.agreement import agree, digest_of
from redistrib.resharding.interrupts import SignalsPutOff
from redistrib.resharding.leaves import Leaf, matched, on_devices
from redistrib.resharding.packing.buckets import BUCKET_BYTES
from redistrib.resharding.sharing import belongs_to_others, buffers
from redistrib.resharding.through.boxes import Backwards
from redistrib.resharding.through.forms import Box, Combination, Concatenation, Fetch, Form, View, fetches
from redistrib.resharding.through.messages import Arrival, BoxMessage, BoxRound, Senders, received, scheduled
from redistrib.resharding.through.programs import ThroughProgram, ThroughSide

_PLANS: Cache[Any] = Cache(64)  # by the jaxpr, the inputs' and the results' shardings


@dataclass(frozen=True)
class ThroughBucket:
    """Results that are made in one go.

    Attributes:
        results: their numbers.
        inputs: numbers of the inputs that they are made of.
        messages: boxes that are sent.
        rounds: in which they are sent.
        program: what does it.
        given_up: inputs that nothing needs afterwards.
        peak_bytes: bytes on the fullest device meanwhile, all inputs and results counted.
    """

    results: tuple[int, ...]
    inputs: tuple[int, ...]
    messages: tuple[BoxMessage, ...]
    rounds: tuple[BoxRound, ...]
    program: ThroughProgram
    given_up: tuple[int, ...]
    peak_bytes: int


@dataclass(frozen=True)
class ThroughPlan:
    """What `reshard` does with a tree that goes through a function on its way. Print it for a table.

    Attributes:
        names: of the results.
        shapes, dtypes: of the results.
        buckets: what is done, in order.
        bound_bytes: bytes that devices lack of what their results are made of, each element once and in the fewest
            bits that it has on its way, all together. No way to compute the results on their devices receives less.
        peak_bytes: on the fullest device at the worst moment.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    buckets: tuple[ThroughBucket, ...]
    bound_bytes: int
    processes: tuple[int, ...] = ()
    digest: str = field(default="", repr=False)

    @property
    def received_bytes(self) -> int:
        """Bytes that devices receive from others, all together."""
        return sum(received(bucket.messages) for bucket in self.buckets)

    @property
    def peak_bytes(self) -> int:
        """Bytes on the fullest device at the worst moment."""
        return max((bucket.peak_bytes for bucket in self.buckets), default=0)

    def __str__(self) -> str:
        rows = []
        for number, bucket in enumerate(self.buckets, start=1):
            first = self.names[bucket.results[0]] or "the array"
            more = len(bucket.results) - 1
            sent = sorted({message.dtype for message in bucket.messages})
            rows.append(
                [
                    str(number),
                    first if not more else f"{first} and {more} more",
                    f"{self.dtypes[bucket.results[0]]}{list(self.shapes[bucket.results[0]])}",
                    str(len(bucket.inputs)),
                    ", ".join(sent),
                    str(len(bucket.rounds)),
                    f"{received(bucket.messages):,}",
                    f"{bucket.peak_bytes:,}",
                ]
            )
        columns = ("launch", "results", "array", "inputs", "sent as", "rounds", "received", "peak")
        over = f"{self.received_bytes / self.bound_bytes:.2f}x" if self.bound_bytes else "-"
        return (
            f"{rendered('', columns, rows)}\n"
            f"received {self.received_bytes:,} bytes over all devices; the bound of the fewest bits on the way is "
            f"{self.bound_bytes:,} ({over}); {self.peak_bytes:,} bytes per device at the peak"
        )


class PreparedThrough:
    """A call of `reshard` with `through`, ready to run.

    Raises:
        ThroughError: if the function has what is neither a view nor element-wise.
        LeafError: for an input that is no array on devices, or a sharding that does not fit.
        MemoryLimitError: if the predicted peak is above the limit.
    """

    def __init__(
        self,
        tree: Any,
        shardings: Any,
        function: Callable[[Any], Any],
        *,
        mesh: Any = None,
        donate: bool = False,
        memory_limit: int | None = None,
    ) -> None:
        self._inputs = _inputs(tree)
        structure = jax.tree.structure(tree)
        shapes = jax.tree.unflatten(
            structure, [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in self._inputs]
        )
        closed, made = jax.make_jaxpr(function, return_shape=True)(shapes)
        leaves, self._structure = matched(made, shardings, mesh=mesh)
        self._targets = [on_devices(leaf).target for leaf in leaves]
        self._donate = donate
        paths = tuple(leaf.path for leaf in leaves)
        key = (
            str(closed) if not closed.consts else id(closed),
            tuple((array.shape, str(array.dtype), array.sharding) for array in self._inputs),
            tuple(self._targets),
            paths,
            donate,
        )
        self.plan: ThroughPlan = _PLANS.get(key, lambda: _planned(closed, self._inputs, leaves, self._targets, donate))
        if memory_limit is not None and self.plan.peak_bytes > memory_limit:
            raise MemoryLimitError(memory_limit, self.plan.peak_bytes)

    def run(self) -> Any:
        """The results, each under its sharding. Where inputs are donated they are given up one after the other, and an
        exception has an attribute `partial`: the results so far, with None for others."""
        for array in self._inputs:
            if isinstance(array, jax.ShapeDtypeStruct) and array.sharding.addressable_devices:
                raise LeafError("", "a ShapeDtypeStruct has no values to move; pass arrays, or call reshard_plan")
        if len(self.plan.processes) > 1:
            agree(self.plan.processes, self.plan.digest)
        results: list[Any] = [None] * len(self.plan.names)
        partial = (lambda: jax.tree.unflatten(self._structure, results)) if self._donate else None
        stays = self._shared() if self._donate else set()
        with SignalsPutOff(partial) as pause:
            for bucket in self.plan.buckets:
                pause()
                made = bucket.program(
                    [self._inputs[k] for k in bucket.inputs],
                    [self.plan.shapes[k] for k in bucket.results],
                    [self._targets[k] for k in bucket.results],
                )
                for k, array in zip(bucket.results, made, strict=True):
                    results[k] = array
                jax.block_until_ready(made)
                for k in bucket.given_up if self._donate else ():
                    if k not in stays and isinstance(self._inputs[k], jax.Array):
                        self._inputs[k].delete()
            if self._donate:
                return jax.tree.unflatten(self._structure, results)
        return jax.tree.unflatten(self._structure, results)

    def _shared(self) -> set[int]:
        """Inputs that have buffers of other arrays, or of each other: they are not given up."""
        seen: dict[Any, int] = {}
        stays: set[int] = set()
        for k, array in enumerate(self._inputs):
            if belongs_to_others(array, set()):
                stays.add(k)
            for buffer in buffers(array) if isinstance(array, jax.Array) else ():
                if seen.setdefault(buffer, k) != k:
                    stays |= {k, seen[buffer]}
        return stays


def _inputs(tree: Any) -> list[Any]:
    """The leaves of a tree, each an array, or what stands for one."""
    pairs = tree_flatten_with_path(tree)[0]
    for path, value in pairs:
        name = keystr(path)
        if isinstance(value, jax.core.Tracer) or not isinstance(value, jax.Array | jax.ShapeDtypeStruct):
            raise LeafError(name, f"{type(value).__name__} is no array on devices; place it first, outside jit")
        if isinstance(value, jax.Array) and value.is_deleted():
            raise LeafError(name, "the array has been donated or deleted; pass one that is alive")
        if value.sharding is None:
            raise LeafError(name, "a ShapeDtypeStruct must say where its array is; give it a sharding=")
        if getattr(getattr(value.sharding, "spec", None), "unreduced", None):
            raise LeafError(name, "its tiles are partial sums; reshard it without through= first")
        if jnp.issubdtype(value.dtype, jax.dtypes.extended) or is_packed(value.dtype):
            raise LeafError(name, f"elements of {value.dtype} go through no function on their way; reshard it alone")
    return [value for _, value in pairs]


def _boxes(sharding: Sharding, shape: tuple[int, ...]) -> dict[Any, Box]:
    """The box of each device."""
    return {
        device: tuple(part.indices(size)[:2] for part, size in zip(index or (), shape, strict=True))
        for device, index in sharding.devices_indices_map(shape).items()
    }


def _planned(
    closed: Any, inputs: Sequence[Any], leaves: Sequence[Leaf], targets: Sequence[Sharding], donate: bool
) -> ThroughPlan:
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
    packed = _packed(leaves, inputs, sources, wanted, used)
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


def _packed(
    leaves: Sequence[Leaf],
    inputs: Sequence[Any],
    sources: Sequence[Mapping[Any, Box]],
    wanted: Sequence[Mapping[Any, Box]],
    used: Sequence[frozenset[int]],
) -> list[list[int]]:
    """Results in buckets: of one set of devices on either side, and of at most `BUCKET_BYTES` of a device's tiles."""
    open_buckets: dict[Any, tuple[list[int], int]] = {}
    result: list[list[int]] = []
    for k, leaf in enumerate(leaves):
        sides = {frozenset(sources[number]) for number in used[k]}
        if len(sides) > 1:
            raise ThroughError(
                "",
                f"result {leaf.path or 'of the function'} is made of arrays on different sets of devices; reshard them "
                "to one set first",
            )
        place = (next(iter(sides), frozenset()), frozenset(wanted[k]))
        size = _largest(wanted[k], leaf.value.dtype) + sum(_largest(sources[n], inputs[n].dtype) for n in used[k])
        bucket, filled = open_buckets.get(place, ([], 0))
        if not bucket or filled + size > BUCKET_BYTES:
            bucket, filled = [], 0
            result.append(bucket)
        bucket.append(k)
        open_buckets[place] = bucket, filled + size
    return result


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
    chosen = sorted(frozenset().union(*(used[k] for k in results)))
    here = set(sources[chosen[0]]) if chosen else set()
    there = set(wanted[results[0]])
    devices = sorted(here | there, key=lambda device: (device.process_index, device.id))
    number = {device: k for k, device in enumerate(devices)}
    place = {leaf: k for k, leaf in enumerate(chosen)}
    tiles = [{number[device]: box for device, box in sources[k].items()} for k in chosen]
    made = {number[device]: [_renumbered(forms[k][device], place) for k in results] for device in there}
    made = dict(sorted(made.items()))
    dtypes = [str(inputs[k].dtype) for k in chosen]
    senders = Senders(tiles, {k: device.process_index for device, k in number.items()})
    messages, rounds, arrivals = scheduled(made, dtypes, senders)
    sides = []
    for some, shapes in (
        (here, [(inputs[k].sharding.shard_shape(inputs[k].shape), str(inputs[k].dtype)) for k in chosen]),
        (there, [(_size(next(iter(wanted[k].values()))), str(leaves[k].value.dtype)) for k in results]),
    ):
        ordered = [device for device in devices if device in some]
        sides.append(ThroughSide(tuple(ordered), tuple(number[device] for device in ordered), tuple(shapes)))
    origins = [{device: [a for a, _ in box] for device, box in each.items()} for each in tiles]
    source, target = sides
    program = ThroughProgram(devices, source, target, origins, messages, rounds, arrivals, made)
    after = dict(alive)
    for k in results:
        _account(after, wanted[k], leaves[k].value.dtype)
    peak = max(after.values(), default=0) + program.added_bytes
    lacking = _lacking(made, arrivals, tiles)
    return ThroughBucket(
        tuple(results), tuple(chosen), tuple(messages), tuple(rounds), program, given_up, peak
    ), lacking


def _size(box: Box) -> tuple[int, ...]:
    return tuple(b - a for a, b in box)


def _renumbered(form: Form, place: Mapping[int, int]) -> Form:
    """A form whose inputs have other numbers."""
    match form:
        case Fetch():
            return replace(form, leaf=place[form.leaf])
        case View():
            return replace(form, of=_renumbered(form.of, place))
        case Concatenation():
            return replace(form, parts=tuple(_renumbered(part, place) for part in form.parts))
        case Combination():
            return replace(form, arrays=tuple(_renumbered(part, place) for part in form.arrays))
    return form


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
