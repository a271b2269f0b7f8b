"""Which device reads which part of a tensor: each byte once, and as much as possible where it is needed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, Sharding
from jax.sharding import PartitionSpec as P

from redistrib.backends.jax.rows import line_of
from redistrib.theory.boxes import boxes_of
from redistrib.weights.headers import StoredTensor
from redistrib.weights.layout import reading_layout
from redistrib.weights.planning import cut_by_axes

SQUARE = StoredTensor("w", 0, 0, (1024, 1024), "float32")


def hosts_of(devices: Any, each: int) -> dict[Any, int]:
    return {device: k // each for k, device in enumerate(devices)}


def lacking(tensor: StoredTensor, reading: Sharding, target: Sharding, hosts: dict[Any, int]) -> list[int]:
    """For each host the elements that it needs and has not read, counted one by one."""
    result = []
    read, needed = boxes_of(reading, tensor.shape), boxes_of(target, tensor.shape)
    for host in sorted(set(hosts.values())):
        wanted = np.zeros(tensor.shape, bool)
        for device, box in needed.items():
            if hosts[device] == host:
                wanted[box.slices()] = True
        for device, box in read.items():
            if hosts[device] == host:
                wanted[box.slices()] = False
        result.append(int(wanted.sum()))
    return result


def test_hosts_read_what_they_need_themselves() -> None:
    devices = jax.devices()[:8]
    hosts = hosts_of(devices, 2)
    grid = Mesh(np.array(devices).reshape(2, 4).T, ("fsdp", "tp"))  # each host has two FSDP parts of one TP half
    target = cut_by_axes(SQUARE.shape, grid)
    layout = reading_layout(SQUARE, line_of(devices), [target], hosts)
    assert layout is not None
    # Of the quarter that a host reads it needs half the columns, so an eighth comes from elsewhere.
    assert lacking(SQUARE, layout.sharding, target, hosts) == 4 * [SQUARE.shape[0] * SQUARE.shape[1] // 8]
    in_order = NamedSharding(line_of(devices), layout.sharding.spec)
    assert max(lacking(SQUARE, in_order, target, hosts)) == SQUARE.shape[0] * SQUARE.shape[1] // 4


@pytest.mark.parametrize("spec", [P(), P(None, "tp"), P("fsdp")])
def test_where_all_are_as_good_boxes_are_in_order(spec: P) -> None:
    devices = jax.devices()[:8]
    target = NamedSharding(Mesh(np.array(devices).reshape(4, 2), ("fsdp", "tp")), spec)
    layout = reading_layout(SQUARE, line_of(devices), [target], hosts_of(devices, 2))
    assert layout is not None and list(layout.sharding.mesh.devices.flat) == devices


def test_of_two_dimensions_the_one_that_is_cut_afterwards_is_read() -> None:
    devices = jax.devices()[:8]
    experts = StoredTensor("experts", 0, 0, (8, 512, 1024), "bfloat16")
    mesh = Mesh(np.array(devices), ("x",))
    for spec, dim in ((P("x"), 0), (P(None, "x"), 1), (P(), 0)):
        layout = reading_layout(experts, line_of(devices), [NamedSharding(mesh, spec)], hosts_of(devices, 2))
        assert layout is not None and [k for k, axis in enumerate(layout.sharding.spec) if axis] == [dim]


@st.composite
def targets(draw: st.DrawFn) -> Sharding:
    """A sharding of six devices, or some of them, in any order."""
    devices = draw(st.permutations(jax.devices()[:6]))[: draw(st.sampled_from([6, 3, 2, 1]))]
    sizes = draw(st.sampled_from([(n, len(devices) // n) for n in range(1, len(devices) + 1) if len(devices) % n == 0]))
    spec = draw(st.permutations(["a", "b", None, None]))[:2]
    return NamedSharding(Mesh(np.array(devices).reshape(sizes), ("a", "b")), P(*spec))


@settings(max_examples=40, deadline=None)
@given(target=targets())
def test_no_other_order_leaves_more_where_it_is_needed(target: Sharding) -> None:
    devices = jax.devices()[:6]
    hosts = hosts_of(devices, 2)
    tensor = StoredTensor("w", 0, 0, (36, 18432), "float32")
    layout = reading_layout(tensor, line_of(devices), [target], hosts)
    assert layout is not None
    read = boxes_of(layout.sharding, tensor.shape)
    assert len(set(read.values())) == 6 and sum(box.volume for box in read.values()) == math.prod(tensor.shape)
    small = StoredTensor("w", 0, 0, (36, 36), "float32")  # the same cuts, counted faster
    ours = sum(lacking(small, layout.sharding, target, hosts))
    spec = layout.sharding.spec
    orders = set(itertools.permutations([0, 0, 1, 1, 2, 2]))  # the host of each box
    lines = [[devices[2 * host + order[:k].count(host)] for k, host in enumerate(order)] for order in orders]
    least = min(sum(lacking(small, NamedSharding(line_of(line), spec), target, hosts)) for line in lines)
    assert ours == least
