"""The bound of a reduction, against a search through all that devices can know of one element."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.testing import all_partial_types
from redistrib.theory.bounds import floors, least_received
from redistrib.theory.placement import Placement, lower_bound, placement_of


def between(source: str, target: str, mesh: str) -> tuple[Placement, Placement]:
    over = Mesh.of(mesh)
    return placement_of(DistType.of(source), over), placement_of(DistType.of(target), over)


@pytest.mark.parametrize(
    ("source", "target", "mesh", "least"),
    [
        ("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]", "x=4,y=2", 224),
        ("[16, 8] sum{x,y}", "[4{x}16, 4{y}8]", "x=4,y=2", 896),
        ("[16, 8] sum{x}", "[16, 8]", "x=4,y=2", 1280),
        ("[3{x}12, 12] sum{y}", "[2{y}12, 3{x}12]", "x=4,y=6", 828),
        ("[6{x}12, 6] sum{y}", "[2{y,z}12, 3{x}6]", "x=2,y=3,z=2", 180),
        ("[1{x}2] sum{y}", "[1{y}2]", "x=2,y=2", 4),
        ("[16, 8] sum{y}", "[16, 4{y}8]", "x=1,y=2", 128),
        ("[] sum{x,y}", "[]", "x=4,y=2", 14),
        ("[16, 8] max{x}", "[16, 8]", "x=4,y=2", 1280),
        ("[4{x}16]", "[16] sum{x}", "x=4", 0),
        ("[16]", "[16] sum{x}", "x=4", 0),
        ("[16] sum{x}", "[16] sum{y}", "x=4,y=1", 96),
        ("[2] sum{x}", "[2] sum{y}", "x=2,y=2", 0),
    ],
)
def test_totals(source: str, target: str, mesh: str, least: int) -> None:
    assert least_received(*between(source, target, mesh)) == least


def test_totals_beyond_64_bits_are_exact() -> None:
    dims = ", ".join(["4096"] * 6)
    assert least_received(*between(f"[{dims}] sum{{x}}", f"[{dims}]", "x=2")) == 2 * 2**72


def test_floors() -> None:
    assert floors(*between("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]", "x=4,y=2")) == [16] * 8
    assert floors(*between("[16] sum{x}", "[16] sum{x}", "x=4")) == [0] * 4


@pytest.mark.parametrize("shape", [(), (12,), (12, 12)], ids=str)
@pytest.mark.parametrize("mesh", ["x=4", "x=2,y=2", "x=2,y=3"])
def test_facts_of_every_pair_of_types(mesh: str, shape: tuple[int, ...]) -> None:
    over = Mesh.of(mesh)
    placements = [placement_of(dist_type, over) for dist_type in all_partial_types(over, shape)]
    order = np.random.default_rng(0).permutation(over.size)
    renamed = [_renamed(placement, order) for placement in placements]
    for (before, b), (after, a) in itertools.product(zip(placements, renamed, strict=True), repeat=2):
        least, low = least_received(before, after), floors(before, after)
        assert least >= sum(low) and min(low) >= 0
        assert least == least_received(b, a)  # numbers of devices and of summands mean nothing
        assert floors(b, a) == [low[d] for d in order.tolist()]
        if before.summands == after.summands == 1:
            assert low == lower_bound(before, after) and least == sum(low)
        if before == after:
            assert least == 0 or before.summands == 1
        # what an element of one summand needs, p of them need once for each, less what is saved by adding on the way
        assert least <= before.summands * after.devices * after.tile_size


def _renamed(placement: Placement, order: np.ndarray) -> Placement:
    """Device k does what device order[k] did, and summands are called by other numbers."""
    label = (placement.label[order] + 1) % placement.summands
    return Placement(
        placement.shape, placement.grid, placement.index[order], label, placement.summands, placement.reduction
    )


# ------------------------------------------------------------------------------------ brute force


def spans(p: int) -> dict[frozenset[int], dict[int, frozenset[int]]]:
    """All subspaces of GF(2)^p as sets of bit masks, and each with a vector added."""
    seen: dict[frozenset[int], dict[int, frozenset[int]]] = {}
    todo = [frozenset({0})]
    while todo:
        space = todo.pop()
        if space not in seen:
            seen[space] = {v: frozenset(space | {v ^ w for w in space}) for v in range(1, 2**p)}
            todo += seen[space].values()
    return seen


def fewest_messages(holds: list[int | None], done: object, p: int) -> int:
    """Breadth-first: each message is a linear combination of what its sender knows."""
    grown = spans(p)
    nothing = frozenset({0})
    start = tuple(nothing if s is None else frozenset({0, 1 << s}) for s in holds)
    reached, front, sent = {start}, [start], 0
    while not any(done(state) for state in front):  # type: ignore[operator]
        following = set()
        for state in front:
            for a, b in itertools.permutations(range(len(state)), 2):
                for vector in state[a]:
                    if vector not in state[b]:
                        following.add((*state[:b], grown[state[b]][vector], *state[b + 1 :]))
        front = list(following - reached)
        reached |= following
        sent += 1
    return sent


def knows_the_sum(targets: tuple[int, ...], p: int) -> object:
    return lambda state: all(2**p - 1 in state[d] for d in targets)


def one_element(devices: int, p: int) -> Iterator[list[int]]:
    """Who holds which summand of one element; devices are called so that summands ascend."""
    for holds in itertools.combinations_with_replacement(range(p), devices):
        if set(holds) == set(range(p)):
            yield list(holds)


@pytest.mark.parametrize(("devices", "p"), [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 3), (5, 2)])
def test_no_linear_protocol_sends_less_and_one_sends_as_much(devices: int, p: int) -> None:
    """Two elements, each held and wanted by some of the devices: the totals add up."""
    fewest = {
        (tuple(holds), targets): fewest_messages(list(holds), knows_the_sum(targets, p), p)
        for holds in map(tuple, one_element(devices, p))
        for k in range(1, devices + 1)
        for targets in itertools.combinations(range(devices), k)
    }
    for (holds, targets), messages in fewest.items():
        others = tuple(d for d in range(devices) if d not in targets)
        before = Placement((2,), (1,), np.zeros((devices, 1)), holds, p, "sum" if p > 1 else None)  # type: ignore[arg-type]
        wants = np.array([[0 if d in targets else 1] for d in range(devices)])
        after = Placement((2,), (2,), wants)
        assert least_received(before, after) == messages + (fewest[holds, others] if others else 0)


@pytest.mark.parametrize(("devices", "p", "q"), [(2, 2, 2), (3, 1, 2), (3, 2, 2), (3, 1, 3), (4, 2, 2), (4, 1, 2)])
def test_no_protocol_to_partial_sums_sends_less(devices: int, p: int, q: int) -> None:
    """Devices of one target summand agree on what they hold, and all target summands add up to the array."""

    def done(state: tuple[frozenset[int], ...]) -> bool:
        known = [frozenset.intersection(*(state[d] for d in members)) for members in classes]
        sums = {0}
        for space in known:
            sums = {v ^ w for v in sums for w in space}
        return 2**p - 1 in sums

    for holds in one_element(devices, p):
        for into in itertools.product(range(q), repeat=devices):
            if set(into) != set(range(q)):
                continue
            classes = [[d for d in range(devices) if into[d] == j] for j in range(q)]
            before = Placement((1,), (1,), np.zeros((devices, 1)), holds, p, "sum" if p > 1 else None)  # type: ignore[arg-type]
            after = Placement((1,), (1,), np.zeros((devices, 1)), into, q, "sum")  # type: ignore[arg-type]
            fewest = fewest_messages(list(holds), done, p)
            assert least_received(before, after) <= fewest
            if p == 1 or devices == q:
                assert least_received(before, after) == fewest
