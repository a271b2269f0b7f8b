"""Routes on a mesh or torus: against a walk along every part of every message, and whichever way round it is held."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redistrib.cost.presets import PRESETS
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.steps import AllGather, AllPermute, Step
from redistrib.plans.transfers import NeededParts
from redistrib.synthesis.phases import single, three_phases
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.rounds import colour_rounds
from redistrib.synthesis.synthesize import synthesize
from redistrib.synthesis.torus_neighbours import nearest_groups, nearest_senders
from redistrib.testing import RedistributionCase, redistributions, tori
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import placement_of
from redistrib.theory.topology import Topology, torus_of_devices
from redistrib.theory.torus import Torus

Node: TypeAlias = tuple[int, ...]
Link: TypeAlias = tuple[int, Node, bool]  # along which dimension, from which node, upwards


def grid(shape: tuple[int, ...], wraps: tuple[bool, ...]) -> Torus:
    return Torus(shape, wraps, tuple(itertools.product(*map(range, shape))))


def walked(torus: Torus, source: Node, target: Node, order: tuple[int, ...], upwards: bool) -> set[Link]:
    """The links of one part of a message, which goes `upwards` where both ways round a ring are as long."""
    at, links = list(source), set()
    for k in order:
        size, way = torus.shape[k], target[k] - source[k]
        if torus.wraps[k]:
            up, down = way % size, -way % size
            way = up if up < down or (up == down and upwards) else -down
        for _ in range(abs(way)):
            links.add((k, tuple(at), way > 0))
            at[k] = (at[k] + (1 if way > 0 else -1)) % size
    assert tuple(at) == target
    return links


def busiest(torus: Torus, trees: Iterable[tuple[int, list[int]]]) -> float:
    """Messages over the busiest link, where each device sends one along a tree to others."""
    parts = list(itertools.product(itertools.permutations(range(len(torus.shape))), (True, False)))
    load: Counter[Link] = Counter()
    for source, targets in trees:
        for order, upwards in parts:
            ways = [walked(torus, torus.coords[source], torus.coords[d], order, upwards) for d in targets]
            load.update(set().union(*ways))
    return max(load.values(), default=0) / len(parts)


@given(torus=st.sampled_from([2, 6, 12, 16]).flatmap(tori), data=st.data())
def test_messages_and_trees_are_what_a_walk_finds(torus: Torus, data: st.DataObject) -> None:
    devices = st.integers(0, len(torus.coords) - 1)
    pairs = data.draw(st.lists(st.tuples(devices, devices), max_size=6))
    sender, receiver = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    assert torus.most_sent(sender, receiver) == busiest(torus, [(a, [b]) for a, b in pairs])
    group = data.draw(st.lists(devices, min_size=1, max_size=6, unique=True))
    groups = np.array([group])
    assert torus.most_gathered(groups) == busiest(torus, [(a, group) for a in group])
    assert torus.most_exchanged(groups) == busiest(torus, [(a, [b]) for a in group for b in group])


@pytest.mark.parametrize(
    ("shape", "wraps", "gathered", "exchanged"),
    [  # what a device takes in over all its links; half of what a half sends to the other, over the links between
        ((4, 4), (False, False), 15 / 2, 8 * 8 / 4),
        ((4, 4, 4), (True, True, True), 63 / 6, 32 * 32 / 32),
    ],
)
def test_known_slices(shape: Node, wraps: tuple[bool, ...], gathered: float, exchanged: float) -> None:
    """Gathers reach what the links into a device allow, all-to-alls what those between two halves do."""
    torus, everyone = grid(shape, wraps), np.arange(math.prod(shape))[None]
    assert (torus.most_gathered(everyone), torus.most_exchanged(everyone)) == (gathered, exchanged)


def turned(torus: Torus, draw: Any) -> Torus:
    """The same devices on the same links, the torus turned, reflected, or shifted along its rings."""
    order = draw(st.permutations(range(len(torus.shape))))
    coords = torus.coordinates[:, order]
    shape, wraps = (tuple(figures[k] for k in order) for figures in (torus.shape, torus.wraps))
    for k, (size, ring) in enumerate(zip(shape, wraps, strict=True)):
        if draw(st.booleans()):
            coords[:, k] = size - 1 - coords[:, k]
        if ring:
            coords[:, k] = (coords[:, k] + draw(st.integers(0, size - 1))) % size
    return Torus(shape, wraps, tuple(map(tuple, coords.tolist())))


@given(problem=redistributions(max_devices=16), data=st.data())
def test_no_price_knows_how_the_torus_is_held(problem: RedistributionCase, data: st.DataObject) -> None:
    """Every step of every candidate, under the torus, and under the same turned, reflected or shifted."""
    torus = data.draw(tori(problem.mesh.size))
    links = Topology(problem.mesh.size, torus=torus)
    again = replace(links, torus=turned(torus, data.draw))
    asked = Problem(problem.before, problem.after, 4, links)
    here, there = (PRESETS["tpu"].prices(4, topology) for topology in (links, again))
    for steps in itertools.islice(three_phases(asked, single(asked)), 8):
        for step in steps:
            assert here.step(step) == there.step(step)


@settings(max_examples=25)
@given(problem=redistributions(max_devices=12), data=st.data())
def test_no_choice_knows_how_the_torus_is_held(problem: RedistributionCase, data: st.DataObject) -> None:
    """So the whole plan is the same: steps, groups, senders, price."""
    torus = data.draw(tori(problem.mesh.size))
    ends = problem.source, problem.mesh, problem.target, problem.target_mesh
    here, there = (
        synthesize(*ends, model="tpu", topology=Topology(problem.mesh.size, torus=each))
        for each in (torus, turned(torus, data.draw))
    )
    assert (here.cost, here.steps) == (there.cost, there.steps)


def test_neighbours_send_and_gather() -> None:
    """Replicas on a line of eight: who holds a tile sends it to the nearest that lacks it, and neighbours gather."""
    line = grid((8,), (False,))
    senders, receivers = np.array([0, 1, 6, 7]), np.array([5, 4, 3, 2])
    assert nearest_senders(line, senders, receivers, np.zeros(4)).tolist() == [6, 7, 1, 0]
    assert nearest_senders(line, senders, receivers, np.arange(4)).tolist() == senders.tolist()
    table = np.array([[[0, 2, 4, 6], [7, 5, 3, 1]]])
    assert nearest_groups(line, table, np.zeros(8)).tolist() == [[[0, 2, 4, 6], [1, 3, 5, 7]]]
    assert nearest_groups(line, table, np.array([0, 1, 1, 1, 1, 1, 1, 0])).tolist()[0][1][0] == 7
    mesh = Mesh.of("x=2,y=4")
    before = placement_of(DistType.of("[4{x}8]"), mesh)
    fours = np.full((4, 1), 4)
    rows = NeededParts(np.arange(4), np.ones(4, np.int64), Boxes(fours, fours))
    known = Topology(8, torus=replace(line, coords=line.coords[::-1]))
    shares = colour_rounds(rows, before, known, stay=True)
    assert shares.sender.tolist() == [4, 4, 4, 4]


def test_slices_share_no_link() -> None:
    """Two slices of two devices: what goes from one to the other is not on their links."""
    torus = Torus((2,), (False,), ((0,), (1,), (0,), (1,)), slices=(0, 0, 1, 1))
    assert torus.most_sent(np.array([0, 2]), np.array([1, 3])) == 1
    assert torus.most_sent(np.array([0, 1]), np.array([2, 3])) == 0
    assert torus.most_gathered(np.array([[0, 1, 2, 3]])) == 1


def chip(kind: str, coords: Node, platform: str = "tpu", number: int = 0) -> SimpleNamespace:
    return SimpleNamespace(device_kind=kind, coords=coords, platform=platform, slice_index=number, process_index=0)


@pytest.mark.parametrize(
    ("kind", "shape", "wraps"),
    [
        ("TPU v5 lite", (4, 4, 1), (False, False, False)),
        ("TPU v5 lite", (16, 4, 1), (True, False, False)),
        ("TPU v6 lite", (16, 16, 1), (True, True, False)),
        ("TPU v5p", (4, 4, 4), (True, True, True)),
        ("TPU v5", (4, 4, 8), (True, True, True)),
        ("TPU v4", (2, 4, 4), (False, False, False)),
        ("TPU v3", (4, 4, 1), (False, False, False)),
    ],
)
def test_what_tpus_say_of_their_links(kind: str, shape: Node, wraps: tuple[bool, ...]) -> None:
    nodes = list(itertools.product(*map(range, shape)))
    found = Topology.of_devices([chip(kind, (x + 4, y, z)) for x, y, z in nodes])
    assert found == Topology(len(nodes), torus=Torus(shape, wraps, tuple(nodes)))


def test_devices_that_do_not_say_where_they_are() -> None:
    nodes = list(itertools.product(range(2), range(2)))
    assert torus_of_devices([chip("H100", (*node,), "gpu") for node in nodes]) is None
    slices = [chip("TPU v5 lite", node, number=k) for k in range(2) for node in nodes]
    found = Topology.of_devices(slices)
    assert found.host == (0,) * 4 + (1,) * 4 and found.torus is not None and found.torus.shape == (2, 2)
    assert found.torus.slices == found.host  # which share no link
    assert Topology.of_devices(slices[:6]).torus is None  # of two shapes
    assert str(found) == "2 hosts of 4 devices, each on a 2x2 mesh"


def test_the_price_of_a_step_is_its_busiest_link() -> None:
    """Not one bandwidth for all: a tile that goes three links along a line, or one, is on every link once."""
    free = replace(PRESETS["tpu"], memory_bandwidth=1e30, link_bandwidth=1.0)
    line = Topology(4, torus=grid((4,), (False,)))
    problem = redistribution("[2{x}8]", "[8]")
    (gather,) = (step for step in plan_steps(problem, line) if isinstance(step, AllGather))
    assert free.prices(1, line).step(gather) == pytest.approx(6 + free.latency["allgather"].seconds(4))
    ring = replace(line, torus=grid((4,), (True,)))
    assert free.prices(1, ring).step(gather) == pytest.approx(3 + free.latency["allgather"].seconds(4))
    swap = AllPermute(problem.before, problem.before, np.array([[0, 3], [1, 2]]))
    assert free.prices(1, line).step(swap) == pytest.approx(4 + free.latency["allpermute"].seconds(2))


def redistribution(source: str, target: str) -> RedistributionCase:
    mesh = Mesh.of("x=4")
    return RedistributionCase(DistType.of(source), DistType.of(target), mesh, mesh)


def plan_steps(problem: RedistributionCase, topology: Topology) -> list[Step]:
    return single(Problem(problem.before, problem.after, 1, topology)) or []
