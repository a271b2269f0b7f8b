"""Which leaves travel together: nothing lost, nothing above a launch's bytes, and few programs."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import redistrib as rd
from redistrib.plans.plan import Plan
from redistrib.trees.launches import Launch, make_up, together
from redistrib.trees.schedule import MOST_TOGETHER, TOGETHER_BYTES, Alive, Item, accounted

MESH, DEVICES = "x=8", tuple(range(8))
PLANS = {
    rows: rd.synthesize(f"[{rows}{{x}}{8 * rows}, 1024]", f"[{8 * rows}, 128{{x}}1024]", MESH)
    for rows in (1, 16, 256, 3000, 6000)
}  # of tiles from 4 KiB to 24 MB


@dataclass(frozen=True)
class Kind:
    """Leaves whose tiles have so many rows, on some devices."""

    rows: int
    devices: tuple[int, ...]

    @property
    def plan(self) -> Plan:
        return PLANS[self.rows]

    @property
    def source_bytes(self) -> int:
        return self.plan.before.tile_size * self.plan.itemsize

    @property
    def target_bytes(self) -> int:
        return self.plan.after.tile_size * self.plan.itemsize


@dataclass(frozen=True)
class Moving:
    """Leaves of one plan."""

    plan: Plan

    @property
    def source_bytes(self) -> int:
        return self.plan.before.tile_size * self.plan.itemsize

    @property
    def target_bytes(self) -> int:
        return self.plan.after.tile_size * self.plan.itemsize


def leaves(counts: dict[tuple[int, bool], int], devices: tuple[int, ...] = DEVICES) -> list[Item]:
    """So many leaves of each kind: rows of the tile, and whether the source is given up."""
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    return [Item(k, str(k), Kind(rows, devices), devices, donated) for k, (rows, donated) in enumerate(kinds)]


def size(launch: Launch) -> int:
    return sum(item.source_bytes + item.target_bytes for group in launch for item in group)


@given(
    st.dictionaries(st.tuples(st.sampled_from(sorted(PLANS)), st.booleans()), st.integers(1, 200), max_size=6),
    st.sampled_from((0, 2**21, 2**24)),
)
def test_every_leaf_travels_once_in_a_launch_that_is_not_too_large(
    counts: dict[tuple[int, bool], int], least: int
) -> None:
    items = leaves(counts)
    launches = together(items, least)
    assert sorted(item.index for launch in launches for group in launch for item in group) == list(range(len(items)))
    for launch in launches:
        assert len({(item.kind, item.donated) for group in launch for item in group}) == len(launch)
        assert all((item.kind, item.donated) == (group[0].kind, group[0].donated) for group in launch for item in group)
        number = sum(map(len, launch))
        assert number == 1 or (number <= MOST_TOGETHER and size(launch) <= TOGETHER_BYTES)


def test_a_tree_of_layers_travels_in_launches_of_one_make_up() -> None:
    # Per layer a leaf of 2 MiB of tiles and two of 128 KiB, and a head that is there once.
    counts = {(256, False): 12, (16, False): 24, (3000, False): 1}
    launches = together(leaves(counts), 2**21)
    kinds = Counter(map(make_up, launches))
    assert len(kinds) == 2
    assert max(kinds.values()) == 12
    assert {size(launch) >= 2**21 for launch in launches} == {True}


def test_launches_are_no_smaller_than_is_worth_their_while() -> None:
    items = leaves({(16, False): 64})  # 128 KiB each
    assert [len(launch[0]) for launch in together(items, 0)] == [1] * 64
    assert [len(launch[0]) for launch in together(items, 2**20)] == [8] * 8
    assert [len(launch[0]) for launch in together(items, 2**30)] == [64]


def test_devices_that_differ_share_no_launch() -> None:
    items = leaves({(16, False): 3}) + leaves({(16, False): 3}, tuple(range(8, 16)))
    launches = together(items, 2**30)
    assert [{item.devices for group in launch for item in group} for launch in launches] == [
        {tuple(range(8))},
        {tuple(range(8, 16))},
    ]


@dataclass(frozen=True)
class Program:
    """What moves leaves, in some bytes."""

    added_bytes: int
    loads: tuple[Any, ...] = ()


def test_what_frees_memory_travels_first() -> None:
    """Then what takes memory, the launch that leaves most to spare afterwards first."""
    grow, shrink, large = (
        Moving(rd.synthesize(source, target, MESH))
        for source, target in (
            ("[64{x}512, 1024]", "[512, 1024]"),
            ("[512, 1024]", "[64{x}512, 1024]"),
            ("[1024, 1024]", "[128{x}1024, 1024]"),
        )
    )
    even = Kind(256, DEVICES)
    items = [
        Item(0, "grow", grow, DEVICES, donated=True),
        Item(1, "undonated", shrink, DEVICES),
        Item(2, "large", large, DEVICES, donated=True),
        Item(3, "even", even, DEVICES, donated=True),
        Item(4, "shrink", shrink, DEVICES, donated=True),
    ]
    for several in itertools.permutations(items):
        alive = Alive()
        alive.add(DEVICES, sum(item.source_bytes for item in items))
        before = alive.most()
        batches = accounted([(((item,),), Program(10**6)) for item in several], alive)
        freed = [batch.items[0].path for batch in batches]
        assert freed == ["shrink", "large", "even", "grow", "undonated"]
        expected = []
        for batch in batches:
            (item,) = batch.items
            expected.append(before + 10**6)
            before += item.target_bytes - item.source_bytes * item.donated
        assert [batch.peak_bytes for batch in batches] == expected
