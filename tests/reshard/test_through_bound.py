"""The bound that a plan through a function prints, beside a count of the elements that devices need and lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.theory.boxes import boxes_of
from tests.reshard.test_through import FUNCTIONS, SOURCE, TARGET, line, tree

NARROW = {"cast": 2, "cast and back": 2, "fused, transposed": 2, "scaled": 2}  # bytes on the way, by function


def needed(function: Callable[[Any], Any], before: dict[str, jax.Array], name: str) -> list[np.ndarray[Any, Any]]:
    """`[elements of the result, elements of the input]` for each result: whether a NaN in one reaches the other."""
    values = {key: np.zeros(array.shape, np.float32) for key, array in before.items()}
    size = values[name].size
    marked = np.where(np.eye(size, dtype=bool), np.float32("nan"), np.float32(0)).reshape(size, *values[name].shape)
    reached = jax.vmap(lambda x: function({**values, name: x}))(marked)
    return [np.isnan(np.asarray(leaf, np.float32)).reshape(size, -1).T for leaf in jax.tree.leaves(reached)]


def counted(
    function: Callable[[Any], Any],
    before: dict[str, jax.Array],
    ends: list[NamedSharding],
    bytes_of: Callable[[frozenset[int]], int],
) -> int:
    """Bytes of all elements that a device needs for its results and lacks.

    Args:
        function: of the arrays.
        before: the arrays.
        ends: the sharding of each result.
        bytes_of: bytes of an element that is needed for the results of some numbers.
    """
    shapes = [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(function, before))]
    total = 0
    for name, array in before.items():
        for_result = needed(function, before, name)
        readers: dict[Any, list[set[int]]] = {}
        for number, (end, shape) in enumerate(zip(ends, shapes, strict=True)):
            for device, index in end.devices_indices_map(shape).items():
                rows = np.arange(int(np.prod(shape))).reshape(shape)[index].ravel()
                several = readers.setdefault(device, [set() for _ in range(array.size)])
                for element in np.flatnonzero(for_result[number][rows].any(axis=0)):
                    several[element].add(number)
        held = array.sharding.devices_indices_map(array.shape)
        for device, several in readers.items():
            here = np.zeros(array.shape, bool)
            if device in held:
                here[held[device]] = True
            total += sum(
                bytes_of(frozenset(numbers))
                for numbers, is_here in zip(several, here.ravel(), strict=True)
                if numbers and not is_here
            )
    return total


GRID = Mesh(np.array(jax.devices()[2:10]).reshape(2, 4), ("dp", "tp"))  # each box twice
FROM = Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("copies", "fsdp"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_device_lacks_comes_once_from_a_device_that_holds_it(name: str) -> None:
    """What travels, element by element, between arrays and results that several devices hold."""
    function, spec = FUNCTIONS[name]
    before = {key: jax.device_put(x, NamedSharding(FROM, x.sharding.spec)) for key, x in tree().items()}
    end = NamedSharding(GRID, spec)
    (bucket,) = rd.reshard_plan(before, end, through=function).buckets
    devices = bucket.program._devices
    received = {
        (number, device): np.zeros(before[key].shape, int)
        for number, key in enumerate(sorted(before))
        for device in devices
    }
    for each in bucket.sent:
        number = bucket.inputs[each.leaf]
        held = boxes_of(*(getattr(before[sorted(before)[number]], name) for name in ("sharding", "shape")))
        for row in each.boxes.rows():
            assert row.box.volume and row.box.lies_in(held[devices[row.sender]])
            if row.sender != row.receiver:
                received[number, devices[row.receiver]][row.box.slices()] += 1
    shape = jax.eval_shape(function, before).shape
    elements = np.arange(int(np.prod(shape))).reshape(shape)
    for number, key in enumerate(sorted(before)):
        reaches = needed(function, before, key)[0]
        held = before[key].sharding.devices_indices_map(before[key].shape)
        for device, index in end.devices_indices_map(shape).items():
            lacks = reaches[elements[index].ravel()].any(axis=0).reshape(before[key].shape)
            if device in held:
                lacks[held[device]] = False
            np.testing.assert_array_equal(received[number, device], lacks)


def test_what_two_results_take_in_the_same_steps_is_sent_once() -> None:
    """Of an array that several devices hold, whoever has sent least."""
    twice = Mesh(SOURCE.devices.reshape(2, 2), FROM.axis_names)
    before = jax.device_put(tree()["q"], NamedSharding(twice, P("fsdp")))

    def both(q: jax.Array) -> list[jax.Array]:
        narrow = q.astype(jnp.bfloat16).astype(jnp.float32)
        return [narrow, narrow * 2]

    plan = rd.reshard_plan(before, [NamedSharding(TARGET, P("tp"))] * 2, through=both)
    assert plan.received_bytes == plan.bound_bytes == 2 * before.size


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("same_devices", [False, True])
def test_the_bound_of_one_result_is_the_count(name: str, same_devices: bool) -> None:
    function, spec = FUNCTIONS[name]
    end = NamedSharding(line(0, 4, "tp") if same_devices else TARGET, spec)
    plan = rd.reshard_plan(tree(), end, through=function)
    assert plan.bound_bytes == counted(function, tree(), [end], lambda _: NARROW.get(name, 4))
    assert plan.received_bytes >= plan.bound_bytes


BESIDE = NamedSharding(line(6, 4), P(None, "x"))  # half of the devices of the target
SEVERAL: dict[str, tuple[Callable[[Any], list[Any]], list[P | NamedSharding], dict[tuple[int, ...], int]]] = {
    "twice in one": (lambda t: [jnp.concatenate([t["q"][:10], t["q"][6:]])], [P(None, "tp")], {}),
    "rows and columns": (lambda t: [jnp.concatenate([t["q"][:4, :23], t["q"][:, 1:]])], [P()], {}),
    "in two": (lambda t: [t["q"], t["q"][3:11]], [P("tp"), P(None, "tp")], {}),
    "in two buckets": (lambda t: [t["q"], t["q"] * 2], [P("tp"), BESIDE], {}),
    "wide and narrow": (
        lambda t: [t["q"], t["q"].astype(jnp.bfloat16)],
        [P("tp"), P(None, "tp")],
        {(1,): 2},
    ),
    "narrow in two ways": (
        lambda t: [t["q"].astype(jnp.bfloat16), (t["q"] * 2).astype(jnp.bfloat16), t["q"][:4].astype(jnp.float16)],
        [P("tp"), P(None, "tp"), P()],
        {(0,): 2, (1,): 2, (2,): 2},
    ),
    "narrower and narrower": (
        lambda t: [t["q"].astype(jnp.bfloat16), t["q"].astype(jnp.bfloat16).astype(jnp.float8_e4m3fn)],
        [P("tp"), P(None, "tp")],
        {(0,): 2, (1,): 1, (0, 1): 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_the_bound_of_boxes_that_overlap_is_the_count(name: str) -> None:
    """An element that a device needs in several boxes, results or launches counts once, in the fewest bits."""
    function, specs, narrow = SEVERAL[name]
    ends = [spec if isinstance(spec, NamedSharding) else NamedSharding(TARGET, spec) for spec in specs]
    plan = rd.reshard_plan(tree(), ends, through=function)
    count = counted(function, tree(), ends, lambda numbers: narrow.get(tuple(sorted(numbers)), 4))
    assert plan.bound_bytes == count <= plan.received_bytes
