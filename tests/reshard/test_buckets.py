"""Which leaves travel together: nothing lost, nothing above a launch's bytes, and few programs."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import redistrib as rd
from redistrib.errors import MemoryLimitError
from redistrib.launches.buckets import (
    BUCKET_BYTES,
    BUCKET_LEAVES,
    Bucket,
    even_groups,
    leaves_of,
    pack_into_buckets,
    program_key,
)
from redistrib.launches.ledger import LaunchBytes, MemoryLedger
from redistrib.launches.moves import LeafMove
from redistrib.launches.order import Job, first_fit, in_order_of_peak, order, within_limit
from redistrib.plans.data import Short
from redistrib.plans.plan import Plan

MESH, DEVICES = "x=8", tuple(range(8))
PLANS = {
    rows: rd.synthesize(f"[{rows}{{x}}{8 * rows}, 1024]", f"[{8 * rows}, 128{{x}}1024]", MESH)
    for rows in (1, 16, 256, 3000, 6000)
}  # of tiles from 4 KiB to 24 MB


@dataclass(frozen=True)
class Moving:
    """Leaves of one plan, on some devices."""

    plan: Plan
    devices: tuple[int, ...] = DEVICES
    kinds: tuple[None, None] = (None, None)

    @property
    def source_bytes(self) -> int:
        return self.plan.before.tile_size * self.plan.itemsize

    @property
    def target_bytes(self) -> int:
        return self.plan.after.tile_size * self.plan.itemsize


@dataclass(frozen=True)
class Sized:
    """Leaves of so many bytes before and after."""

    source_bytes: int
    target_bytes: int
    plan: Plan = PLANS[1]
    kinds: tuple[None, None] = (None, None)


def leaves(counts: dict[tuple[int, bool], int], devices: tuple[int, ...] = DEVICES) -> list[LeafMove]:
    """So many leaves of each kind: rows of the tile, and whether the source is given up."""
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    return [
        LeafMove(k, str(k), Moving(PLANS[rows], devices), devices, donated) for k, (rows, donated) in enumerate(kinds)
    ]


def size(launch: Bucket) -> int:
    return sum(item.source_bytes + item.target_bytes for group in launch for item in group)


@given(
    st.dictionaries(st.tuples(st.sampled_from(sorted(PLANS)), st.booleans()), st.integers(1, 200), max_size=6),
    st.sampled_from((0, 2**21, 2**24)),
)
def test_every_leaf_travels_once_in_a_launch_that_is_not_too_large(
    counts: dict[tuple[int, bool], int], least: int
) -> None:
    items = leaves(counts)
    launches = pack_into_buckets(items, least)
    assert sorted(item.index for launch in launches for group in launch for item in group) == list(range(len(items)))
    for launch in launches:
        kinds_of = [{(item.spec, item.gives_up_source) for item in group} for group in launch]
        assert all(len(found) == 1 for found in kinds_of)
        assert len(set[Any]().union(*kinds_of)) == len(launch)
        number = sum(map(len, launch))
        assert number == 1 or (number <= BUCKET_LEAVES and size(launch) <= BUCKET_BYTES)


def test_a_tree_of_layers_travels_in_launches_of_one_make_up() -> None:
    # Per layer a leaf of 2 MiB of tiles and two of 128 KiB, and a head that is there once.
    counts = {(256, False): 12, (16, False): 24, (3000, False): 1}
    launches = pack_into_buckets(leaves(counts), 2**21)
    kinds = Counter(map(program_key, launches))
    assert len(kinds) == 2
    assert max(kinds.values()) == 12
    assert {size(launch) >= 2**21 for launch in launches} == {True}


def test_launches_are_no_smaller_than_is_worth_their_while() -> None:
    items = leaves({(16, False): 64})  # 128 KiB each
    assert [len(launch[0]) for launch in pack_into_buckets(items, 0)] == [1] * 64
    assert [len(launch[0]) for launch in pack_into_buckets(items, 2**20)] == [8] * 8
    assert [len(launch[0]) for launch in pack_into_buckets(items, 2**30)] == [64]


def test_what_is_as_large_as_a_launch_may_be_fits() -> None:
    """The limits themselves: as many bytes, and as many leaves."""
    assert BUCKET_BYTES % 2 == 0

    def of(*sizes: int) -> list[LeafMove]:
        return [LeafMove(k, str(k), Sized(size, size), DEVICES, False) for k, size in enumerate(sizes)]

    half = BUCKET_BYTES // 2
    assert [leaves_of(launch) for launch in pack_into_buckets(of(half - 5, 5), 2**60)] == [2]
    assert [leaves_of(launch) for launch in pack_into_buckets(of(half - 4, 5), 2**60)] == [1, 1]
    assert max(map(leaves_of, pack_into_buckets(of(*[1] * (BUCKET_LEAVES + 1)), 2**60))) <= BUCKET_LEAVES
    assert [leaves_of(launch) for launch in pack_into_buckets(of(*[1] * BUCKET_LEAVES), 2**60)] == [BUCKET_LEAVES]


def test_what_takes_as_much_as_it_frees_goes_with_what_frees() -> None:
    moved, kept = (LeafMove(0, "a", Sized(64, 64), DEVICES, donated) for donated in (True, False))
    assert order([moved], 7) == (0, 64 + 7)
    assert order([kept], 7) == (1, -7)


def test_leaves_that_one_launch_does_not_hold_are_dealt_out_evenly() -> None:
    """In groups of one size, so that one program moves all of them, if that is above half of what fits."""
    most = BUCKET_BYTES // 2**20

    def sizes(count: int) -> list[int]:
        items = [LeafMove(k, str(k), Sized(2**19, 2**19), DEVICES, False) for k in range(count)]
        return [len(group) for group in even_groups(items)]

    assert most == 32
    assert sizes(32) == [32]
    assert sizes(33) == [32, 1]  # in even groups there would be three
    assert sizes(36) == [18, 18]
    assert sizes(75) == [25, 25, 25]


def test_devices_that_differ_share_no_launch() -> None:
    items = leaves({(16, False): 3}) + leaves({(16, False): 3}, tuple(range(8, 16)))
    launches = pack_into_buckets(items, 2**30)
    assert [{item.devices for group in launch for item in group} for launch in launches] == [
        {tuple(range(8))},
        {tuple(range(8, 16))},
    ]


@dataclass(frozen=True)
class Program:
    """What moves leaves, in some bytes."""

    added_bytes: int
    entries: tuple[Any, ...] = ()


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
    even = Moving(PLANS[256])
    items = [
        LeafMove(0, "grow", grow, DEVICES, gives_up_source=True),
        LeafMove(1, "undonated", shrink, DEVICES),
        LeafMove(2, "large", large, DEVICES, gives_up_source=True),
        LeafMove(3, "even", even, DEVICES, gives_up_source=True),
        LeafMove(4, "shrink", shrink, DEVICES, gives_up_source=True),
    ]
    for several in itertools.permutations(items):
        alive = MemoryLedger()
        alive.add(DEVICES, sum(item.source_bytes for item in items))
        before = alive.fullest()
        batches = in_order_of_peak([(((item,),), Program(10**6)) for item in several], alive)
        freed = [batch.items[0].path for batch in batches]
        assert freed == ["shrink", "large", "even", "grow", "undonated"]
        expected = []
        for batch in batches:
            (item,) = batch.items
            expected.append(before + 10**6)
            before += item.target_bytes - item.source_bytes * item.gives_up_source
        assert [batch.peak_bytes for batch in batches] == expected


@dataclass(frozen=True)
class Costly:
    """Leaves whose fastest program takes more scratch than the most frugal one."""

    source_bytes: int
    target_bytes: int
    fast: int
    frugal: int
    kinds: tuple[None, None] = (None, None)

    @property
    def plan(self) -> Any:
        return SimpleNamespace(peak_bytes=self.source_bytes + self.target_bytes + self.fast)


def test_a_limit_that_the_fastest_programs_do_not_keep_within_has_leaves_travel_in_the_order_of_the_frugal_ones() -> (
    None
):
    """By what the fastest take, `first` goes first, and does not fit; `second` frees room for it."""
    first, second = Costly(100, 50, fast=10, frugal=10), Costly(100, 40, fast=40, frugal=0)
    items = [LeafMove(k, str(k), spec, DEVICES, gives_up_source=True) for k, spec in enumerate((first, second))]

    def within(item: LeafMove, room: int) -> Program | Short:
        spec = item.spec
        assert isinstance(spec, Costly)
        for scratch in (spec.fast, spec.frugal):
            if spec.target_bytes + scratch <= room:
                return Program(spec.target_bytes + scratch)
        return Short(spec.target_bytes + spec.frugal)

    def moved(limit: int) -> list[tuple[str, int]]:
        alive = MemoryLedger()
        alive.add(DEVICES, 200)
        batches = within_limit(
            items, alive, limit, lambda group: Program(10**9), within,
            lambda item: item.target_bytes + item.spec.frugal,  # type: ignore[attr-defined]
        )  # fmt: skip
        return [(batch.items[0].path, batch.peak_bytes) for batch in batches]

    assert moved(260) == [("0", 260), ("1", 230)]
    assert moved(259) == [("1", 240), ("0", 200)]
    assert moved(240) == [("1", 240), ("0", 200)]
    with pytest.raises(MemoryLimitError) as caught:
        moved(239)
    assert caught.value.least == 240


def test_leaves_of_one_spec_travel_together_up_to_the_limit_itself() -> None:
    items = [LeafMove(k, str(k), Sized(100, 50), DEVICES) for k in range(2)]
    alive = MemoryLedger()
    alive.add(DEVICES, 200)
    (batch,) = within_limit(
        items, alive, 300, lambda group: Program(50 * len(group)), lambda item, room: Program(50), lambda item: 50
    )
    assert (len(batch.items), batch.peak_bytes) == (2, 300)


Counts = tuple[int, int, int]  # bytes of a job on a device: before, added meanwhile, there afterwards


@st.composite
def jobs_on_devices(draw: st.DrawFn) -> tuple[list[list[Counts]], list[int], list[int]]:
    """For every job its bytes on each kind of device, the job of each number, and kinds of further devices."""
    kinds = draw(st.integers(1, 3))
    jobs = draw(st.lists(st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=kinds, max_size=kinds), min_size=1))
    numbers = draw(st.lists(st.integers(0, len(jobs) - 1), min_size=1, max_size=9))
    return jobs, numbers, draw(st.lists(st.integers(0, kinds - 1), max_size=6))


@given(jobs_on_devices(), st.none() | st.integers(0, 300), st.integers(1, 120))
def test_devices_that_count_alike_change_no_launch(drawn: Any, limit: int | None, most: int) -> None:
    jobs, numbers, more = drawn
    kinds = range(len(jobs[0]))

    def launches(devices: list[int]) -> Any:
        def ledger(count: Any) -> MemoryLedger:
            return MemoryLedger({device: count(kind) for device, kind in enumerate(devices)})

        made = [
            Job(LaunchBytes(ledger(lambda k: job[k][1]), ledger(lambda k: job[k][2] - job[k][0])), 40, 1)  # noqa: B023
            for job in jobs
        ]
        alive = ledger(lambda k: sum(jobs[number][k][0] for number in numbers))
        try:
            return first_fit({k: made[number] for k, number in enumerate(numbers)}, alive, most, limit)
        except MemoryLimitError as error:
            return error.least

    found = launches([*kinds])
    assert found == launches([*kinds, *more])
    if isinstance(found, int):
        assert limit is not None
        assert found > limit
        return
    assert sorted(k for together, _ in found for k in together) == [*range(len(numbers))]
    held = [sum(jobs[number][kind][0] for number in numbers) for kind in kinds]
    for together, peak in found:
        several = [jobs[numbers[k]] for k in together]
        assert peak == max(held[kind] + sum(job[kind][1] for job in several) for kind in kinds)
        assert limit is None or peak <= limit
        held = [held[kind] + sum(job[kind][2] - job[kind][0] for job in several) for kind in kinds]
